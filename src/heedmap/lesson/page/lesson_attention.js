/** Self-attention, step by step, with every number between kept to be looked at. */

import { columns, product, softmax, transposed } from "./lesson_algebra.js";

/** @typedef {import("./lesson_algebra.js").Matrix} Matrix */
/** @typedef {import("./lesson_store.js").LessonState} LessonState */

/**
 * What one head makes: it has some of the columns of Q, K and V to itself.
 *
 * @typedef {object} Head
 * @property {number} first the first of its columns
 * @property {number} stop the one behind its last
 * @property {Matrix} scores Q·Kᵀ
 * @property {Matrix} scaled the scores divided by √d
 * @property {Matrix} weights
 * @property {Matrix} output
 */

/**
 * @typedef {object} Computed
 * @property {Matrix} x the frames in their order
 * @property {Matrix | null} places what is added to say where each frame stands
 * @property {Matrix} input X, with the places if they are added
 * @property {Matrix} q
 * @property {Matrix} k
 * @property {Matrix} v
 * @property {boolean[][]} visible whether a row may look at a column
 * @property {Head[]} heads
 * @property {Matrix} output the heads side by side
 * @property {number} width columns of each head, d
 */

/**
 * Return every number of the lesson.
 *
 * @param {LessonState} state
 * @returns {Computed}
 */
export function computed(state) {
  const x = state.order.map((frame) => state.frames[frame]);
  const places = state.positions ? placesOf(x.length, x[0].length) : null;
  const input = places ? x.map((row, i) => row.map((value, j) => value + places[i][j])) : x;
  const [q, k, v] = [state.wq, state.wk, state.wv].map((w) => product(input, w));
  const visible = x.map((_, row) =>
    state.order.map((frame, column) => state.valid[frame] && !(state.causal && column > row)),
  );
  const width = q[0].length / state.heads;
  const heads = Array.from({ length: state.heads }, (_, number) =>
    headOf(state, { q, k, v, visible }, number * width, (number + 1) * width),
  );
  const output = x.map((_, row) => heads.flatMap((head) => head.output[row]));
  return { x, places, input, q, k, v, visible, heads, output, width };
}

/**
 * @param {LessonState} state
 * @param {{q: Matrix, k: Matrix, v: Matrix, visible: boolean[][]}} given
 * @param {number} first
 * @param {number} stop
 * @returns {Head}
 */
function headOf(state, { q, k, v, visible }, first, stop) {
  const scores = product(columns(q, first, stop), transposed(columns(k, first, stop)));
  const divisor = state.scaled ? Math.sqrt(stop - first) : 1;
  const scaled = scores.map((row) => row.map((score) => score / divisor));
  const weights = scaled.map((row, i) =>
    softmax(
      row.map((score) => score / state.temperature),
      visible[i],
    ),
  );
  return { first, stop, scores, scaled, weights, output: product(weights, columns(v, first, stop)) };
}

/**
 * Return the waves that say where a frame stands: sines and cosines of its place, each pair a
 * hundred times slower than the one before.
 *
 * @param {number} frames
 * @param {number} features
 * @returns {Matrix}
 */
export function placesOf(frames, features) {
  return Array.from({ length: frames }, (_, place) =>
    Array.from({ length: features }, (_, feature) => {
      const angle = place / 10000 ** ((2 * Math.floor(feature / 2)) / features);
      return feature % 2 ? Math.cos(angle) : Math.sin(angle);
    }),
  );
}
