/** Beside the map: what the chosen query looks at, and who looks at the chosen key. */

import { askLater, steadily } from "./activity.js";
import { make } from "./dom.js";
import { css } from "./colours.js";
import { cleared } from "./surface.js";
import { placeOn, writeWeight } from "./scale.js";

/**
 * The values of a stretch, and of which row or column they are.
 *
 * @typedef {{of: string, first: number, stop: number, lines: number,
 *   values: (number | null)[]}} Line `lines`: of how many rows or columns together
 */

/** One strip: along the keys above the map, or along the queries at its side. */
export class Strip {
  canvas = make("canvas", { "aria-hidden": "true" });
  #page;
  #side;
  /** @type {Line | null} */
  #line = null;
  #asked = "";
  #ask;

  /**
   * @param {import("./page.js").Page} page
   * @param {"row" | "column"} side of the chosen query, or of the chosen key
   */
  constructor(page, side) {
    this.#page = page;
    this.#side = side;
    this.canvas.className = `hm-strip hm-strip-${side}`;
    page.stage.element.append(this.canvas);
    page.stage.onDraw((frame, inks) => this.#draw(frame, inks));
    this.#ask = steadily(page.activity, 90, (signal) => this.#fetch(signal));
  }

  get #chosen() {
    return this.#side === "row" ? this.#page.state.query : this.#page.state.key;
  }

  /** @param {AbortSignal} signal */
  async #fetch(signal) {
    const { frame } = this.#page.stage;
    const row = this.#side === "row";
    const [first, stop] = row ? frame.visible.columns : frame.visible.rows;
    const pixels = Math.max(1, Math.round(row ? frame.width : frame.height));
    const bins = Math.min(pixels, stop - first);
    if (this.#chosen === null || bins < 1) {
      return;
    }
    const of = `${this.#page.path}/${this.#chosen}`;
    const answer = await this.#page.transport.json(
      `${row ? "rows" : "columns"}/${of}?first=${first}&stop=${stop}&bins=${bins}`,
      signal,
    );
    this.#line = { of, first, stop, lines: answer.lines ?? 1, values: answer.values };
    this.#page.stage.redraw();
    if (answer.exact === false) {
      // Of some rows so far: the pass over the map brings the others.
      askLater(this.#page, this.#ask);
    }
  }

  /**
   * @param {import("./frame.js").Frame} frame
   * @param {import("./surface.js").Inks} inks
   */
  #draw(frame, inks) {
    const row = this.#side === "row";
    const width = row ? frame.width : this.canvas.clientWidth;
    const height = row ? this.canvas.clientHeight : frame.height;
    const context = cleared(this.canvas, width, height);
    context.font = `11px ${inks.font}`;
    const wanted =
      this.#chosen === null ? "" : `${this.#page.path}/${this.#chosen}/${JSON.stringify(frame.visible)}`;
    if (wanted !== this.#asked) {
      // The row before stays until the next one has come, but not that of another head.
      const map = this.#page.path;
      this.#line = this.#asked.startsWith(`${map}/`) ? this.#line : null;
      this.#asked = wanted;
      this.#ask();
    }
    const of = `${this.#page.path}/${this.#chosen}`;
    this.canvas.classList.toggle("hm-stale", this.#line !== null && this.#line.of !== of);
    if (this.#chosen === null) {
      this.#drawHint(context, width, height, inks);
    } else if (this.#line) {
      this.#drawLine(context, frame, this.#line, row ? height : width, inks);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} width
   * @param {number} height
   * @param {import("./surface.js").Inks} inks
   */
  #drawHint(context, width, height, inks) {
    context.fillStyle = inks.faint;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.translate(width / 2, height / 2);
    if (this.#side === "column") {
      context.rotate(Math.PI / 2);
    }
    context.fillText(this.#page.words.say(this.#side === "row" ? "hint_row" : "hint_column"), 0, 0);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {import("./frame.js").Frame} frame
   * @param {Line} line
   * @param {number} depth how many pixels the largest value takes
   * @param {import("./surface.js").Inks} inks
   */
  #drawLine(context, frame, { first, stop, lines, values }, depth, inks) {
    const row = this.#side === "row";
    const known = values.filter((value) => value !== null);
    const largest = known.length > 0 ? Math.max(...known) : 0;
    // Bars stand on 0, or on the least value where some are negative.
    const least = Math.min(...known, 0);
    const scale = least < 0 ? "linear" : this.#page.state.scale;
    const low = scale === "log" ? largest * 1e-4 : least;
    const place = placeOn({ low, high: largest > low ? largest : low + 1, scale });
    const cells = (stop - first) / values.length;
    const { missing } = this.#page.colouring.paint.colours;
    const room = depth - 14;
    for (let bin = 0; bin < values.length; bin += 1) {
      const value = values[bin];
      const start = row ? frame.left(first + bin * cells) : frame.top(first + bin * cells);
      const size = Math.max(1, cells * (row ? frame.across : frame.down) - (cells === 1 && frame.across >= 4 ? 0.5 : 0));
      context.fillStyle = value === null ? css(missing) : row ? inks.query : inks.key;
      const long = value === null ? room : value > low ? Math.max(1, place(value) * room) : 0;
      if (row) {
        context.fillRect(start, depth - 1 - long, size, long);
      } else {
        context.fillRect(1, start, long, size);
      }
    }
    context.fillStyle = inks.text;
    context.textBaseline = "top";
    if (!row) {
      // Along the outer edge, where no bar reaches.
      context.translate(depth, 0);
      context.rotate(Math.PI / 2);
    }
    const { words } = this.#page;
    const ends = least < 0 ? `${writeWeight(least)} … ${writeWeight(largest)}` : writeWeight(largest);
    const together = words.say(row ? "of_queries_together" : "of_keys_together", { lines });
    context.fillText(lines > 1 ? `${ends} · ${together}` : ends, 2, 1);
  }
}
