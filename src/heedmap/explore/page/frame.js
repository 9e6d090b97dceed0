/** Where the cells of a map lie in a window of pixels: plain geometry, without a canvas. */

import { TILE } from "./protocol.js";

const LARGEST_CELL = 72;
const MOST_TILES = 120;

/** One view of one map in a window; never changed, made anew for every picture. */
export class Frame {
  /**
   * @param {{queries: number, keys: number, zooms: number}} layer
   * @param {number} width of the window, in CSS pixels
   * @param {number} height
   * @param {import("./store.js").View | null} view null: the whole map
   */
  constructor(layer, width, height, view) {
    this.layer = layer;
    this.width = width;
    this.height = height;
    this.stretch = stretchOf(layer);
    const keys = Math.max(1, layer.keys);
    const queries = Math.max(1, layer.queries);
    const whole = Math.min(width / keys, height / (queries * this.stretch));
    /** The zoom at which the whole map fits. */
    this.smallest = layer.zooms + Math.log2(Math.max(whole, 1e-9));
    /** The zoom beyond which cells would only get larger. */
    this.largest = Math.max(
      this.smallest,
      layer.zooms + Math.log2(LARGEST_CELL / Math.sqrt(this.stretch)),
    );
    const zoom = view ? clamp(view.zoom, this.smallest, this.largest) : this.smallest;
    this.zoom = zoom;
    /** CSS pixels of a cell, across and down. */
    this.across = 2 ** (zoom - layer.zooms);
    this.down = this.across * this.stretch;
    this.x = middle(view ? view.x : keys / 2, keys, width / this.across);
    this.y = middle(view ? view.y : queries / 2, queries, height / this.down);
  }

  /** Whether the whole map is seen. */
  get isWhole() {
    return this.zoom <= this.smallest + 1e-9;
  }

  /** @param {number} key */
  left(key) {
    return this.width / 2 + (key - this.x) * this.across;
  }

  /** @param {number} query */
  top(query) {
    return this.height / 2 + (query - this.y) * this.down;
  }

  /** @param {number} pixel from the left; the key there, with its fraction */
  keyAt(pixel) {
    return this.x + (pixel - this.width / 2) / this.across;
  }

  /** @param {number} pixel from the top; the query there, with its fraction */
  queryAt(pixel) {
    return this.y + (pixel - this.height / 2) / this.down;
  }

  /**
   * Return the cell under a pixel, or null outside the map.
   *
   * @param {number} left
   * @param {number} top
   */
  cellAt(left, top) {
    const key = Math.floor(this.keyAt(left));
    const query = Math.floor(this.queryAt(top));
    const inside =
      key >= 0 && key < this.layer.keys && query >= 0 && query < this.layer.queries;
    return inside ? { query, key } : null;
  }

  /** The keys and queries of which something is seen: from, and to before. */
  get visible() {
    /** @type {[number, number]} */
    const columns = [
      clamp(Math.floor(this.keyAt(0)), 0, this.layer.keys),
      clamp(Math.ceil(this.keyAt(this.width)), 0, this.layer.keys),
    ];
    /** @type {[number, number]} */
    const rows = [
      clamp(Math.floor(this.queryAt(0)), 0, this.layer.queries),
      clamp(Math.ceil(this.queryAt(this.height)), 0, this.layer.queries),
    ];
    return { rows, columns };
  }

  /**
   * Return the level to draw: the next one that is at least as fine as the screen.
   *
   * @param {number} pixelRatio device pixels of a CSS pixel
   * @param {number} deepest the deepest level that there is
   */
  level(pixelRatio, deepest) {
    const finest = Math.max(this.across, this.down) * pixelRatio;
    const wanted = Math.ceil(this.layer.zooms + Math.log2(finest) - 1e-6);
    let level = clamp(wanted, 0, deepest);
    while (level > 0 && this.tiles(level).length > MOST_TILES) {
      level -= 1;
    }
    return level;
  }

  /**
   * Return the tiles of a level that are seen, those in the middle first.
   *
   * @param {number} level
   * @returns {{zoom: number, x: number, y: number}[]}
   */
  tiles(level) {
    const step = TILE * 2 ** (this.layer.zooms - level);
    const { rows, columns } = this.visible;
    const tiles = [];
    for (let y = Math.floor(rows[0] / step); y * step < rows[1]; y += 1) {
      for (let x = Math.floor(columns[0] / step); x * step < columns[1]; x += 1) {
        tiles.push({ zoom: level, x, y });
      }
    }
    const away = (/** @type {{x: number, y: number}} */ tile) =>
      Math.hypot((tile.x + 0.5) * step - this.x, (tile.y + 0.5) * step - this.y);
    return tiles.sort((one, other) => away(one) - away(other));
  }

  /**
   * Return the view after zooming so that what is under a pixel stays there.
   *
   * @param {number} zoom
   * @param {number} left
   * @param {number} top
   */
  zoomedTo(zoom, left, top) {
    const bounded = clamp(zoom, this.smallest, this.largest);
    const factor = 2 ** (this.zoom - bounded);
    return {
      x: this.keyAt(left) + (this.x - this.keyAt(left)) * factor,
      y: this.queryAt(top) + (this.y - this.queryAt(top)) * factor,
      zoom: bounded,
    };
  }

  /**
   * Return the view after moving by some pixels.
   *
   * @param {number} left
   * @param {number} top
   */
  movedBy(left, top) {
    return { x: this.x - left / this.across, y: this.y - top / this.down, zoom: this.zoom };
  }
}

/**
 * Return how many times taller than wide a cell is drawn: 1, or more for a map of few queries and
 * many keys, which would else be a thin line.
 *
 * @param {{queries: number, keys: number}} layer
 */
export function stretchOf({ queries, keys }) {
  const ratio = Math.max(1, keys) / Math.max(1, queries);
  if (ratio > 3) {
    return 2 ** Math.round(Math.log2(ratio / 1.5));
  }
  return ratio < 1 / 3 ? 2 ** -Math.round(Math.log2(1 / ratio / 1.5)) : 1;
}

/**
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
export function clamp(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

/**
 * Return the middle of a window on `size` cells that shows `shown` of them and nothing beyond.
 *
 * @param {number} wanted
 * @param {number} size
 * @param {number} shown
 */
function middle(wanted, size, shown) {
  return shown >= size ? size / 2 : clamp(wanted, shown / 2, size - shown / 2);
}
