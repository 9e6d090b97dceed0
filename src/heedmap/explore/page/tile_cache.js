/** Tiles that have come, as many as a number of bytes allows; the longest unused goes first. */

import { TILE } from "./protocol.js";

/**
 * A tile with its picture, once it has one.
 *
 * @typedef {import("./protocol.js").Tile & {
 *   picture: HTMLCanvasElement | null, paintedFor: object | null, missing: boolean}} KeptTile
 *   `missing`: whether something in it is not a number
 */

const MOST_BYTES = 96 * 1024 * 1024;

export class TileCache {
  /** @type {Map<string, KeptTile>} */
  #tiles = new Map();
  #bytes = 0;

  /** @param {string} name */
  get(name) {
    const tile = this.#tiles.get(name);
    if (tile) {
      this.#tiles.delete(name);
      this.#tiles.set(name, tile);
    }
    return tile;
  }

  /**
   * @param {string} name
   * @param {import("./protocol.js").Tile} tile
   */
  put(name, tile) {
    const before = this.#tiles.get(name);
    if (before) {
      this.#bytes -= bytesOf(before);
      this.#tiles.delete(name);
    }
    this.#tiles.set(name, { ...tile, picture: null, paintedFor: null, missing: false });
    this.#bytes += bytesOf(tile);
    for (const [oldest, unused] of this.#tiles) {
      if (this.#bytes <= MOST_BYTES || oldest === name) {
        break;
      }
      this.#tiles.delete(oldest);
      this.#bytes -= bytesOf(unused);
    }
  }
}

/**
 * Return the name of a tile in the cache.
 *
 * @param {{layer: number, head: number, statistic: string}} map
 * @param {{zoom: number, x: number, y: number}} tile
 */
export function nameOf({ layer, head, statistic }, { zoom, x, y }) {
  return `${layer}/${head}/${statistic}/${zoom}/${x}/${y}`;
}

/**
 * Return the value of a tile's pixel.
 *
 * @param {import("./protocol.js").Tile} tile
 * @param {number} row
 * @param {number} column
 */
export function valueIn(tile, row, column) {
  return tile.values ? tile.values[row * tile.columns + column] : 0;
}

/**
 * Values and picture have four bytes for each pixel; an empty tile is little more than its name.
 *
 * @param {import("./protocol.js").Tile} tile
 */
function bytesOf(tile) {
  return tile.values ? 8 * tile.rows * tile.columns : TILE;
}
