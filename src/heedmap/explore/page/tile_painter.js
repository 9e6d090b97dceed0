/** From the values of a tile to its picture. */

import { STEPS } from "./colours.js";

/**
 * All that a picture depends on but the values; another object means painting again.
 *
 * @typedef {object} Paint
 * @property {import("./colours.js").Colours} colours
 * @property {(value: number) => number} place where on the scale a weight lies
 */

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
  paintTile(tile, paint, picture);
  tile.picture = picture;
  tile.paintedFor = paint;
  return picture;
}

/**
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
      } else {
        pixels[at] = table[(place(value) * (STEPS - 1) + 0.5) | 0];
      }
    }
  }
  context.putImageData(image, 0, 0);
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
