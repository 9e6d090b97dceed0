/** How one number came about: the vectors that it is made of, and what was done with them. */

import { columnOf, powersOf } from "./lesson_algebra.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */
/** @typedef {import("./lesson_context.js").Key} Key */
/** @typedef {import("./lesson_context.js").Values} Values */
/** @typedef {import("./lesson_store.js").Cell} Cell */

/**
 * One line of numbers; null where there is none, because the position is hidden.
 *
 * @typedef {object} Line
 * @property {string} label a formula
 * @property {string} family
 * @property {(number | null)[]} values
 */

/**
 * @typedef {object} Explanation
 * @property {string} name the number, as a formula
 * @property {number} value
 * @property {{key: Key, values: Values}} words
 * @property {string[]} heads what the columns of the lines are
 * @property {Line[]} lines
 * @property {string} how what is done with the last line, as a formula
 */

const LETTERS = { wq: "Q", wk: "K", wv: "V" };

/**
 * Return how a number came about.
 *
 * @param {Lesson} lesson
 * @param {Cell} cell
 * @returns {Explanation}
 */
export function explain(lesson, cell) {
  switch (cell.matrix) {
    case "x":
      return ofFeature(lesson, cell);
    case "wq":
    case "wk":
    case "wv":
      return ofParameter(lesson, cell, cell.matrix);
    case "input":
      return lesson.state.positions ? ofInput(lesson, cell) : ofFeature(lesson, cell);
    case "q":
    case "k":
    case "v":
      return ofProjection(lesson, cell, cell.matrix);
    case "scores":
      return ofScore(lesson, cell);
    case "scaled":
      return ofScaled(lesson, cell);
    case "weights":
      return ofWeight(lesson, cell);
    case "output":
      return ofOutput(lesson, cell);
  }
}

/**
 * @param {number[]} one
 * @param {number[]} other
 */
function products(one, other) {
  return one.map((value, place) => value * other[place]);
}

/** @param {{length: number}} line */
function numbered({ length }) {
  return Array.from({ length }, (_, place) => String(place + 1));
}

/**
 * The number of the frame that stands in a row.
 *
 * @param {Lesson} lesson
 * @param {number} row
 */
function frameIn(lesson, row) {
  return lesson.state.order[row] + 1;
}

/** @type {(lesson: Lesson, cell: Cell) => Explanation} */
function ofFeature(lesson, { row, column }) {
  const value = lesson.numbers.x[row][column];
  const frame = frameIn(lesson, row);
  return {
    name: `X_{${frame},${column + 1}}`,
    value,
    words: {
      key: "why_x",
      values: { frame, tone: column + 1, times: (2 ** value).toFixed(2), value: value.toFixed(2) },
    },
    heads: [],
    lines: [],
    how: "",
  };
}

/** @type {(lesson: Lesson, cell: Cell, name: "wq" | "wk" | "wv") => Explanation} */
function ofParameter(lesson, { row, column }, name) {
  return {
    name: `W_{${LETTERS[name]} ${row + 1},${column + 1}}`,
    value: lesson.state[name][row][column],
    words: {
      key: "why_w",
      values: { feature: row + 1, dimension: column + 1, letter: LETTERS[name] },
    },
    heads: [],
    lines: [],
    how: "",
  };
}

/** @type {(lesson: Lesson, cell: Cell) => Explanation} */
function ofInput(lesson, { row, column }) {
  const { x, places, input } = lesson.numbers;
  const place = places ? places[row][column] : 0;
  const frame = frameIn(lesson, row);
  return {
    name: `(X+P)_{${frame},${column + 1}}`,
    value: input[row][column],
    words: { key: "why_input", values: { frame, place: row + 1 } },
    heads: ["X", "P"],
    lines: [{ label: "", family: "input", values: [x[row][column], place] }],
    how: "Σ",
  };
}

/** @type {(lesson: Lesson, cell: Cell, name: "q" | "k" | "v") => Explanation} */
function ofProjection(lesson, { row, column }, name) {
  const { numbers, state } = lesson;
  const letter = name.toUpperCase();
  const family = { q: "query", k: "key", v: "value" }[name];
  const frame = frameIn(lesson, row);
  const from = numbers.input[row];
  const weights = columnOf(state[/** @type {"wq"} */ (`w${name}`)], column);
  return {
    name: `${letter}_{${frame},${column + 1}}`,
    value: numbers[name][row][column],
    words: { key: /** @type {Key} */ (`why_${name}`), values: { frame, dimension: column + 1 } },
    heads: numbered(from),
    lines: [
      { label: `${state.positions ? "(X+P)" : "X"}_${frame}`, family: "input", values: from },
      { label: `W_{${letter} ·,${column + 1}}`, family, values: weights },
      { label: "×", family: "", values: products(from, weights) },
    ],
    how: "Σ",
  };
}

