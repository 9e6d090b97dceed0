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
  const transport = telling(httpTransport(`/scenes/${scene}/`), async () => {
    gone.textContent = await trouble(lesson, scene);
  });
  open.addEventListener("click", async () => {
    const opening = place.hidden;
    open.disabled = true;
    gone.textContent = opening ? await trouble(lesson, scene) : "";
    open.disabled = false;
    if (!lesson.ended.aborted) {
      show(opening && !gone.textContent);
    }
    if (!place.hidden) {
      view ??= mount(place, transport, { language: lesson.state.language });
    }
  });
  lesson.ended.addEventListener("abort", () => view?.destroy());
  return make("div", {}, open, gone, place);
}

/**
 * Return a transport that tells when something does not exist: a map that is open says nothing of
 * it, and has been closed, perhaps, for one of another page.
 *
 * @param {import("./transport.js").Transport} transport
 * @param {() => void} onMissing
 * @returns {import("./transport.js").Transport}
 */
function telling(transport, onMissing) {
  /**
   * @template T
   * @param {Promise<T>} answer
   */
  const heard = async (answer) => {
    try {
      return await answer;
    } catch (error) {
      if (error instanceof TransportError && error.trouble === "missing") {
        onMissing();
      }
      throw error;
    }
  };
  return {
    ...transport,
    json: (path, signal) => heard(transport.json(path, signal)),
    bytes: (path, signal) => heard(transport.bytes(path, signal)),
    tiles: (names, onTile, signal) => heard(transport.tiles(names, onTile, signal)),
  };
}

/**
 * Return why a map cannot be seen, in words; nothing if it can.
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
