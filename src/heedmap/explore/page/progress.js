/**
 * Says that a picture is approximate, how far the exact one has come, and fetches it when it is; or
 * that there is none as fine as the screen could show.
 */

import { make } from "./dom.js";
import { throwUnlessExpected } from "./activity.js";
import { pixelRatio } from "./surface.js";

const PAUSE_MS = 400;

/** How large a block may be on the screen before it must be said that it is one. */
const COARSE_PIXELS = 2;

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
      while (page.side === 1 && view.complete && !view.exact && !page.ended.aborted) {
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
  page.stage.onDraw((frame) => {
    const cell = Math.max(frame.across, frame.down) * pixelRatio();
    if (page.side > 1 && page.side * cell > COARSE_PIXELS) {
      page.words.put(notice, "coarse", { side: page.side });
      notice.hidden = false;
    } else if (view.exact || page.side > 1) {
      notice.hidden = true;
    } else if (view.complete && !asking) {
      ask();
    }
  });
}