/** @type {(lesson: Lesson, cell: Cell) => Explanation} */
function ofScore(lesson, { row, column }) {
  const { q, k, heads } = lesson.numbers;
  const { first, stop, scores } = heads[lesson.state.head];
  const [asks, answers] = [frameIn(lesson, row), frameIn(lesson, column)];
  const [query, key] = [q[row].slice(first, stop), k[column].slice(first, stop)];
  return {
    name: `(QK^⊤)_{${asks},${answers}}`,
    value: scores[row][column],
    words: { key: "why_score", values: { asks, answers } },
    heads: query.map((_, place) => String(first + place + 1)),
    lines: [
      { label: `Q_${asks}`, family: "query", values: query },
      { label: `K_${answers}`, family: "key", values: key },
      { label: "×", family: "", values: products(query, key) },
    ],
    how: "Σ",
  };
}

/** @type {(lesson: Lesson, cell: Cell) => Explanation} */
function ofScaled(lesson, { row, column }) {
  const { heads, width } = lesson.numbers;
  const { scores, scaled } = heads[lesson.state.head];
  const [asks, answers] = [frameIn(lesson, row), frameIn(lesson, column)];
  const isScaled = lesson.state.scaled;
  return {
    name: `S_{${asks},${answers}}`,
    value: scaled[row][column],
    words: {
      key: isScaled ? "why_scaled" : "why_not_scaled",
      values: { width, root: Math.sqrt(width).toFixed(4) },
    },
    heads: [isScaled ? "QKᵀ ÷" : "QKᵀ", ...(isScaled ? [`√${width}`] : [])],
    lines: [
      {
        label: "",
        family: "score",
        values: [scores[row][column], ...(isScaled ? [Math.sqrt(width)] : [])],
      },
    ],
    how: "",
  };
}

/** @type {(lesson: Lesson, cell: Cell) => Explanation} */
function ofWeight(lesson, { row, column }) {
  const { state, numbers } = lesson;
  const { scaled, weights } = numbers.heads[state.head];
  const visible = numbers.visible[row];
  const [asks, answers] = [frameIn(lesson, row), frameIn(lesson, column)];
  const scores = scaled[row].map((score) => score / state.temperature);
  const { powers, largest } = powersOf(scores, visible);
  const seen = (/** @type {number[]} */ line) =>
    line.map((value, place) => (visible[place] ? value : null));
  const score = state.temperature === 1 ? "S" : "S/τ";
  /** @type {Key} */
  let key = "why_weight";
  if (!visible.some(Boolean)) {
    key = "why_nothing";
  } else if (!visible[column]) {
    key = state.valid[state.order[column]] ? "why_later" : "why_padding";
  }
  return {
    name: `A_{${asks},${answers}}`,
    value: weights[row][column],
    words: { key, values: { asks, answers } },
    heads: weights[row].map((_, place) => String(frameIn(lesson, place))),
    lines: [
      { label: score, family: "score", values: seen(scores) },
      {
        label: Number.isFinite(largest) ? `e^{${score} − (${largest.toFixed(2)})}`.replaceAll("-", "−") : "e",
        family: "",
        values: seen(powers),
      },
      { label: "÷ Σ", family: "weight", values: weights[row] },
    ],
    how: "",
  };
}

/** @type {(lesson: Lesson, cell: Cell) => Explanation} */
function ofOutput(lesson, { row, column }) {
  const { heads, v, output, width } = lesson.numbers;
  const { weights } = heads[Math.floor(column / width)];
  const frame = frameIn(lesson, row);
  const values = columnOf(v, column);
  return {
    name: `O_{${frame},${column + 1}}`,
    value: output[row][column],
    words: { key: "why_output", values: { frame, dimension: column + 1 } },
    heads: weights[row].map((_, place) => String(frameIn(lesson, place))),
    lines: [
      { label: `A_${frame}`, family: "weight", values: weights[row] },
      { label: `V_{·,${column + 1}}`, family: "value", values },
      { label: "×", family: "", values: products(weights[row], values) },
    ],
    how: "Σ",
  };
}
