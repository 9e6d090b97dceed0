/** Fetches the names of positions, after the first picture: there may be 100,000 of them. */

import { throwUnlessExpected } from "./activity.js";

/**
 * Learn the names of the axes on show, now and when another layer is shown.
 *
 * @param {import("./page.js").Page} page
 * @param {import("./map_view.js").MapView} view
 * @param {() => void} onNames called when names have come
 */
export function learnNames(page, view, onNames) {
  /** @type {Set<number>} */
  const asked = new Set();
  const learn = () => {
    const { query_axis: queryAxis, key_axis: keyAxis } = page.layer;
    for (const number of new Set([queryAxis, keyAxis])) {
      if (!asked.has(number)) {
        asked.add(number);
        fetchOne(page, number, onNames);
      }
    }
  };
  let started = false;
  page.stage.onDraw(() => {
    if (view.complete && !started) {
      started = true;
      learn();
      page.store.on(["layer"], learn);
    }
  });
}

/**
 * @param {import("./page.js").Page} page
 * @param {number} number
 * @param {() => void} onNames
 */
async function fetchOne(page, number, onNames) {
  try {
    page.places[number].learn(await page.transport.json(`axes/${number}`));
    onNames();
  } catch (error) {
    throwUnlessExpected(error, page.ended);
  }
}
