/** What the keyboard does, in one table that the help shows too. */

import { COLOUR_MAPS } from "./colours.js";
import { stepHead } from "./controls.js";

/** @typedef {import("./page.js").Page} Page */
/** @typedef {{keys: string[], shown: string, word: import("./words.js").Word,
 *   act: (key: string) => void}} Shortcut `keys` as events name them, Shift before a “+” */

const PAN_PIXELS = 80;

/** @type {Record<string, [number, number]>} */
const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * Return what each key does.
 *
 * @param {Page} page
 * @param {{help: () => void, player: () => import("./player.js").Player | null}} parts
 * @returns {Shortcut[]}
 */
export function shortcuts(page, { help, player }) {
  const { stage, store } = page;
  const arrows = Object.keys(WAYS);
  const following = (/** @type {string[]} */ values, /** @type {string} */ value) =>
    values[(values.indexOf(value) + 1) % values.length];
  return [
    {
      keys: arrows,
      shown: "← ↑ ↓ →",
      word: "key_pan",
      act: (key) => {
        const [left, top] = WAYS[key];
        stage.flyTo(stage.frame.movedBy(-left * PAN_PIXELS, -top * PAN_PIXELS));
      },
    },
    {
      keys: arrows.map((arrow) => `Shift+${arrow}`),
      shown: "Shift + ← ↑ ↓ →",
      word: "key_choose",
      act: (key) => moveChoice(page, WAYS[key.replace("Shift+", "")]),
    },
    { keys: ["+", "Shift++", "="], shown: "+", word: "zoom_in", act: () => stage.zoomBy(1) },
    { keys: ["-", "Shift+_"], shown: "−", word: "zoom_out", act: () => stage.zoomBy(-1) },
    { keys: ["0"], shown: "0", word: "zoom_whole", act: () => stage.flyTo(null) },
    { keys: ["]", "n"], shown: "] n", word: "next_head", act: () => stepHead(page, 1) },
    { keys: ["[", "Shift+N"], shown: "[ N", word: "previous_head", act: () => stepHead(page, -1) },
    {
      keys: ["s"],
      shown: "s",
      word: "key_statistic",
      act: () =>
        store.set({
          statistic: /** @type {import("./store.js").Statistic} */ (
            following(["mean", "max", "sum"], page.state.statistic)
          ),
        }),
    },
    {
      keys: ["c"],
      shown: "c",
      word: "key_colours",
      act: () => store.set({ colours: following(COLOUR_MAPS, page.state.colours) }),
    },
    {
      keys: ["l"],
      shown: "l",
      word: "key_scale",
      act: () => store.set({ scale: page.state.scale === "log" ? "linear" : "log" }),
    },
    { keys: ["b"], shown: "b", word: "key_block", act: () => markByKeys(page) },
    { keys: ["p"], shown: "p", word: "key_play", act: () => player()?.toggle() },
    { keys: ["h"], shown: "h", word: "hear_query", act: () => player()?.play("query") },
    { keys: ["k"], shown: "k", word: "hear_key", act: () => player()?.play("key") },
    {
      keys: ["Escape"],
      shown: "Esc",
      word: "key_clear",
      act: () => {
        if (page.state.block || page.state.brushing) {
          store.set({ block: null, brushing: false });
        } else {
          page.choose({ query: null, key: null });
        }
      },
    },
    { keys: ["?", "Shift+?"], shown: "?", word: "help", act: help },
  ];
}

/**
 * Listen to the keyboard.
 *
 * @param {EventTarget} target
 * @param {Shortcut[]} table
 * @param {AbortSignal} ended
 */
export function listenToKeys(target, table, ended) {
  const acts = new Map(table.flatMap(({ keys, act }) => keys.map((key) => [key, act])));
  target.addEventListener(
    "keydown",
    (happened) => {
      const event = /** @type {KeyboardEvent} */ (happened);
      const key = event.shiftKey ? `Shift+${event.key}` : event.key;
      const act = acts.get(key);
      if (act && !event.defaultPrevented && !event.ctrlKey && !event.metaKey && !event.altKey) {
        if (!needsKeys(event.target, event.key)) {
          event.preventDefault();
          act(key);
        }
      }
    },
    { signal: ended },
  );
}

/**
 * Say whether an element has a use of its own for a key.
 *
 * @param {EventTarget | null} target
 * @param {string} key
 */
function needsKeys(target, key) {
  if (!(target instanceof Element)) {
    return false;
  }
  const typing = "input:not([type=checkbox]), select, textarea, dialog, [contenteditable]";
  const scrolls = "audio, video, .hm-arcs, .hm-reader, .hm-side";
  return target.closest(typing) !== null || (key.startsWith("Arrow") && target.matches(scrolls));
}

/**
 * Choose the cell beside the chosen one; with none chosen, the one in the middle.
 *
 * @param {Page} page
 * @param {[number, number]} way
 */
function moveChoice(page, [across, down]) {
  const { frame } = page.stage;
  const query = page.state.query ?? Math.floor(frame.y) - down;
  const key = page.state.key ?? Math.floor(frame.x) - across;
  page.choose({ query: query + down, key: key + across }, { remembered: false });
  const { block, brushing } = page.state;
  if (block && brushing) {
    const corner = page.state;
    stretchTo(page, block, corner.query ?? 0, corner.key ?? 0);
  }
}

/** @type {WeakMap<Page, [number, number]>} where marking by keys began */
const corners = new WeakMap();

/**
 * Begin a block at the chosen cell, or end it there.
 *
 * @param {Page} page
 */
function markByKeys(page) {
  const { query, key, brushing } = page.state;
  if (brushing) {
    page.store.set({ brushing: false }, { remembered: false });
  } else if (query !== null && key !== null) {
    corners.set(page, [query, key]);
    page.store.set({
      brushing: true,
      block: { rows: [query, query + 1], columns: [key, key + 1] },
    });
  } else {
    page.store.set({ brushing: true }, { remembered: false });
  }
}

/**
 * @param {Page} page
 * @param {import("./store.js").Block} block
 * @param {number} query
 * @param {number} key
 */
function stretchTo(page, block, query, key) {
  const [top, left] = corners.get(page) ?? [block.rows[0], block.columns[0]];
  page.store.set(
    {
      block: {
        rows: [Math.min(top, query), Math.max(top, query) + 1],
        columns: [Math.min(left, key), Math.max(left, key) + 1],
      },
    },
    { remembered: false },
  );
}
