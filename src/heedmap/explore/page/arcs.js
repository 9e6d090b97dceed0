/** A line of tokens with arcs from the chosen query to the keys that it looks at most. */

import { data, draw, make } from "./dom.js";
import { writeWeight } from "./scale.js";

/** @typedef {import("./page.js").Page} Page */
/** @typedef {{position: number, text: string, left: number, width: number}} Word a token in line */

const ALL_UP_TO = 48;
const ARCS = 8;
const NEIGHBOURS = 2;
const FONT_PIXELS = 14;
const GAP = 6;
const TALLEST = 110;
const LONGEST_WORD = 24;

/**
 * Return the drawing; for a map whose queries and keys are the same tokens.
 *
 * @param {Page} page
 * @param {import("./strongest.js").Strongest} strongest
 * @param {AbortSignal} ended when it is no longer shown
 */
export function arcsPanel(page, strongest, ended) {
  const { words, store } = page;
  const box = make("div", { class: "hm-arcs", tabindex: "0", role: "group" });
  words.name(box, "arcs");
  const hint = words.put(make("p", { class: "hm-faint" }), "hint_arcs");
  const show = () => {
    const { query } = page.state;
    hint.hidden = query !== null;
    box.replaceChildren();
    if (page.keys.axis && page.keys.size > 0) {
      box.append(drawing(page, query, query === null ? null : strongest.top));
      reveal(box, box.querySelector("[data-chosen]"));
    }
  };
  store.on(["query", "key", "layer", "theme"], show, ended);
  strongest.onChange(show, ended);
  show();
  return { element: make("section", { class: "hm-panel" }, words.put(make("h2"), "arcs"), hint, box), show };
}

/**
 * @param {Page} page
 * @param {number | null} query
 * @param {import("./strongest.js").Top | null} top
 */
function drawing(page, query, top) {
  const strong = new Map(
    (top?.positions ?? []).map((position, place) => [position, top?.weights[place] ?? 0]),
  );
  const linked = (top?.positions ?? []).slice(0, ARCS);
  const line = inLine(page, query, linked);
  const byPosition = new Map(line.words.map((word) => [word.position, word]));
  const largest = Math.max(top?.weights[0] ?? 0, 0) || 1;
  const middle = (/** @type {Word} */ word) => word.left + word.width / 2;
  const from = query === null ? undefined : byPosition.get(query);
  const spans = linked.map((key) => {
    const to = byPosition.get(key);
    return from && to ? Math.abs(middle(from) - middle(to)) : 0;
  });
  const height = from ? Math.min(TALLEST, Math.max(28, ...spans.map(archOf))) + 8 : 4;
  const svg = draw("svg", { width: line.width, height: height + 34, class: "hm-arcs-drawing" });
  linked.forEach((key, place) => {
    const to = byPosition.get(key);
    const weight = strong.get(key) ?? 0;
    if (from && to && weight > 0) {
      const arch = Math.min(archOf(spans[place]), height - 8);
      const path = `M${middle(from)} ${height}C${middle(from)} ${height - arch * 1.3} ${middle(to)} ${height - arch * 1.3} ${middle(to)} ${height}`;
      const loop = `M${middle(to) - 4} ${height}c-12 -22 20 -22 8 0`;
      const share = weight / largest;
      const arc = draw("path", {
        d: key === query ? loop : path,
        class: "hm-arc",
        "stroke-width": 1 + 4 * share,
        "stroke-opacity": 0.25 + 0.75 * share,
      });
      const name = `${page.keys.name(key)}: ${writeWeight(weight)}`;
      arc.append(draw("title", { "data-content": "" }, name));
      svg.append(arc);
    }
  });
  for (const word of line.words) {
    svg.append(wordOf(page, word, height, (strong.get(word.position) ?? 0) / largest));
  }
  for (const left of line.gaps) {
    svg.append(draw("text", { x: left, y: height + 22, class: "hm-arc-gap", "data-content": "" }, "…"));
  }
  return svg;
}

/**
 * Return the tokens that are shown: all of a short text; else the chosen one, the strongest keys
 * and the neighbours of each, with gaps between them.
 *
 * @param {Page} page
 * @param {number | null} query
 * @param {number[]} linked
 */
function inLine(page, query, linked) {
  const { keys } = page;
  /** @type {number[]} */
  let shown;
  if (keys.size <= ALL_UP_TO) {
    shown = Array.from({ length: keys.size }, (_, position) => position);
  } else {
    const near = [query ?? 0, ...linked].flatMap((position) =>
      Array.from({ length: 2 * NEIGHBOURS + 1 }, (_, step) => position + step - NEIGHBOURS),
    );
    const inside = near.filter((position) => position >= 0 && position < keys.size);
    shown = [...new Set(inside)].sort((one, other) => one - other);
  }
  const ruler = /** @type {CanvasRenderingContext2D} */ (make("canvas").getContext("2d"));
  ruler.font = `${FONT_PIXELS}px ${page.stage.inks.font}`;
  /** @type {Word[]} */
  const words = [];
  const gaps = [];
  let left = 8;
  let before = -1;
  for (const position of shown) {
    if (position !== before + 1) {
      gaps.push(left);
      left += 22;
    }
    const label = keys.label(position);
    const text = label.length > LONGEST_WORD ? `${label.slice(0, LONGEST_WORD)}…` : label;
    const width = Math.max(14, ruler.measureText(text).width + 8);
    words.push({ position, text, left, width });
    left += width + GAP;
    before = position;
  }
  if (before < keys.size - 1) {
    gaps.push(left);
    left += 22;
  }
  return { words, gaps, width: left + 8 };
}

/**
 * @param {Page} page
 * @param {Word} word
 * @param {number} top
 * @param {number} share of the largest weight
 */
function wordOf(page, { position, text, left, width }, top, share) {
  const { query, key } = page.state;
  const chosen = position === query;
  const box = draw("rect", {
    x: left,
    y: top + 4,
    width,
    height: 26,
    rx: 4,
    class: chosen ? "hm-token hm-token-query" : "hm-token",
    "fill-opacity": chosen ? 1 : 0.75 * share,
  });
  const group = draw(
    "g",
    { class: "hm-arc-word", ...(chosen ? { "data-chosen": "" } : {}) },
    box,
    draw(
      "text",
      {
        x: left + width / 2,
        y: top + 22,
        "text-anchor": "middle",
        class: chosen ? "hm-token-text hm-token-chosen" : "hm-token-text",
        "data-content": "",
      },
      text,
    ),
  );
  if (position === key) {
    box.classList.add("hm-token-key");
  }
  group.addEventListener("click", () => page.choose({ query: position }));
  return group;
}

/**
 * Scroll the chosen token into the box, and nothing else.
 *
 * @param {HTMLElement} box
 * @param {Element | null} chosen
 */
function reveal(box, chosen) {
  const { left, right } = box.getBoundingClientRect();
  const at = chosen?.getBoundingClientRect();
  if (at && (at.left < left || at.right > right)) {
    box.scrollLeft += (at.left + at.right - left - right) / 2;
  }
}

/** @param {number} span pixels between the ends of an arc; how high it rises */
function archOf(span) {
  return 14 + span * 0.35;
}
