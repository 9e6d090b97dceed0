/** A map in blocks of cells, from which tiles, rows and columns are made without a program. */

import { TILE } from "./protocol.js";

/**
 * @typedef {object} Raster
 * @property {number} side how many cells of a side a block has
 * @property {number} rows
 * @property {number} columns
 * @property {Float32Array} mean
 * @property {Float32Array} max
 */

const HEADER_BYTES = 16;

/** How many pixels a side of the picture of a whole map has at most. */
const THUMBNAIL = 32;

/**
 * Return a tile in its bytes. Where the raster is coarser than its level, all pixels of a block have
 * the value of the block, and the tile is not exact.
 *
 * @param {Raster} raster
 * @param {import("./protocol.js").Layer} layer
 * @param {string} statistic
 * @param {number} zoom
 * @param {number} x
 * @param {number} y
 * @returns {ArrayBuffer}
 */
export function tileOf(raster, layer, statistic, zoom, x, y) {
  const side = 2 ** (layer.zooms - zoom);
  const rows = pixels(layer.queries, side, y);
  const columns = pixels(layer.keys, side, x);
  const values = new Float32Array(rows * columns);
  const block = Math.max(side, raster.side);
  for (let down = 0; down < rows; down += 1) {
    for (let across = 0; across < columns; across += 1) {
      const top = Math.floor(((y * TILE + down) * side) / block) * block;
      const left = Math.floor(((x * TILE + across) * side) / block) * block;
      values[down * columns + across] = valueOf(raster, layer, statistic, top, left, block);
    }
  }
  return encode(values, rows, columns, side >= raster.side);
}

/**
 * Return the means of a whole map as a tile of at most 32 × 32 values, as fine as the raster lets it be.
 *
 * @param {Raster} raster
 * @param {import("./protocol.js").Layer} layer
 */
export function thumbnailOf(raster, layer) {
  let side = raster.side;
  while (Math.max(layer.queries, layer.keys) > side * THUMBNAIL) {
    side *= 2;
  }
  const rows = Math.max(1, Math.ceil(layer.queries / side));
  const columns = Math.max(1, Math.ceil(layer.keys / side));
  const values = Float32Array.from({ length: rows * columns }, (_, place) => {
    const top = Math.floor(place / columns) * side;
    return valueOf(raster, layer, "mean", top, (place % columns) * side, side);
  });
  return encode(values, rows, columns, true);
}

/**
 * Return the mean of the block in which a cell lies, and how many rows and columns it has.
 *
 * @param {Raster} raster
 * @param {import("./protocol.js").Layer} layer
 * @param {number} query
 * @param {number} key
 */
export function blockAround({ side, columns, mean }, layer, query, key) {
  const down = Math.floor(query / side);
  const across = Math.floor(key / side);
  return {
    rows: Math.min(side, layer.queries - down * side),
    columns: Math.min(side, layer.keys - across * side),
    mean: mean[down * columns + across],
  };
}

/**
 * @param {Raster} raster
 * @param {import("./protocol.js").Layer} layer
 * @param {string} statistic
 * @param {number} top
 * @param {number} left
 * @param {number} side
 */
function valueOf(raster, layer, statistic, top, left, side) {
  const bottom = Math.min(top + side, layer.queries);
  const right = Math.min(left + side, layer.keys);
  let sum = 0;
  let most = -Infinity;
  const lastRow = Math.ceil(bottom / raster.side);
  const lastColumn = Math.ceil(right / raster.side);
  for (let row = Math.floor(top / raster.side); row < lastRow; row += 1) {
    const high = Math.min(bottom, (row + 1) * raster.side) - Math.max(top, row * raster.side);
    for (let column = Math.floor(left / raster.side); column < lastColumn; column += 1) {
      const begins = Math.max(left, column * raster.side);
      const wide = Math.min(right, (column + 1) * raster.side) - begins;
      const place = row * raster.columns + column;
      sum += raster.mean[place] * high * wide;
      most = raster.max[place] > most || Number.isNaN(most) ? raster.max[place] : most;
    }
  }
  const cells = (bottom - top) * (right - left);
  if (statistic === "max") {
    return cells > 0 ? most : 0;
  }
  return statistic === "sum" ? sum : sum / Math.max(1, cells);
}

/**
 * Return the largest weight in each of some equal stretches of a row or a column, and of those
 * beside it that lie in the same blocks.
 *
 * @param {Raster} raster
 * @param {"rows" | "columns"} side
 * @param {number} number
 * @param {number} first
 * @param {number} stop
 * @param {number} bins
 */
export function lineOf(raster, side, number, first, stop, bins) {
  const count = Math.min(bins, stop - first);
  const line = Math.floor(number / raster.side);
  return Array.from({ length: count }, (_, bin) => {
    const start = first + Math.floor((bin * (stop - first)) / count);
    const end = first + Math.floor(((bin + 1) * (stop - first)) / count);
    let most = -Infinity;
    for (let at = Math.floor(start / raster.side); at * raster.side < end; at += 1) {
      const place = side === "rows" ? line * raster.columns + at : at * raster.columns + line;
      most = Math.max(most, raster.max[place]);
    }
    return Number.isFinite(most) ? most : null;
  });
}

/**
 * @param {number} size
 * @param {number} side
 * @param {number} place
 */
function pixels(size, side, place) {
  return Math.max(0, Math.min(TILE, Math.ceil(size / side) - place * TILE));
}

/**
 * @param {Float32Array} values
 * @param {number} rows
 * @param {number} columns
 * @param {boolean} exact
 */
function encode(values, rows, columns, exact) {
  const bytes = new ArrayBuffer(HEADER_BYTES + values.byteLength);
  const header = new DataView(bytes);
  header.setUint32(0, 0x31544d48, true);
  header.setUint8(4, 2);
  header.setUint8(5, exact ? 1 : 0);
  header.setUint16(6, rows, true);
  header.setUint16(8, columns, true);
  let largest = 0;
  for (const value of values) {
    largest = value > largest ? value : largest;
  }
  header.setFloat32(12, largest, true);
  new Float32Array(bytes, HEADER_BYTES).set(values);
  return bytes;
}
