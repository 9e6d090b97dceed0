/** From the values of a tile to its picture. */

import { STEPS } from "./colours.js";
import { placeOn, rangeOf } from "./scale.js";

/**
 * All that a picture depends on but the values; another object means painting again.
 *
 * @typedef {object} Paint
 * @property {import("./colours.js").Colours} colours
 * @property {(value: number) => number} place where on the scale a weight lies
 */

/**
 * Return the paint that shows the most of one tile.
 *
 * @param {import("./protocol.js").Tile} tile
 * @param {import("./colours.js").Colours} colours
 * @param {"linear" | "log"} scale
 * @returns {Paint}
 */
export function paintOf(tile, colours, scale) {
  const range = rangeOf(tile.values ? tile.values.slice() : new Float32Array(0), scale);
  return { colours, place: placeOn(range) };
}

/**
 * Return the picture of a tile, one pixel for each value; made when it is asked for.
 *
 * @param {import("./tile_cache.js").KeptTile} tile
 * @param {Paint} paint
 */
export function pictureOf(tile, paint) {
  if (tile.picture && tile.paintedFor === paint) {
    return tile.picture;
  }
  const picture = tile.picture ?? document.createElement("canvas");
  tile.missing = paintTile(tile, paint, picture);
  tile.picture = picture;
  tile.paintedFor = paint;
  return picture;
}

/**
 * Draw a picture into a rectangle so that what gets smaller is smoothed, and what gets larger stays
 * crisp, each way by itself.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {HTMLCanvasElement} picture
 * @param {[left: number, top: number, width: number, height: number]} box in pixels of the context
 */
export function drawCrisp(context, picture, [left, top, width, height]) {
  const narrower = width < picture.width;
  const lower = height < picture.height;
  let source = picture;
  if (narrower !== lower) {
    scratch ??= document.createElement("canvas");
    scratch.width = narrower ? Math.ceil(width) : picture.width;
    scratch.height = lower ? Math.ceil(height) : picture.height;
    const between = /** @type {CanvasRenderingContext2D} */ (scratch.getContext("2d"));
    between.imageSmoothingQuality = "high";
    between.drawImage(picture, 0, 0, scratch.width, scratch.height);
    source = scratch;
  }
  context.imageSmoothingEnabled = narrower && lower;
  context.imageSmoothingQuality = "high";
  context.drawImage(source, left, top, width, height);
}

/** @type {HTMLCanvasElement | undefined} */
let scratch;

/**
 * Paint a tile, and note whether something in it is not a number.
 *
 * @param {import("./protocol.js").Tile} tile with at least one value
 * @param {Paint} paint
 * @param {HTMLCanvasElement} picture
 */
export function paintTile(tile, paint, picture) {
  const { rows, columns, values } = tile;
  picture.width = columns;
  picture.height = rows;
  const context = /** @type {CanvasRenderingContext2D} */ (picture.getContext("2d"));
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const { colours, place } = paint;
  const zero = inMemory(colours.zero);
  let someMissing = false;
  if (!values) {
    pixels.fill(zero);
  } else {
    const table = tableOf(colours);
    const missing = inMemory(colours.missing);
    for (let at = 0; at < values.length; at += 1) {
      const value = values[at];
      if (value === 0) {
        pixels[at] = zero;
      } else if (value !== value) {
        pixels[at] = missing;
        someMissing = true;
      } else {
        pixels[at] = table[(place(value) * (STEPS - 1) + 0.5) | 0];
      }
    }
  }
  context.putImageData(image, 0, 0);
  return someMissing;
}

/** @type {WeakMap<import("./colours.js").Colours, Uint32Array>} */
const tables = new WeakMap();

/** @param {import("./colours.js").Colours} colours */
function tableOf(colours) {
  let table = tables.get(colours);
  if (!table) {
    table = Uint32Array.from(colours.steps, inMemory);
    tables.set(colours, table);
  }
  return table;
}

/**
 * Return a colour as the four bytes that a canvas holds, on little-endian machines, as all that run
 * browsers are.
 *
 * @param {import("./colours.js").Colour} colour
 */
function inMemory([red, green, blue]) {
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}
