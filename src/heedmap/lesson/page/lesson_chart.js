/** Lines over one quantity, with bars for how much they vary between seeds. */

import { draw, make } from "./dom.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */
/** @typedef {import("./lesson_context.js").Key} Key */
/** @typedef {{mean: number[], spread: number[]}} Line */
/** @typedef {{x: number[], series: Record<string, Line>, facts: Record<string, any>}} Result */

/**
 * @typedef {object} Axes
 * @property {boolean} doubling whether steps across double
 * @property {boolean} tenfold whether steps upwards are tenfold
 * @property {[number, number]} [within] the ends of what is shown upwards
 */

const WIDTH = 440;
const HEIGHT = 260;
const LEFT = 48;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 34;
const MOST_TICKS = 10;

/**
 * Return the chart of a result.
 *
 * @param {Lesson} lesson
 * @param {Result} result
 * @param {{title: Key, across: Key}} words
 * @param {Axes} axes
 */
export function chart(lesson, result, words, axes) {
  const scale = scaleOf(result, axes);
  const picture = draw(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": lesson.say(words.title).replaceAll("`", "") },
    ...gridOf(result, axes, scale),
    ...Object.entries(result.series).map(([name, line]) => lineOf(name, line, result.x, scale)),
    draw(
      "text",
      { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 2, "text-anchor": "middle" },
      lesson.say(words.across),
    ),
  );
  const legend = Object.keys(result.series).map((name) =>
    make(
      "li",
      { class: `ls-series-${name}` },
      make("i"),
      lesson.say(/** @type {Key} */ (`series_${name}`)),
    ),
  );
  return make(
    "figure",
    { class: "ls-chart" },
    lesson.text("figcaption", words.title),
    picture,
    make("ul", { class: "ls-legend" }, ...legend),
  );
}

/** @typedef {{across: (x: number) => number, up: (y: number) => number, ends: [number, number]}} Scale */

/**
 * @param {Result} result
 * @param {Axes} axes
 * @returns {Scale}
 */
function scaleOf({ x, series }, { doubling, tenfold, within }) {
  const means = Object.values(series).flatMap(({ mean }) => mean);
  const [low, high] = within ?? endsOf(means, tenfold);
  const bend = (/** @type {number} */ value, /** @type {boolean} */ bent) =>
    bent ? Math.log(value) : value;
  const place = (
    /** @type {number} */ value,
    /** @type {[number, number]} */ [first, last],
    /** @type {boolean} */ bent,
  ) => {
    const part = (bend(value, bent) - bend(first, bent)) / (bend(last, bent) - bend(first, bent));
    return Math.min(1, Math.max(0, part));
  };
  return {
    ends: [low, high],
    across: (value) => LEFT + (WIDTH - LEFT - RIGHT) * place(value, [x[0], x[x.length - 1]], doubling),
    up: (value) =>
      HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * place(Math.max(value, tenfold ? low : -Infinity), [low, high], tenfold),
  };
}

/**
 * @param {number[]} values
 * @param {boolean} tenfold
 * @returns {[number, number]}
 */
function endsOf(values, tenfold) {
  if (!tenfold) {
    return [0, Math.ceil(2 * Math.max(...values)) / 2];
  }
  const above = values.filter((value) => value > 0);
  return [
    10 ** Math.floor(Math.log10(Math.min(...above))),
    10 ** Math.ceil(Math.log10(Math.max(...above))),
  ];
}

/**
 * @param {Result} result
 * @param {Axes} axes
 * @param {Scale} scale
 */
function gridOf({ x, facts }, { tenfold }, { across, up, ends }) {
  const marks = tenfold ? tens(ends) : evenly(ends[1]);
  const step = Math.ceil(x.length / MOST_TICKS);
  const chance =
    facts.chance === undefined
      ? []
      : [
          draw("line", {
            x1: LEFT,
            x2: WIDTH - RIGHT,
            y1: up(facts.chance),
            y2: up(facts.chance),
            class: "ls-grid",
            "stroke-dasharray": "3 4",
          }),
        ];
  return [
    ...marks.flatMap((mark) => [
      draw("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: up(mark), y2: up(mark), class: "ls-grid" }),
      draw("text", { x: LEFT - 6, y: up(mark) + 4, "text-anchor": "end" }, written(mark)),
    ]),
    ...x
      .filter((_, at) => at % step === 0)
      .map((value) =>
        draw(
          "text",
          { x: across(value), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" },
          value >= 1024 ? `${value / 1024}k` : String(value),
        ),
      ),
    ...chance,
  ];
}

/**
 * Return marks from 0 to a multiple of a half.
 *
 * @param {number} last
 */
function evenly(last) {
  const step = last > 1 ? 0.5 : 0.25;
  return Array.from({ length: Math.round(last / step) + 1 }, (_, at) => at * step);
}

/**
 * Return the powers of ten between two of them, at most seven.
 *
 * @param {[number, number]} ends
 */
function tens([low, high]) {
  const [first, last] = [Math.round(Math.log10(low)), Math.round(Math.log10(high))];
  const step = Math.ceil((last - first) / 6);
  const marks = [];
  for (let power = last; power >= first; power -= step) {
    marks.push(10 ** power);
  }
  return marks;
}

/** @param {number} mark */
function written(mark) {
  if (mark !== 0 && (mark < 0.01 || mark >= 1e4)) {
    const power = String(Math.round(Math.log10(mark))).replace("-", "⁻");
    return `10${power.replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)])}`;
  }
  return String(Number(mark.toPrecision(2)));
}

/**
 * @param {string} name
 * @param {Line} line
 * @param {number[]} x
 * @param {Scale} scale
 */
function lineOf(name, { mean, spread }, x, { across, up }) {
  const points = mean.map((value, at) => `${across(x[at]).toFixed(1)},${up(value).toFixed(1)}`);
  const marks = mean.flatMap((value, at) => {
    const left = across(x[at]);
    const dot = draw("circle", { cx: left, cy: up(value), r: 3, class: "ls-dot" });
    const bar = draw("line", {
      x1: left,
      x2: left,
      y1: up(value - spread[at]),
      y2: up(value + spread[at]),
      class: "ls-error",
    });
    return spread[at] > 0 ? [bar, dot] : [dot];
  });
  return draw(
    "g",
    { class: `ls-series-${name}` },
    draw("polyline", { points: points.join(" "), class: "ls-series" }),
    ...marks,
  );
}
