/** The strongest keys of the chosen query, or the strongest queries of the chosen key, in order. */

import { data, make } from "./dom.js";
import { writeWeight } from "./scale.js";

const SHOWN = 12;

/**
 * Return the list of one side.
 *
 * @param {import("./page.js").Page} page
 * @param {"query" | "key"} which whose strongest partners are listed
 * @param {import("./strongest.js").Strongest} strongest
 */
export function rankedList(page, which, strongest) {
  const { words, store } = page;
  const list = make("ol", { class: `hm-ranked hm-ranked-${which}` });
  const sum = make("p", { class: "hm-faint" });
  const hint = make("p", { class: "hm-faint" });
  words.put(hint, which === "query" ? "hint_row" : "hint_column");
  const other = which === "query" ? "key" : "query";

  const show = () => {
    const top = strongest.last;
    list.classList.toggle("hm-stale", strongest.top !== top);
    sum.classList.toggle("hm-stale", strongest.top !== top);
    hint.hidden = page.state[which] !== null;
    // Of what is negative, as logarithms of weights are, a sum says nothing.
    const negative = page.colouring.range.low < 0 || top?.weights.some((weight) => (weight ?? 0) < 0);
    sum.hidden = top === null || negative === true;
    const focused = [...list.children].findIndex((item) => item.contains(document.activeElement));
    list.replaceChildren();
    if (!top) {
      return;
    }
    const largest = Math.max(top.weights[0] ?? 0, 0) || 1;
    top.positions.slice(0, SHOWN).forEach((position, place) => {
      list.append(make("li", {}, entryOf(position, top.weights[place], largest)));
    });
    list.children[focused]?.querySelector("button")?.focus();
    const total = { sum: writeWeight(top.sum) };
    const said = which === "query" ? "gives_in_all" : "receives_in_all";
    words.put(sum, top.exact === false ? "so_far" : said, total);
  };

  /**
   * @param {number} position
   * @param {number | null} weight
   * @param {number} largest
   */
  const entryOf = (position, weight, largest) => {
    const places = which === "query" ? page.keys : page.queries;
    const bar = make("span", { class: "hm-share", "aria-hidden": "true" });
    bar.style.width = `${Math.max(0, Math.min(1, (weight ?? 0) / largest)) * 100}%`;
    const name = data("span", places.listName(position), { class: "hm-name" });
    const entry = make("button", { type: "button" }, bar, name, data("span", writeWeight(weight)));
    entry.title = places.name(position);
    entry.setAttribute("aria-label", `${places.name(position)}: ${writeWeight(weight)}`);
    entry.setAttribute("aria-current", String(position === page.state[other]));
    entry.addEventListener("click", () => page.choose({ [other]: position }));
    return entry;
  };

  strongest.onChange(show);
  store.on([other], show);
  show();
  const title = words.put(make("h2"), which === "query" ? "strongest_keys" : "strongest_queries");
  return { element: make("section", { class: "hm-panel" }, title, hint, list, sum), show };
}
