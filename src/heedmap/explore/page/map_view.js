/** The map itself on a canvas: tiles, and meanwhile what coarser or finer ones already say. */

import { make } from "./dom.js";
import { css, readableOn } from "./colours.js";
import { TILE } from "./protocol.js";
import { pixelRatio } from "./surface.js";
import { nameOf, valueIn } from "./tile_cache.js";
import { drawCrisp, pictureOf } from "./tile_painter.js";
import { writeWeight } from "./scale.js";

/** @typedef {import("./frame.js").Frame} Frame */
/** @typedef {{zoom: number, x: number, y: number}} TilePlace */

const ROOM_FOR_NUMBERS = { across: 50, down: 20 };
const ROOM_FOR_LINES = 12;

export class MapView {
  canvas = make("canvas", { class: "hm-layer", "aria-hidden": "true" });
  /** Whether all that is seen is there, and whether it is exact. */
  complete = false;
  exact = false;
  /** Whether something that is seen is not a number. */
  missing = false;
  #page;
  /** @type {CanvasPattern | null} */
  #hatch = null;

  /** @param {import("./page.js").Page} page */
  constructor(page) {
    this.#page = page;
    page.stage.map.append(this.canvas);
    page.stage.onDraw((frame, inks) => this.#draw(frame, inks));
  }

  /**
   * Return the colour on the canvas in the middle of a cell; null where it is not seen.
   *
   * @param {number} query
   * @param {number} key
   */
  colourAt(query, key) {
    const { frame } = this.#page.stage;
    const ratio = pixelRatio();
    const left = Math.floor(frame.left(key + 0.5) * ratio);
    // A little above the middle, where no number is written.
    const top = Math.floor(frame.top(query + 0.2) * ratio);
    if (left < 0 || top < 0 || left >= this.canvas.width || top >= this.canvas.height) {
      return null;
    }
    // Reading from the canvas itself would make all further drawing on it slow.
    const pixel = make("canvas", { width: "1", height: "1" });
    const context = /** @type {CanvasRenderingContext2D} */ (pixel.getContext("2d"));
    context.drawImage(this.canvas, -left, -top);
    return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  }

  /**
   * @param {Frame} frame
   * @param {import("./surface.js").Inks} inks
   */
  #draw(frame, inks) {
    const ratio = pixelRatio();
    const context = fresh(this.canvas, frame, ratio);
    this.missing = false;
    if (frame.layer.queries === 0 || frame.layer.keys === 0) {
      this.complete = this.exact = true;
      return;
    }
    const level = frame.level(ratio, this.#page.deepest);
    const seen = frame.tiles(level);
    context.save();
    context.beginPath();
    context.rect(...cellsOnCanvas(frame, ratio, 0, 0, frame.layer.queries, frame.layer.keys));
    context.clip();
    this.complete = this.exact = true;
    for (const place of seen) {
      const tile = this.#page.loader.cache.get(nameOf(this.#page.state, place));
      if (!tile) {
        const failed = this.#page.loader.failed.has(nameOf(this.#page.state, place));
        this.complete = this.complete && failed;
        this.exact = false;
        this.#drawInstead(context, frame, ratio, place);
      } else {
        this.exact = this.exact && tile.exact;
        this.#drawTile(context, frame, ratio, place, tile);
      }
    }
    if (level === frame.layer.zooms && this.#page.side === 1) {
      this.#drawLines(context, frame, ratio, inks);
      this.#drawNumbers(context, frame, ratio, inks);
    }
    context.restore();
    // The whole map is asked for too: it stands in for what has not come, and is the small map.
    this.#page.loader.want(this.#page.state, [{ zoom: 0, x: 0, y: 0 }, ...seen]);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Frame} frame
   * @param {number} ratio
   * @param {TilePlace} place
   * @param {import("./tile_cache.js").KeptTile} tile
   */
  #drawTile(context, frame, ratio, place, tile) {
    if (tile.rows === 0 || tile.columns === 0) {
      return;
    }
    const side = 2 ** (frame.layer.zooms - place.zoom);
    const [left, top, width, height] = cellsOnCanvas(
      frame,
      ratio,
      place.y * TILE * side,
      place.x * TILE * side,
      tile.rows * side,
      tile.columns * side,
    );
    if (tile.values) {
      const picture = pictureOf(tile, this.#page.colouring.paint);
      drawCrisp(context, picture, [left, top, width, height]);
      this.missing ||= tile.missing;
    } else {
      context.fillStyle = css(this.#page.colouring.paint.colours.zero);
      context.fillRect(left, top, width, height);
    }
    if (!tile.exact) {
      this.#hatch ??= hatch(context, ratio);
      context.fillStyle = this.#hatch;
      context.fillRect(left, top, width, height);
    }
  }

  /**
   * Draw what is known of a tile that has not come: its part of the nearest coarser one, and over
   * that the finer ones that are there.
   *
   * @param {CanvasRenderingContext2D} context
   * @param {Frame} frame
   * @param {number} ratio
   * @param {TilePlace} place
   */
  #drawInstead(context, frame, ratio, place) {
    const { cache } = this.#page.loader;
    for (let up = 1; up <= place.zoom; up += 1) {
      const parent = { zoom: place.zoom - up, x: place.x >> up, y: place.y >> up };
      const tile = cache.get(nameOf(this.#page.state, parent));
      if (tile) {
        const side = 2 ** (frame.layer.zooms - place.zoom);
        context.save();
        context.beginPath();
        context.rect(
          ...cellsOnCanvas(frame, ratio, place.y * TILE * side, place.x * TILE * side, TILE * side, TILE * side),
        );
        context.clip();
        this.#drawTile(context, frame, ratio, parent, tile);
        context.restore();
        break;
      }
    }
    for (const [x, y] of place.zoom < frame.layer.zooms ? [[0, 0], [1, 0], [0, 1], [1, 1]] : []) {
      const child = { zoom: place.zoom + 1, x: 2 * place.x + x, y: 2 * place.y + y };
      const tile = cache.get(nameOf(this.#page.state, child));
      if (tile) {
        this.#drawTile(context, frame, ratio, child, tile);
      }
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Frame} frame
   * @param {number} ratio
   * @param {import("./surface.js").Inks} inks
   */
  #drawLines(context, frame, ratio, inks) {
    if (Math.min(frame.across, frame.down) < ROOM_FOR_LINES) {
      return;
    }
    const { rows, columns } = frame.visible;
    context.fillStyle = inks.ground;
    for (let query = rows[0]; query <= rows[1]; query += 1) {
      context.fillRect(0, Math.round(frame.top(query) * ratio), this.canvas.width, 1);
    }
    for (let key = columns[0]; key <= columns[1]; key += 1) {
      context.fillRect(Math.round(frame.left(key) * ratio), 0, 1, this.canvas.height);
    }
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Frame} frame
   * @param {number} ratio
   * @param {import("./surface.js").Inks} inks
   */
  #drawNumbers(context, frame, ratio, inks) {
    if (frame.across < ROOM_FOR_NUMBERS.across || frame.down < ROOM_FOR_NUMBERS.down) {
      return;
    }
    const { rows, columns } = frame.visible;
    context.font = `${11 * ratio}px ${inks.font}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let query = rows[0]; query < rows[1]; query += 1) {
      for (let key = columns[0]; key < columns[1]; key += 1) {
        const value = weightInTiles(this.#page, query, key);
        if (value !== null && value !== 0) {
          context.fillStyle = readableOn(this.#page.colouring.colour(value));
          context.fillText(
            writeWeight(value),
            frame.left(key + 0.5) * ratio,
            frame.top(query + 0.5) * ratio,
          );
        }
      }
    }
  }
}

/**
 * Return a single weight where an exact tile of the deepest zoom has it, else null.
 *
 * @param {import("./page.js").Page} page
 * @param {number} query
 * @param {number} key
 */
export function weightInTiles(page, query, key) {
  if (page.side > 1) {
    return null;
  }
  const place = {
    zoom: page.layer.zooms,
    x: Math.floor(key / TILE),
    y: Math.floor(query / TILE),
  };
  const tile = page.loader.cache.get(nameOf(page.state, place));
  return tile?.exact ? valueIn(tile, query - place.y * TILE, key - place.x * TILE) : null;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Frame} frame
 * @param {number} ratio
 */
function fresh(canvas, frame, ratio) {
  const width = Math.round(frame.width * ratio);
  const height = Math.round(frame.height * ratio);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  context.clearRect(0, 0, width, height);
  return context;
}

/**
 * Return the rectangle of some cells in device pixels, its edges on whole pixels, so that
 * neighbours meet without a seam.
 *
 * @param {Frame} frame
 * @param {number} ratio
 * @param {number} query
 * @param {number} key
 * @param {number} queries
 * @param {number} keys
 * @returns {[number, number, number, number]}
 */
function cellsOnCanvas(frame, ratio, query, key, queries, keys) {
  const left = Math.round(frame.left(key) * ratio);
  const top = Math.round(frame.top(query) * ratio);
  const right = Math.round(frame.left(key + keys) * ratio);
  const bottom = Math.round(frame.top(query + queries) * ratio);
  return [left, top, Math.max(1, right - left), Math.max(1, bottom - top)];
}

/**
 * Return thin slanted lines, the mark of what is not exact yet.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {number} ratio
 */
function hatch(context, ratio) {
  const size = Math.round(12 * ratio);
  const pattern = make("canvas", { width: String(size), height: String(size) });
  const lines = /** @type {CanvasRenderingContext2D} */ (pattern.getContext("2d"));
  lines.strokeStyle = "rgb(255 255 255 / 0.22)";
  lines.lineWidth = ratio;
  lines.beginPath();
  for (const offset of [-size, 0, size]) {
    lines.moveTo(offset, size);
    lines.lineTo(offset + size, 0);
  }
  lines.stroke();
  return /** @type {CanvasPattern} */ (context.createPattern(pattern, "repeat"));
}
