/** The whole map, small, with a rectangle around what is seen; pointing at it goes there. */

import { make } from "./dom.js";
import { stretchOf } from "./frame.js";
import { nameOf } from "./tile_cache.js";
import { drawCrisp, paintOf, paintTile } from "./tile_painter.js";
import { cleared } from "./surface.js";

const SIZE = 176;

export class Minimap {
  element = make("section", { class: "hm-panel hm-minimap" });
  #canvas = make("canvas", { "aria-hidden": "true" });
  #picture = make("canvas");
  /** @type {unknown[]} what the picture was painted of */
  #painted = [];
  #page;

  /** @param {import("./page.js").Page} page */
  constructor(page) {
    this.#page = page;
    this.element.append(page.words.put(make("h2"), "whole_map"), this.#canvas);
    page.stage.onDraw((frame, inks) => this.#draw(frame, inks));
    /** @param {PointerEvent} event */
    const go = (event) => {
      if (event.buttons & 1) {
        const { left, top, width, height } = this.#canvas.getBoundingClientRect();
        const { frame } = page.stage;
        page.stage.moveTo({
          x: ((event.clientX - left) / width) * frame.layer.keys,
          y: ((event.clientY - top) / height) * frame.layer.queries,
          zoom: frame.zoom,
        });
      }
    };
    this.#canvas.addEventListener("pointerdown", (event) => {
      this.#canvas.setPointerCapture(event.pointerId);
      go(event);
    });
    this.#canvas.addEventListener("pointermove", go);
  }

  /**
   * Return the picture of the whole map. Its scale is its own: on that of a small part, which may
   * be far larger weights, nothing else could be seen.
   *
   * @param {import("./protocol.js").Tile} tile
   */
  #paint(tile) {
    const { colours } = this.#page.colouring.paint;
    const { scale } = this.#page.state;
    const wanted = [tile, colours, scale];
    if (wanted.some((part, place) => part !== this.#painted[place])) {
      paintTile(tile, paintOf(tile, colours, scale), this.#picture);
      this.#painted = wanted;
    }
    return this.#picture;
  }

  /**
   * @param {import("./frame.js").Frame} frame
   * @param {import("./surface.js").Inks} inks
   */
  #draw(frame, inks) {
    const { queries, keys, zooms } = frame.layer;
    const tall = (queries * stretchOf(frame.layer)) / Math.max(1, keys) || 1;
    const width = tall > 1 ? SIZE / tall : SIZE;
    const height = tall > 1 ? SIZE : SIZE * tall;
    this.#canvas.style.width = `${width}px`;
    this.#canvas.style.height = `${height}px`;
    const context = cleared(this.#canvas, width, height);
    context.fillStyle = inks.line;
    context.fillRect(0, 0, width, height);
    const tile = this.#page.loader.cache.get(nameOf(this.#page.state, { zoom: 0, x: 0, y: 0 }));
    if (tile?.values) {
      const side = 2 ** zooms;
      const picture = this.#paint(tile);
      const across = (tile.columns * side * width) / keys;
      const down = (tile.rows * side * height) / queries;
      drawCrisp(context, picture, [0, 0, across, down]);
    }
    const left = (frame.keyAt(0) / Math.max(1, keys)) * width;
    const top = (frame.queryAt(0) / Math.max(1, queries)) * height;
    const right = (frame.keyAt(frame.width) / Math.max(1, keys)) * width;
    const bottom = (frame.queryAt(frame.height) / Math.max(1, queries)) * height;
    const box = /** @type {const} */ ([
      Math.max(1, left),
      Math.max(1, top),
      Math.max(3, Math.min(width, right) - Math.max(0, left) - 2),
      Math.max(3, Math.min(height, bottom) - Math.max(0, top) - 2),
    ]);
    context.lineWidth = 3;
    context.strokeStyle = "#000";
    context.strokeRect(...box);
    context.lineWidth = 1.5;
    context.strokeStyle = "#fff";
    context.strokeRect(...box);
  }
}
