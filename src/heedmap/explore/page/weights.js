/** Single exact weights: from a tile that has them, else asked for. */

import { throwUnlessExpected } from "./activity.js";
import { weightInTiles } from "./map_view.js";
import { writeWeight } from "./scale.js";

/**
 * What is known of a cell: its weight, null if that is not a number; or the mean of a block around it.
 *
 * @typedef {{weight: number | null} | {block: {rows: number, columns: number, mean: number}}} Known
 */

/**
 * Return what is known of one cell; undefined if nobody can say.
 *
 * @param {import("./page.js").Page} page
 * @param {number} query
 * @param {number} key
 * @param {AbortSignal} signal
 * @returns {Promise<Known | undefined>}
 */
export async function knownOf(page, query, key, signal) {
  const shown = weightInTiles(page, query, key);
  if (shown !== null) {
    return { weight: Number.isNaN(shown) ? null : shown };
  }
  try {
    return await page.transport.json(`cells/${page.path}/${query}/${key}`, signal);
  } catch (error) {
    throwUnlessExpected(error, signal);
    if (signal.aborted) {
      throw error;
    }
    return undefined;
  }
}

/**
 * Write what is known of a cell; a mean is said to be one.
 *
 * @param {import("./words.js").Words} words
 * @param {Known | undefined} known
 */
export function writeKnown(words, known) {
  if (known && "block" in known) {
    const { rows, columns, mean } = known.block;
    return words.say("mean_of_block", { rows, columns, mean: writeWeight(mean) });
  }
  return known ? writeWeight(known.weight) : "–";
}
