/** A marked block of the map: its sum, mean, largest weight and share. */

import { latest } from "./activity.js";
import { button } from "./controls.js";
import { data, make } from "./dom.js";
import { writeWeight } from "./scale.js";
import { clamp } from "./frame.js";

/** @typedef {import("./page.js").Page} Page */
/** @typedef {{sum: number | null, mean: number | null, max: number | null,
 *   max_at: [number, number], share: number | null}} Sums */

/**
 * Mark the block between two pixels of the map.
 *
 * @param {Page} page
 * @param {[number, number]} from
 * @param {[number, number]} to
 * @param {boolean} done whether the pointer was lifted
 */
export function brushBlock(page, from, to, done) {
  const { frame } = page.stage;
  const stretch = (/** @type {number} */ one, /** @type {number} */ other, /** @type {number} */ size) => {
    const first = clamp(Math.floor(Math.min(one, other)), 0, Math.max(0, size - 1));
    return /** @type {[number, number]} */ ([first, clamp(Math.ceil(Math.max(one, other)), first + 1, size)]);
  };
  const { queries, keys } = frame.layer;
  if (queries > 0 && keys > 0) {
    const block = {
      rows: stretch(frame.queryAt(from[1]), frame.queryAt(to[1]), queries),
      columns: stretch(frame.keyAt(from[0]), frame.keyAt(to[0]), keys),
    };
    page.store.set({ block, ...(done ? { brushing: false } : {}) }, { remembered: done });
  }
}

/**
 * Return the panel of the marked block; hidden while there is none.
 *
 * @param {Page} page
 */
export function blockPanel(page) {
  const { words, store } = page;
  const figures = make("dl", { class: "hm-figures" });
  const place = data("p", "", { class: "hm-faint" });
  const reason = make("p", { hidden: "" });
  const jump = make("button", { type: "button", class: "hm-small" });
  words.put(jump, "choose_largest");
  const clear = button(page, "close", "clear_block", () => store.set({ block: null }));
  const element = make(
    "section",
    { class: "hm-panel hm-block", hidden: "" },
    make("div", { class: "hm-panel-head" }, words.put(make("h2"), "block"), clear),
    place,
    figures,
    reason,
    jump,
  );
  /** @type {[number, number] | null} */
  let largestAt = null;
  jump.addEventListener("click", () => {
    if (largestAt) {
      page.choose({ query: largestAt[0], key: largestAt[1] });
    }
  });
  const ask = latest(page.activity, 120, async (signal) => {
    const { block } = page.state;
    if (!block) {
      return;
    }
    const rows = block.rows.join(":");
    const columns = block.columns.join(":");
    if (page.side > 1) {
      reason.hidden = false;
      words.put(reason, "no_sums", { side: page.side });
      return;
    }
    /** @type {Sums} */
    const sums = await page.transport.json(
      `blocks/${page.path}?rows=${rows}&columns=${columns}`,
      signal,
    );
    largestAt = sums.max_at;
    figures.replaceChildren(
      ...figure(page, "sum", writeWeight(sums.sum)),
      ...figure(page, "mean", writeWeight(sums.mean)),
      ...figure(page, "max", writeWeight(sums.max)),
      ...figure(page, "share", sums.share === null ? "NaN" : `${(sums.share * 100).toPrecision(3)} %`),
    );
    jump.hidden = false;
    page.announce(
      words.say("says_block", { sum: writeWeight(sums.sum), mean: writeWeight(sums.mean) }),
    );
  });
  const update = () => {
    const { block } = page.state;
    element.hidden = block === null;
    jump.hidden = reason.hidden = true;
    figures.replaceChildren();
    if (block) {
      const { queries, keys } = page;
      place.textContent =
        `${queries.name(block.rows[0])} … ${queries.name(block.rows[1] - 1)} × ` +
        `${keys.name(block.columns[0])} … ${keys.name(block.columns[1] - 1)}`;
    }
    ask();
  };
  store.on(["block", "layer", "head"], update);
  update();
  return { element, update };
}

/**
 * @param {Page} page
 * @param {"sum" | "mean" | "max" | "share"} word
 * @param {string} value
 */
function figure(page, word, value) {
  return [page.words.put(make("dt"), word), data("dd", value)];
}
