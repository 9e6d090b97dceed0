/** The few operations on matrices that attention is made of, in double precision. */

/** @typedef {number[][]} Matrix rows of numbers */

/**
 * Return the sum of the products of two vectors.
 *
 * @param {number[]} one
 * @param {number[]} other
 */
export function dot(one, other) {
  return one.reduce((sum, value, place) => sum + value * other[place], 0);
}

/**
 * @param {Matrix} matrix
 * @param {number} column
 */
export function columnOf(matrix, column) {
  return matrix.map((row) => row[column]);
}

/**
 * @param {Matrix} matrix
 * @returns {Matrix}
 */
export function transposed(matrix) {
  return matrix[0].map((_, column) => columnOf(matrix, column));
}

/**
 * @param {Matrix} left
 * @param {Matrix} right
 * @returns {Matrix}
 */
export function product(left, right) {
  const columns = transposed(right);
  return left.map((row) => columns.map((column) => dot(row, column)));
}

/**
 * Return some columns of a matrix.
 *
 * @param {Matrix} matrix
 * @param {number} first
 * @param {number} stop
 * @returns {Matrix}
 */
export function columns(matrix, first, stop) {
  return matrix.map((row) => row.slice(first, stop));
}

/**
 * Return the weights of one row: e to the power of each score, divided by their sum. What is not
 * visible has weight 0; where nothing is, all weights are 0.
 *
 * @param {number[]} scores
 * @param {boolean[]} visible
 */
export function softmax(scores, visible) {
  const { powers, sum } = powersOf(scores, visible);
  return powers.map((power) => (sum > 0 ? power / sum : 0));
}

/**
 * Return e to the power of each score less the largest one, and their sum. What is taken off all
 * scores alike takes itself out of the quotient, and large scores stay numbers.
 *
 * @param {number[]} scores
 * @param {boolean[]} visible
 */
export function powersOf(scores, visible) {
  const largest = Math.max(...scores.filter((_, place) => visible[place]));
  const powers = scores.map((score, place) => (visible[place] ? Math.exp(score - largest) : 0));
  return { largest, powers, sum: powers.reduce((sum, power) => sum + power, 0) };
}

/**
 * Return the largest difference between two matrices of one shape.
 *
 * @param {Matrix} one
 * @param {Matrix} other
 */
export function difference(one, other) {
  return Math.max(
    ...one.map((row, i) => Math.max(...row.map((value, j) => Math.abs(value - other[i][j])))),
  );
}
