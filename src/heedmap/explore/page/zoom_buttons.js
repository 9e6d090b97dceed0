/** The buttons on the map, or below it where that is small: nearer, farther, all of it, and marking a block. */

import { make } from "./dom.js";
import { button } from "./controls.js";

/**
 * Put the buttons onto the map.
 *
 * @param {import("./page.js").Page} page
 */
export function addZoomButtons(page) {
  const { stage, store } = page;
  const brush = button(page, "brush", "mark_block", () =>
    store.set({ brushing: !page.state.brushing }, { remembered: false }),
  );
  const update = () => {
    brush.setAttribute("aria-pressed", String(page.state.brushing));
    stage.map.classList.toggle("hm-brushing", page.state.brushing);
  };
  store.on(["brushing"], update);
  update();
  stage.element.append(
    make(
      "div",
      { class: "hm-map-buttons" },
      button(page, "plus", "zoom_in", () => stage.zoomBy(1)),
      button(page, "minus", "zoom_out", () => stage.zoomBy(-1)),
      button(page, "whole", "zoom_whole", () => stage.flyTo(null)),
      brush,
    ),
  );
}
