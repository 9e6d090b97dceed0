/** Says what is wrong, above everything else, until it is right again. */

import { data, make } from "./dom.js";
import { icon } from "./icons.js";

/** @type {Record<import("./transport.js").Trouble, import("./words.js").Word>} */
export const TROUBLE_WORDS = {
  gone: "trouble_gone",
  unauthorised: "trouble_unauthorised",
  busy: "trouble_busy",
  missing: "trouble_refused",
  changed: "media_changed",
  lost: "media_lost",
  refused: "trouble_refused",
};

/**
 * Return the banner, and the functions that tell it what went wrong.
 *
 * @param {import("./words.js").Words} words
 */
export function banner(words) {
  const text = make("span");
  const said = data("span", "");
  const close = words.name(make("button", { type: "button", class: "hm-button" }, icon("close")), "close");
  const element = make(
    "div",
    { class: "hm-banner", hidden: "" },
    make("div", { role: "alert" }, text, " ", said),
    close,
  );
  close.addEventListener("click", () => {
    element.hidden = true;
  });
  /** @type {Set<object>} */
  const waiting = new Set();
  /**
   * Tell of a failure; the function that comes back, that it is over.
   *
   * @param {import("./transport.js").TransportError} error
   */
  const tell = (error) => {
    waiting.add(error);
    words.put(text, TROUBLE_WORDS[error.trouble]);
    said.textContent = error.trouble === "refused" ? error.said : "";
    element.hidden = false;
    return () => {
      waiting.delete(error);
      // What was refused stays refused; silence ends with an answer.
      if (waiting.size === 0 && (error.trouble === "gone" || error.trouble === "busy")) {
        element.hidden = true;
      }
    };
  };
  /** Say that some tiles could not be computed. */
  const failed = () => {
    words.put(text, "trouble_tiles");
    element.hidden = false;
  };
  /** Say that page and program do not fit each other. */
  const outdated = () => {
    words.put(text, "trouble_schema");
    element.hidden = false;
  };
  return { element, tell, failed, outdated };
}
