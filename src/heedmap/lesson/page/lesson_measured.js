/** What would happen without self-attention, or without √d: what `heedmap lesson measure` found. */

import { data, make } from "./dom.js";
import { chart } from "./lesson_chart.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */
/** @typedef {import("./lesson_context.js").Key} Key */
/** @typedef {import("./lesson_chart.js").Result} Result */

/**
 * @typedef {object} Measured
 * @property {number} seeds
 * @property {number} threads
 * @property {number} seconds
 * @property {string} torch
 * @property {Record<string, Result>} results
 */

/** @type {Record<string, import("./lesson_chart.js").Axes & {across: Key}>} */
const CHARTS = {
  recall: { doubling: true, tenfold: false, within: [0, 1], across: "across_distance" },
  steps: { doubling: true, tenfold: true, across: "across_distance" },
  reach: { doubling: true, tenfold: true, within: [1e-9, 1], across: "across_distance" },
  learning: { doubling: true, tenfold: true, across: "across_length" },
  reading: { doubling: true, tenfold: true, across: "across_length" },
  sharpness_by_width: { doubling: true, tenfold: false, within: [0, 1], across: "across_width" },
  loss: { doubling: false, tenfold: false, across: "across_batches" },
  gradient: { doubling: false, tenfold: true, across: "across_batches" },
  sharpness: { doubling: false, tenfold: false, within: [0, 1], across: "across_batches" },
};

const MOST_COLUMNS = 10;

/**
 * Return the section, or nothing where nothing was measured.
 *
 * @param {Lesson} lesson
 */
export function measuredSection(lesson) {
  const { measured } = lesson.source;
  if (!measured) {
    return [];
  }
  const { results, seeds, threads, seconds } = measured;
  const sizes = Object.values(results.recall.facts.sizes).map(
    (size) => /** @type {{parameters: number}} */ (size).parameters,
  );
  return [
    make(
      "section",
      { id: "measured" },
      lesson.text("h2", "measured"),
      lesson.text("p", "measured_says", {
        least: Math.min(...sizes),
        most: Math.max(...sizes),
        batches: results.recall.facts.batches,
      }),
      lesson.text("p", "measured_how", { seeds, threads, seconds }, { class: "ls-note" }),
      part(lesson, results, "part_far", ["recall", "reach", "steps"]),
      part(lesson, results, "part_pace", ["learning", "reading"]),
      part(lesson, results, "part_scale", ["sharpness_by_width", "loss", "gradient", "sharpness"]),
    ),
  ];
}

/**
 * @param {Lesson} lesson
 * @param {Record<string, Result>} results
 * @param {Key} key
 * @param {string[]} names
 */
function part(lesson, results, key, names) {
  return make(
    "div",
    { class: "ls-example" },
    lesson.text("h3", key),
    lesson.text("p", /** @type {Key} */ (`${key}_says`)),
    make(
      "div",
      { class: "ls-charts" },
      ...names.map((name) =>
        make(
          "div",
          { "data-chart": name },
          chart(
            lesson,
            results[name],
            { title: /** @type {Key} */ (`chart_${name}`), across: CHARTS[name].across },
            CHARTS[name],
          ),
          numbers(lesson, results[name]),
        ),
      ),
    ),
  );
}

/**
 * Return the numbers of a chart, to be unfolded.
 *
 * @param {Lesson} lesson
 * @param {Result} result
 */
function numbers(lesson, { x, series }) {
  const step = Math.ceil(x.length / MOST_COLUMNS);
  const chosen = x.map((_, at) => at).filter((at) => at % step === 0);
  const table = make(
    "table",
    { class: "ls-figures-table" },
    make("tr", {}, make("td"), ...chosen.map((at) => make("th", { scope: "col" }, String(x[at])))),
    ...Object.entries(series).map(([name, { mean, spread }]) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, lesson.say(/** @type {Key} */ (`series_${name}`))),
        ...chosen.map((at) => data("td", withSpread(mean[at], spread[at]))),
      ),
    ),
  );
  return make(
    "details",
    {},
    lesson.text("summary", "numbers"),
    make("div", { class: "ls-scroll" }, table),
  );
}

/**
 * @param {number} mean
 * @param {number} spread
 */
function withSpread(mean, spread) {
  const short = (/** @type {number} */ value) => String(Number(value.toPrecision(3))).replace("-", "−");
  return spread ? `${short(mean)} ± ${String(Number(spread.toPrecision(2))).replace("-", "−")}` : short(mean);
}
