/** Says that a picture is approximate, how far the exact one has come, and fetches it when it is. */

import { make } from "./dom.js";
import { throwUnlessExpected } from "./activity.js";

const PAUSE_MS = 400;

/**
 * Put the notice onto the map, and keep it true.
 *
 * @param {import("./page.js").Page} page
 * @param {import("./map_view.js").MapView} view
 */
export function addProgress(page, view) {
  const notice = make("div", { class: "hm-notice", role: "status", hidden: "" });
  page.stage.map.append(notice);
  let asking = false;

  const ask = async () => {
    asking = true;
    try {
      while (view.complete && !view.exact && !page.ended.aborted) {
        const asked = page.path;
        const { done, exact } = await page.transport.json(`progress/${asked}`, page.ended);
        if (asked === page.path) {
          const percent = Math.floor(Math.min(1, done) * 100);
          page.words.put(notice, "approximate", { percent });
          notice.hidden = false;
          if (exact) {
            page.loader.refresh();
            page.stage.redraw();
          }
        }
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    } catch (error) {
      throwUnlessExpected(error, page.ended);
    } finally {
      asking = false;
    }
  };
  page.stage.onDraw(() => {
    if (view.exact) {
      notice.hidden = true;
    } else if (view.complete && !asking) {
      ask();
    }
  });
}
