/** The live map of an example, opened beneath it. */

import { make } from "./dom.js";
import { mount } from "./main.js";
import { httpTransport } from "./transport_http.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */

/**
 * Return a button that opens the map of all layers and heads.
 *
 * @param {Lesson} lesson
 * @param {number} scene the number of the map
 */
export function wholeMap(lesson, scene) {
  const open = lesson.text("button", "whole_map", {}, { type: "button", class: "hm-small" });
  const place = make("div", { class: "ls-whole-map" });
  place.hidden = true;
  /** @type {import("./main.js").HeedmapView | null} */
  let view = null;
  open.addEventListener("click", () => {
    place.hidden = !place.hidden;
    open.setAttribute("aria-expanded", String(!place.hidden));
    view ??= mount(place, httpTransport(`/scenes/${scene}/`), { language: lesson.state.language });
  });
  lesson.ended.addEventListener("abort", () => view?.destroy());
  return make("div", {}, open, place);
}
