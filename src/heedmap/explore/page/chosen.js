/** What is chosen: the query, the key, and the exact weight between them. */

import { latest } from "./activity.js";
import { button } from "./controls.js";
import { data, make } from "./dom.js";
import { knownOf, writeKnown } from "./weights.js";

/** @typedef {import("./page.js").Page} Page */

/**
 * Return the panel; numbers can be typed into it, so that every cell is reached without a pointer.
 *
 * @param {Page} page
 */
export function chosenPanel(page) {
  const { words, store } = page;
  const weight = data("output", "–", { class: "hm-weight" });
  const query = side(page, "query");
  const key = side(page, "key");
  const clear = button(page, "close", "clear_choice", () => page.choose({ query: null, key: null }));
  const tell = latest(page.activity, 60, async (signal) => {
    const { query: chosenQuery, key: chosenKey } = page.state;
    if (chosenQuery === null || chosenKey === null) {
      return;
    }
    const known = await knownOf(page, chosenQuery, chosenKey, signal);
    const single = known === undefined || "weight" in known;
    weight.textContent = writeKnown(words, known);
    weight.classList.toggle("hm-of-block", !single);
    page.announce(
      words.say(single ? "says_weight" : "says_mean", {
        query: page.queries.name(chosenQuery),
        key: page.keys.name(chosenKey),
        weight: weight.textContent,
      }),
    );
  });
  const update = () => {
    query.update();
    key.update();
    clear.hidden = page.state.query === null && page.state.key === null;
    const both = page.state.query !== null && page.state.key !== null;
    weight.textContent = both ? "…" : "–";
    tell();
  };
  store.on(["query", "key", "layer", "head", "language"], update);
  update();
  const element = make(
    "section",
    { class: "hm-panel hm-chosen" },
    make("div", { class: "hm-panel-head" }, words.put(make("h2"), "chosen"), clear),
    query.element,
    key.element,
    make("div", { class: "hm-row" }, words.put(make("span", { class: "hm-faint" }), "weight"), weight),
  );
  return { element, update };
}

/**
 * @param {Page} page
 * @param {"query" | "key"} which
 */
function side(page, which) {
  const number = make("input", { type: "number", min: "0", step: "1", class: "hm-number" });
  const name = data("span", "", { class: `hm-name hm-of-${which}` });
  number.addEventListener("change", () => {
    page.choose({ [which]: number.value === "" ? null : Number(number.value) });
  });
  const element = make(
    "div",
    { class: "hm-row" },
    make("label", { class: "hm-label" }, page.words.put(make("span", { class: "hm-faint" }), which), number),
    name,
  );
  return {
    element,
    update: () => {
      const position = page.state[which];
      const places = which === "query" ? page.queries : page.keys;
      number.max = String(places.size - 1);
      number.value = position === null ? "" : String(position);
      name.textContent = position === null ? "" : places.name(position);
    },
  };
}
