/** The two sides of the map with their ticks, and the chosen query and key named on them. */

import { areNamed, ticksOf } from "./axis_ticks.js";
import { make } from "./dom.js";
import { cleared, fitted } from "./surface.js";

/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {import("./surface.js").Inks} Inks */
/** @typedef {{width: number, height: number}} Room */

const NARROW = 560;

/** What else stands beside the names of the queries: the word, a tick, and gaps. */
const BESIDE_NAMES = 28;

/** Pixels that must lie between the middle of a row's name and that of the chosen one. */
const CLEAR_OF_CHOSEN = 16;

export class AxisView {
  queries = make("canvas", { class: "hm-axis hm-axis-queries", "aria-hidden": "true" });
  keys = make("canvas", { class: "hm-axis hm-axis-keys", "aria-hidden": "true" });
  #page;

  /** @param {import("./page.js").Page} page */
  constructor(page) {
    this.#page = page;
    page.stage.element.append(this.queries, this.keys);
    page.stage.onDraw((frame, inks) => this.#draw(frame, inks));
    page.store.on(["layer"], () => this.makeRoom());
    this.makeRoom();
  }

  /** Give the names of the queries the room that they need, and tokens at most a certain one. */
  makeRoom() {
    const { stage, queries, keys } = this.#page;
    const narrow = this.#page.root.clientWidth < NARROW;
    const ruler = /** @type {CanvasRenderingContext2D} */ (make("canvas").getContext("2d"));
    ruler.font = `12px ${stage.inks.font}`;
    const needed = Math.ceil(ruler.measureText(queries.widest).width) + BESIDE_NAMES;
    const most = queries.kind === "token" ? (narrow ? 76 : 124) : Infinity;
    const across = Math.max(narrow ? 60 : 68, Math.min(needed, most));
    stage.element.style.setProperty("--queries-width", `${across}px`);
    stage.element.style.setProperty("--keys-height", keys.kind === "token" ? "92px" : "44px");
  }

  /**
   * @param {Frame} frame
   * @param {Inks} inks
   */
  #draw(frame, inks) {
    this.#drawQueries(frame, inks);
    this.#drawKeys(frame, inks);
  }

  /**
   * @param {Frame} frame
   * @param {Inks} inks
   */
  #drawQueries(frame, inks) {
    const width = this.queries.clientWidth;
    const context = cleared(this.queries, width, frame.height);
    context.font = `12px ${inks.font}`;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const { queries, state, words } = this.#page;
    const shown = frame.visible.rows;
    const badge = badgeOf(state.query, (at) => frame.top(at), frame.height, 10, ["↑ ", "↓ "]);
    // Half a token's name at the edge would lie on its neighbour; a time can move inwards.
    const edge = areNamed(queries, frame.down) ? 6 : -1;
    for (const { at, text } of ticksOf(queries, shown, frame.down, 44)) {
      const top = frame.top(at);
      if (top < edge || top > frame.height - edge) {
        continue;
      }
      context.fillStyle = inks.line;
      context.fillRect(width - 5, Math.round(top), 5, 1);
      context.fillStyle = inks.text;
      const inside = Math.min(frame.height - 7, Math.max(7, top));
      if (badge !== null && Math.abs(inside - badge.middle) < CLEAR_OF_CHOSEN) {
        continue;
      }
      context.fillText(fitted(context, text, width - BESIDE_NAMES + 4), width - 8, inside);
    }
    if (badge === null || Math.abs(badge.middle - frame.height / 2) > 34) {
      context.save();
      context.translate(8, frame.height / 2);
      context.rotate(-Math.PI / 2);
      context.textAlign = "center";
      context.fillStyle = inks.faint;
      context.fillText(words.say("query"), 0, 0);
      context.restore();
    }
    if (state.query !== null && badge !== null) {
      const top = badge.middle;
      const text = fitted(context, badge.arrow + queries.shortName(state.query), width - 12);
      const wide = context.measureText(text).width + 10;
      pill(context, width - wide - 1, top - 9, wide, inks.query);
      context.fillStyle = inks.onAccent;
      context.fillText(text, width - 6, top + 0.5);
    }
  }

  /**
   * @param {Frame} frame
   * @param {Inks} inks
   */
  #drawKeys(frame, inks) {
    const height = this.keys.clientHeight;
    const context = cleared(this.keys, frame.width, height);
    context.font = `12px ${inks.font}`;
    context.textBaseline = "middle";
    const { keys, state, words } = this.#page;
    const named = areNamed(keys, frame.across);
    const badge = badgeOf(state.key, (at) => frame.left(at), frame.width, 0, ["← ", "→ "]);
    const chosen = badge && state.key !== null ? fitted(context, badge.arrow + keys.shortName(state.key), 180) : "";
    const wide = context.measureText(chosen).width + 10;
    const start = badge ? Math.min(frame.width - wide, Math.max(0, badge.middle - wide / 2)) : 0;
    const covered = (/** @type {number} */ from, /** @type {number} */ to) =>
      badge !== null && to > start - 3 && from < start + wide + 3;
    for (const { at, text } of ticksOf(keys, frame.visible.columns, frame.across, 72)) {
      const left = frame.left(at);
      if (left < -1 || left > frame.width + 1) {
        continue;
      }
      context.fillStyle = inks.line;
      context.fillRect(Math.round(left), 0, 1, 5);
      context.fillStyle = inks.text;
      if (named) {
        if (!covered(left - 6, left + 6)) {
          drawUpright(context, fitted(context, text, height - 28), left);
        }
        continue;
      }
      const half = context.measureText(text).width / 2;
      const middle = Math.min(frame.width - half, Math.max(half, left));
      if (!covered(middle - half, middle + half)) {
        context.textAlign = "center";
        context.fillText(text, middle, 14);
      }
    }
    context.textAlign = "center";
    context.fillStyle = inks.faint;
    context.fillText(words.say("key"), frame.width / 2, named ? height - 9 : 33);
    if (badge) {
      pill(context, start, 4, wide, inks.key);
      context.fillStyle = inks.onAccent;
      context.textAlign = "left";
      context.fillText(chosen, start + 5, 13.5);
    }
  }
}

/**
 * Return where the chosen position is named, and an arrow to it where it lies beyond the edge; null
 * if there is none.
 *
 * @param {number | null} position
 * @param {(at: number) => number} pixelOf
 * @param {number} size of the side, in pixels
 * @param {number} margin pixels between the middle of the name and the edge
 * @param {[before: string, behind: string]} arrows
 */
function badgeOf(position, pixelOf, size, margin, [before, behind]) {
  if (position === null) {
    return null;
  }
  const middle = pixelOf(position + 0.5);
  const arrow = pixelOf(position + 1) <= 0 ? before : pixelOf(position) >= size ? behind : "";
  return { middle: Math.min(size - margin, Math.max(margin, middle)), arrow };
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} left
 */
function drawUpright(context, text, left) {
  context.save();
  context.translate(left, 8);
  context.rotate(-Math.PI / 2);
  context.textAlign = "right";
  context.fillText(text, 0, 0);
  context.restore();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} left
 * @param {number} top
 * @param {number} width
 * @param {string} ink
 */
function pill(context, left, top, width, ink) {
  context.fillStyle = ink;
  context.beginPath();
  context.roundRect(left, top, width, 18, 4);
  context.fill();
}
