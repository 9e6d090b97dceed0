/** The cross-hair: what is under the pointer, the chosen row and column, and a block, marked. */

import { latest } from "./activity.js";
import { data, make } from "./dom.js";
import { cleared } from "./surface.js";
import { knownOf, writeKnown } from "./weights.js";

export class CrossHair {
  canvas = make("canvas", { class: "hm-layer", "aria-hidden": "true" });
  /** @type {{query: number, key: number} | null} the cell under the pointer */
  hovered = null;
  #page;
  #tip = make("div", { class: "hm-tip", hidden: "", "aria-hidden": "true" });
  #weight = data("strong", "");
  #query = data("span", "", { class: "hm-of-query" });
  #key = data("span", "", { class: "hm-of-key" });
  #ask;

  /** @param {import("./page.js").Page} page */
  constructor(page) {
    this.#page = page;
    this.#tip.append(
      this.#weight,
      make("div", {}, page.words.put(make("span"), "query"), " ", this.#query),
      make("div", {}, page.words.put(make("span"), "key"), " ", this.#key),
    );
    page.stage.map.append(this.canvas, this.#tip);
    page.stage.onMark((frame, inks) => this.#draw(frame, inks));
    this.#ask = latest(page.activity, 40, (signal, query, key) => this.#tell(signal, query, key));
    page.store.on(["layer", "head"], () => this.leave());
  }

  /**
   * Show the weight under a pixel.
   *
   * @param {number} left
   * @param {number} top
   */
  hover(left, top) {
    const cell = this.#page.stage.frame.cellAt(left, top);
    if (!cell) {
      this.leave();
      return;
    }
    const moved = cell.query !== this.hovered?.query || cell.key !== this.hovered?.key;
    this.hovered = cell;
    this.#place(left, top);
    if (moved) {
      this.#query.textContent = this.#page.queries.name(cell.query);
      this.#key.textContent = this.#page.keys.name(cell.key);
      this.#weight.textContent = "…";
      this.#ask(cell.query, cell.key);
      this.#page.stage.remark();
    }
  }

  /** Show none. */
  leave() {
    if (this.hovered) {
      this.hovered = null;
      this.#tip.hidden = true;
      this.#page.stage.remark();
    }
  }

  /**
   * @param {AbortSignal} signal
   * @param {number} query
   * @param {number} key
   */
  async #tell(signal, query, key) {
    if (this.hovered) {
      const known = await knownOf(this.#page, query, key, signal);
      this.#weight.textContent = writeKnown(this.#page.words, known);
    }
  }

  /**
   * @param {number} left
   * @param {number} top
   */
  #place(left, top) {
    this.#tip.hidden = false;
    const { frame } = this.#page.stage;
    const { offsetWidth, offsetHeight } = this.#tip;
    const x = left + 16 + offsetWidth > frame.width ? left - 12 - offsetWidth : left + 16;
    const y = top + 16 + offsetHeight > frame.height ? top - 12 - offsetHeight : top + 16;
    this.#tip.style.transform = `translate(${Math.max(0, x)}px, ${Math.max(0, y)}px)`;
  }

  /**
   * @param {import("./frame.js").Frame} frame
   * @param {import("./surface.js").Inks} inks
   */
  #draw(frame, inks) {
    const context = cleared(this.canvas, frame.width, frame.height);
    const { query, key, block } = this.#page.state;
    const { queries, keys } = frame.layer;
    context.beginPath();
    context.rect(frame.left(0), frame.top(0), keys * frame.across, queries * frame.down);
    context.clip();
    if (block) {
      drawBlock(context, frame, block);
    }
    if (key !== null && key < keys) {
      drawBand(context, frame, "column", key, inks.key);
    }
    if (query !== null && query < queries) {
      drawBand(context, frame, "row", query, inks.query);
    }
    if (this.hovered) {
      context.fillStyle = "rgb(255 255 255 / 0.55)";
      const x = Math.round(frame.left(this.hovered.key + 0.5));
      const y = Math.round(frame.top(this.hovered.query + 0.5));
      context.fillRect(x, 0, 1, frame.height);
      context.fillRect(0, y, frame.width, 1);
    }
  }
}

/**
 * Draw the edges of a row or column, or a line where it is thin.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {import("./frame.js").Frame} frame
 * @param {"row" | "column"} side
 * @param {number} position
 * @param {string} ink
 */
function drawBand(context, frame, side, position, ink) {
  const row = side === "row";
  const start = row ? frame.top(position) : frame.left(position);
  const size = row ? frame.down : frame.across;
  const line = (/** @type {number} */ at, /** @type {number} */ thick) =>
    row ? context.fillRect(0, at, frame.width, thick) : context.fillRect(at, 0, thick, frame.height);
  const edges = size >= 5 ? [start - 1, start + size - 1] : [start + size / 2 - 1];
  for (const edge of edges) {
    context.fillStyle = "rgb(255 255 255 / 0.85)";
    line(Math.round(edge) - 1, 4);
    context.fillStyle = ink;
    line(Math.round(edge), 2);
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./frame.js").Frame} frame
 * @param {import("./store.js").Block} block
 */
function drawBlock(context, frame, { rows, columns }) {
  const left = Math.round(frame.left(columns[0]));
  const top = Math.round(frame.top(rows[0]));
  const width = Math.max(2, Math.round(frame.left(columns[1])) - left);
  const height = Math.max(2, Math.round(frame.top(rows[1])) - top);
  context.fillStyle = "rgb(255 255 255 / 0.14)";
  context.fillRect(left, top, width, height);
  context.strokeStyle = "#000";
  context.lineWidth = 3;
  context.strokeRect(left, top, width, height);
  context.strokeStyle = "#fff";
  context.lineWidth = 1.5;
  context.setLineDash([6, 4]);
  context.strokeRect(left, top, width, height);
  context.setLineDash([]);
}
