/** The bar at the lower edge: how the number under the pointer, or in focus, came about. */

import { data, make } from "./dom.js";
import { explain } from "./lesson_arithmetic.js";
import { formula, rich, shown } from "./lesson_format.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */

const ROOM_PIXELS = 12;

/** In a narrow window, all terms of a sum are worth more than their last digits. */
const NARROW = "(max-width: 560px)";

/**
 * Return the bar.
 *
 * @param {Lesson} lesson
 */
export function arithmeticBar(lesson) {
  const body = make("div", { class: "ls-bar-body" });
  const close = lesson.text(
    "button",
    "close",
    {},
    { type: "button", class: "hm-small", title: "Esc", "aria-keyshortcuts": "Escape" },
  );
  const element = make(
    "aside",
    { class: "ls-bar", "aria-live": "polite", "aria-label": lesson.say("bar_name") },
    body,
    close,
  );
  const update = () => {
    const { cell } = lesson.state;
    element.hidden = cell === null;
    if (cell) {
      body.replaceChildren(...content(lesson, cell));
    }
    // What is walked to with keys must not come to lie behind this bar.
    document.documentElement.style.scrollPaddingBottom = `${element.offsetHeight + ROOM_PIXELS}px`;
  };
  close.addEventListener("click", () => lesson.store.set({ cell: null }));
  lesson.live(update);
  lesson.store.on(["cell", "head"], update, lesson.ended);
  return element;
}

/**
 * @param {Lesson} lesson
 * @param {import("./lesson_store.js").Cell} cell
 */
function content(lesson, cell) {
  const { name, value, words, heads, lines, how } = explain(lesson, cell);
  const result = data("output", shown(value, 6), {
    class: "ls-result",
    "data-result": String(value),
  });
  const head = make("p", { class: "ls-bar-head" }, formula(name), " = ", result);
  const why = make("p", { class: "ls-bar-why" }, ...rich(lesson.say(words.key, words.values)));
  if (lines.length === 0) {
    return [head, why];
  }
  const digits = window.matchMedia(NARROW).matches ? 2 : 4;
  const table = make(
    "table",
    { class: "ls-terms" },
    make("tr", {}, make("td"), ...heads.map((text) => make("th", { scope: "col" }, text))),
    ...lines.map((line) => lineOf(line, line === lines.at(-1) && how === "Σ", value, digits)),
  );
  return [head, why, make("div", { class: "ls-bar-terms" }, table)];
}

/**
 * @param {import("./lesson_arithmetic.js").Line} line
 * @param {boolean} summed whether the sum of the line is the number
 * @param {number} value
 * @param {number} digits
 */
function lineOf({ label, family, values }, summed, value, digits) {
  return make(
    "tr",
    { class: family ? `ls-of-${family}` : "" },
    make("th", { scope: "row" }, formula(label)),
    ...values.map((one) => data("td", one === null ? "×" : shown(one, digits))),
    ...(summed ? [make("td", { class: "ls-summed" }, `Σ = ${shown(value, digits)}`)] : []),
  );
}
