/** The state of the page as a link, and back: what is seen can be sent, and gone back to. */

import { COLOUR_MAPS } from "./colours.js";
import { LANGUAGES } from "./words.js";

/** @typedef {import("./store.js").State} State */
/** @typedef {import("./protocol.js").Description} Description */

/** Changes of these get an entry of their own in the browser's history. */
const STEPS = /** @type {(keyof State)[]} */ (["layer", "head", "query", "key", "block"]);

const REPLACE_PAUSE_MS = 300;

/**
 * Return the part of an address behind `#` that says all of a state.
 *
 * @param {State} state
 */
export function linkOf(state) {
  const { view, limits, block } = state;
  /** @type {Record<string, string | number | null>} */
  const parts = {
    layer: state.layer,
    head: state.head,
    statistic: state.statistic,
    colours: state.colours,
    scale: state.scale,
    limits: limits && limits.map((limit) => Number(limit.toPrecision(6))).join(","),
    at: view && [view.x, view.y].map((place) => Number(place.toFixed(2))).join(","),
    zoom: view && Number(view.zoom.toFixed(3)),
    query: state.query,
    key: state.key,
    block: block && [...block.rows, ...block.columns].join(","),
    language: state.language,
    theme: state.theme === "auto" ? null : state.theme,
  };
  return Object.entries(parts)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}=${value}`)
    .join("&");
}

/**
 * Return the state that a link says; what it does not say, or says wrongly, is as at the start.
 *
 * @param {string} link
 * @param {Description} description
 * @param {State} start
 * @returns {State}
 */
export function stateOf(link, description, start) {
  const parts = new URLSearchParams(link.replace(/^#/, ""));
  const among = (/** @type {string} */ name, /** @type {string[]} */ values, /** @type {string} */ otherwise) => {
    const value = parts.get(name);
    return value !== null && values.includes(value) ? value : otherwise;
  };
  const position = (/** @type {string} */ name, /** @type {number} */ size) => {
    const text = parts.get(name);
    const value = text === null || !/^\d+$/.test(text) ? NaN : Number(text);
    return value < size ? value : null;
  };
  const layer = position("layer", description.layers.length) ?? start.layer;
  const { queries, keys, heads } = description.layers[layer];
  // A link that names its map says all: what is not chosen in it is not chosen.
  const whole = parts.has("layer");
  const choice = (/** @type {"query" | "key"} */ name, /** @type {number} */ size) =>
    whole || parts.has(name) ? position(name, size) : start[name];
  const limits = numbers(parts.get("limits"), 2);
  const at = numbers(parts.get("at"), 2);
  const [zoom] = numbers(parts.get("zoom"), 1) ?? [];
  const block = numbers(parts.get("block"), 4);
  return {
    ...start,
    layer,
    head: position("head", heads.length) ?? (layer === start.layer ? start.head : 0),
    statistic: /** @type {State["statistic"]} */ (
      among("statistic", ["mean", "max", "sum"], start.statistic)
    ),
    colours: among("colours", COLOUR_MAPS, start.colours),
    scale: among("scale", ["linear", "log"], start.scale) === "log" ? "log" : "linear",
    limits: limits && limits[0] < limits[1] ? [limits[0], limits[1]] : null,
    view: at && zoom !== undefined ? { x: at[0], y: at[1], zoom } : null,
    query: choice("query", queries),
    key: choice("key", keys),
    block: blockOf(block, queries, keys),
    language: among("language", Object.keys(LANGUAGES), start.language),
    theme: /** @type {State["theme"]} */ (among("theme", ["auto", "light", "dark"], start.theme)),
  };
}

/**
 * Keep the address of the window and the state the same, both ways.
 *
 * @param {import("./store.js").Store} store
 * @param {Description} description
 * @param {State} start
 * @param {AbortSignal} ended
 */
export function keepInAddress(store, description, start, ended) {
  let timer = 0;
  let restoring = false;
  const replace = () => history.replaceState(null, "", `#${linkOf(store.state)}`);
  store.onAny((changed, remembered) => {
    if (restoring) {
      return;
    }
    window.clearTimeout(timer);
    if (remembered && STEPS.some((name) => changed.has(name))) {
      history.pushState(null, "", `#${linkOf(store.state)}`);
    } else {
      // Browsers refuse to note every step of a drag.
      timer = window.setTimeout(replace, REPLACE_PAUSE_MS);
    }
  });
  ended.addEventListener("abort", () => window.clearTimeout(timer));
  window.addEventListener(
    "popstate",
    () => {
      window.clearTimeout(timer);
      restoring = true;
      store.set(stateOf(location.hash, description, start));
      restoring = false;
    },
    { signal: ended },
  );
}

/**
 * @param {string | null} text
 * @param {number} count
 */
function numbers(text, count) {
  const values = text === null ? [] : text.split(",").map(Number);
  return values.length === count && values.every(Number.isFinite) ? values : null;
}

/**
 * @param {number[] | null} parts
 * @param {number} queries
 * @param {number} keys
 * @returns {import("./store.js").Block | null}
 */
function blockOf(parts, queries, keys) {
  if (!parts || !parts.every((part) => Number.isInteger(part) && part >= 0)) {
    return null;
  }
  const [top, bottom, left, right] = parts;
  const inside = top < bottom && bottom <= queries && left < right && right <= keys;
  return inside ? { rows: [top, bottom], columns: [left, right] } : null;
}
