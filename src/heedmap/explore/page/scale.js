/**
 * Which part of the colours stands for which weight, and how weights are written.
 *
 * A few weights of a big map are larger than all others by orders of magnitude, and a scale that
 * ends at the largest shows nothing else. So, of what is visible and larger than 0, a linear scale
 * ends at the 99.5th percentile, or at twice the mean where that is more, but never beyond the
 * largest; a logarithmic one reaches from the largest down to the smallest, over four powers of ten
 * at most. The pictures that the library draws keep the same rule. Where there are negative values,
 * which no weights are but what was made of them, the scale is linear from the least to the largest.
 */

/**
 * @typedef {object} Range
 * @property {number} low what the first colour stands for
 * @property {number} high what the last colour stands for
 * @property {"linear" | "log"} scale
 * @property {boolean} clipped whether something is larger than the last colour says
 */

const KEPT_SHARE = 0.995;
const LOG_RANGE = 1e-4;

/**
 * Return the range for values; they are put into order in place.
 *
 * @param {Float32Array} values
 * @param {"linear" | "log"} scale
 * @returns {Range}
 */
export function rangeOf(values, scale) {
  values.sort(); // what is not a number comes last
  let end = values.length;
  while (end > 0 && !Number.isFinite(values[end - 1])) {
    end -= 1;
  }
  let start = 0;
  while (start < end && values[start] === -Infinity) {
    start += 1;
  }
  if (start < end && values[start] < 0) {
    return { low: values[start], high: values[end - 1], scale: "linear", clipped: false };
  }
  while (start < end && values[start] <= 0) {
    start += 1;
  }
  if (start === end) {
    return { low: scale === "log" ? LOG_RANGE : 0, high: 1, scale, clipped: false };
  }
  const largest = values[end - 1];
  if (scale === "log") {
    const low = Math.max(values[start], largest * LOG_RANGE);
    return { low: Math.min(low, largest / 10), high: largest, scale, clipped: false };
  }
  let sum = 0;
  for (let place = start; place < end; place += 1) {
    sum += values[place];
  }
  const kept = values[end - 1 - Math.floor((1 - KEPT_SHARE) * (end - start - 1))];
  const high = Math.min(largest, Math.max(kept, (2 * sum) / (end - start)));
  return { low: 0, high, scale, clipped: largest > high };
}

/**
 * Return the range between fixed ends: a logarithmic one does not begin at 0, and one that begins
 * below 0 is linear.
 *
 * @param {[number, number]} limits
 * @param {"linear" | "log"} scale
 * @param {number} largest of what is visible
 * @returns {Range}
 */
export function fixedRange([low, high], scale, largest) {
  const clipped = largest > high;
  if (scale === "log" && low === 0) {
    return { low: high * LOG_RANGE, high, scale, clipped };
  }
  return { low, high, scale: low < 0 ? "linear" : scale, clipped };
}

/**
 * Return the function that says where a weight lies on the scale, from 0 to 1.
 *
 * @param {Pick<Range, "low" | "high" | "scale">} range
 * @returns {(value: number) => number}
 */
export function placeOn({ low, high, scale }) {
  if (scale === "log") {
    const first = Math.log(low);
    const factor = 1 / (Math.log(high) - first || 1);
    return (value) => bounded((Math.log(value) - first) * factor);
  }
  const factor = 1 / (high - low || 1);
  return (value) => bounded((value - low) * factor);
}

/**
 * Return weights to be written beside the colours, from the least to the most.
 *
 * @param {Range} range
 * @param {number} most
 */
export function scaleTicks({ low, high, scale }, most) {
  if (scale === "log") {
    const ticks = [];
    for (let power = Math.ceil(Math.log10(low) - 1e-9); 10 ** power <= high * 1.000001; power += 1) {
      ticks.push(10 ** power);
    }
    return ticks.length > 1 ? ticks : [low, high];
  }
  const step = niceStep((high - low) / most);
  const ticks = [];
  for (let count = Math.ceil(low / step - 1e-9); count * step <= high + 1e-6 * step; count += 1) {
    ticks.push(count * step);
  }
  return ticks;
}

/**
 * Return the smallest of 1, 2, 5, 10, 20, 50, … (and 0.5, 0.2, …) that is at least `least`.
 *
 * @param {number} least
 */
export function niceStep(least) {
  if (!(least > 0) || !Number.isFinite(least)) {
    return 1;
  }
  const power = 10 ** Math.floor(Math.log10(least));
  return (
    [1, 2, 5].map((factor) => factor * power).find((step) => step >= least * 0.999999) ?? 10 * power
  );
}

/**
 * Write a weight with three digits that say something.
 *
 * @param {number | null} value null: not a number
 */
export function writeWeight(value) {
  if (value === null || Number.isNaN(value)) {
    return "NaN";
  }
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e5)) {
    return value.toExponential(2).replace(/\.?0+e/, "e").replaceAll("-", "−").replace("e+", "e");
  }
  return String(Number(value.toPrecision(size >= 1000 ? 6 : 3))).replace("-", "−");
}

/** @param {number} part */
function bounded(part) {
  return part > 0 ? (part < 1 ? part : 1) : 0;
}
