/** Every head as a small picture, layers downwards; each is asked for when it comes into sight. */

import { coloursOf } from "./colours.js";
import { data, make } from "./dom.js";
import { readTile } from "./protocol.js";
import { paintOf, paintTile } from "./tile_painter.js";
import { throwUnlessExpected } from "./activity.js";

/** @typedef {import("./page.js").Page} Page */
/** @typedef {{layer: number, head: number, button: HTMLButtonElement, picture: HTMLCanvasElement,
 *   caption: HTMLElement, tile: import("./protocol.js").Tile | null}} Entry */

const AT_ONCE = 3;

/** How many pixels of zoom 0 a side of a thumbnail's pixel has. */
const THUMBNAIL_SIDE = 8;

const FEWEST_PIXELS = 16;

/**
 * Return the atlas.
 *
 * @param {Page} page
 */
export function atlas(page) {
  const { description, store, words } = page;
  const grid = make("div", { class: "hm-atlas" });
  /** @type {Entry[]} */
  const entries = [];
  /** @type {(() => void)[]} */
  const titles = [];
  description.layers.forEach((layer, number) => {
    const row = make("div", { class: "hm-atlas-row" });
    layer.heads.forEach((_, head) => {
      const entry = entryOf(page, number, head);
      entries.push(entry);
      row.append(entry.button);
    });
    const title = data("div", "", { class: "hm-atlas-layer hm-faint" });
    titles.push(() => (title.textContent = `${number} · ${words.given(layer.name)}`));
    grid.append(title, row);
  });
  fetchInSight(page, grid, entries);

  const mark = () => {
    titles.forEach((entitle) => entitle());
    for (const { layer, head, button, caption } of entries) {
      const kind = words.headKind(description.layers[layer].labels[head] ?? "");
      const shown = layer === page.state.layer && head === page.state.head;
      button.setAttribute("aria-pressed", String(shown));
      caption.textContent = kind || description.layers[layer].heads[head];
      const name = words.say("says_head", { layer, head: description.layers[layer].heads[head] });
      button.setAttribute("aria-label", kind ? `${name}: ${kind}` : name);
      button.title = kind ? `${name}: ${kind}` : name;
    }
  };
  const repaint = () => entries.forEach((entry) => paint(page, entry));
  store.on(["layer", "head", "language"], mark);
  store.on(["colours", "theme"], repaint);
  mark();
  return {
    element: make(
      "section",
      { class: "hm-panel" },
      words.put(make("h2"), "all_heads"),
      grid,
    ),
    repaint,
  };
}

/**
 * @param {Page} page
 * @param {number} layer
 * @param {number} head
 * @returns {Entry}
 */
function entryOf(page, layer, head) {
  const picture = make("canvas", { "aria-hidden": "true", width: "1", height: "1" });
  const caption = data("span", "", { class: "hm-caption" });
  const button = make("button", { type: "button", class: "hm-thumbnail" }, picture, caption);
  button.addEventListener("click", () => page.showHead(layer, head));
  return { layer, head, button, picture, caption, tile: null };
}

/**
 * Ask for the pictures that come into sight, a few at a time.
 *
 * @param {Page} page
 * @param {HTMLElement} grid
 * @param {Entry[]} entries
 */
function fetchInSight(page, grid, entries) {
  /** @type {Entry[]} */
  const waiting = [];
  let running = 0;
  const go = async () => {
    while (running < AT_ONCE && waiting.length > 0) {
      const entry = /** @type {Entry} */ (waiting.shift());
      running += 1;
      fetchOne(page, entry).finally(() => {
        running -= 1;
        go();
      });
    }
  };
  const observer = new IntersectionObserver(
    (sights) => {
      for (const { isIntersecting, target } of sights) {
        const entry = entries.find(({ button }) => button === target);
        if (isIntersecting && entry) {
          observer.unobserve(target);
          waiting.push(entry);
        }
      }
      go();
    },
    { rootMargin: "100px" },
  );
  entries.forEach(({ button }) => observer.observe(button));
  page.ended.addEventListener("abort", () => observer.disconnect());
}

/**
 * @param {Page} page
 * @param {Entry} entry
 */
async function fetchOne(page, entry) {
  try {
    entry.tile = readTile(await page.transport.bytes(pathOf(page, entry)));
    paint(page, entry);
  } catch (error) {
    throwUnlessExpected(error, page.ended);
  }
}

/**
 * Return where the picture of a head comes from. On the short side of a map a thumbnail may have a
 * pixel or two; then the whole map at zoom 0 is small enough, too.
 *
 * @param {Page} page
 * @param {Entry} entry
 */
function pathOf({ description }, { layer, head }) {
  const { queries, keys, zooms } = description.layers[layer];
  const short = Math.min(queries, keys) / (THUMBNAIL_SIDE * 2 ** zooms);
  return short < FEWEST_PIXELS ? `tiles/${layer}/${head}/mean/0/0/0` : `thumbnails/${layer}/${head}`;
}

/**
 * Paint a picture with a scale of its own, so that a head of faint weights is seen too.
 *
 * @param {Page} page
 * @param {Entry} entry
 */
function paint(page, { tile, picture }) {
  if (!tile || tile.rows === 0 || tile.columns === 0) {
    return;
  }
  const theme = page.root.dataset.theme === "dark" ? "dark" : "light";
  paintTile(tile, paintOf(tile, coloursOf(page.state.colours, theme), "linear"), picture);
}
