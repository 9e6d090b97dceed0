/** The live map of an example, opened beneath it. */

import { make } from "./dom.js";
import { mount } from "./main.js";
import { TransportError } from "./transport.js";
import { ask, httpTransport } from "./transport_http.js";

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
  const gone = make("p", { class: "ls-busy ls-trouble", role: "status" });
  /** @type {import("./main.js").HeedmapView | null} */
  let view = null;
  const show = (/** @type {boolean} */ shown) => {
    place.hidden = !shown;
    open.setAttribute("aria-expanded", String(shown));
  };
  open.addEventListener("click", async () => {
    const opening = place.hidden;
    open.disabled = true;
    gone.textContent = opening ? await trouble(lesson, scene) : "";
    open.disabled = false;
    if (!lesson.ended.aborted) {
      show(opening && !gone.textContent);
    }
    if (!place.hidden) {
      view ??= mount(place, httpTransport(`/scenes/${scene}/`), { language: lesson.state.language });
    }
  });
  lesson.ended.addEventListener("abort", () => view?.destroy());
  return make("div", {}, open, gone, place);
}

/**
 * Return why a map cannot be opened, in words; nothing if it can.
 *
 * @param {Lesson} lesson
 * @param {number} scene
 */
async function trouble(lesson, scene) {
  try {
    await ask(`/scenes/${scene}/description`, {});
    return "";
  } catch (error) {
    if (!(error instanceof TransportError)) {
      throw error;
    }
    // Of any other trouble the map itself tells.
    /** @type {Partial<Record<string, import("./lesson_context.js").Key>>} */
    const words = { gone: "no_answer", missing: "map_gone" };
    const key = words[error.trouble];
    return key ? lesson.say(key) : "";
  }
}
