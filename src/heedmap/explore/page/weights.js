/** Single exact weights: from a tile that has them, else asked for. */

import { throwUnlessExpected } from "./activity.js";
import { weightInTiles } from "./map_view.js";

/**
 * Return one weight; null if it is not a number, undefined if nobody can say.
 *
 * @param {import("./page.js").Page} page
 * @param {number} query
 * @param {number} key
 * @param {AbortSignal} signal
 * @returns {Promise<number | null | undefined>}
 */
export async function exactWeight(page, query, key, signal) {
  const shown = weightInTiles(page, query, key);
  if (shown !== null) {
    return Number.isNaN(shown) ? null : shown;
  }
  try {
    const answer = await page.transport.json(`cells/${page.path}/${query}/${key}`, signal);
    return answer.weight;
  } catch (error) {
    throwUnlessExpected(error, signal);
    if (signal.aborted) {
      throw error;
    }
    return undefined;
  }
}
