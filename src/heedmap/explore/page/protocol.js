/** What comes over the wire: the description, axes, and tiles in their bytes. */

/**
 * @typedef {object} Layer
 * @property {string} name
 * @property {string} kind
 * @property {number} queries
 * @property {number} keys
 * @property {number} zooms the deepest zoom, at which a pixel is one weight
 * @property {number[]} [deepest] for each head, the level whose pixels are the smallest blocks that are
 *   known; below 0 where they are larger than the pixels of zoom 0. As `zooms` unless given
 * @property {number} query_axis
 * @property {number} key_axis
 * @property {string[]} heads
 * @property {string[]} labels what each head does, or an empty text
 */

/** @typedef {{kind: string, unit: string, size: number}} AxisSummary */
/** @typedef {{name: string, kind: string, type: string, title: string}} Media */

/**
 * @typedef {object} Description
 * @property {number} schema
 * @property {string} name
 * @property {string} model
 * @property {string} kind
 * @property {Layer[]} layers
 * @property {AxisSummary[]} axes
 * @property {Media[]} media
 * @property {{layer: number, head: number, query: number | null}} chosen
 * @property {string[]} notes
 */

/**
 * @typedef {object} Axis
 * @property {string} kind
 * @property {string} unit
 * @property {string} text
 * @property {string[]} labels
 * @property {[number, number][]} spans
 * @property {[number, number][]} frames
 */

/**
 * A tile with its values, row by row; `values` is null where every weight is 0.
 *
 * @typedef {object} Tile
 * @property {Float32Array | null} values
 * @property {boolean} exact
 * @property {number} rows
 * @property {number} columns
 * @property {number} largest
 */

/** The schema of descriptions that this page can read. */
export const SCHEMA = 1;

/** How many pixels a side of a tile has. */
export const TILE = 256;

const HEADER_BYTES = 16;
const MAGIC = 0x31544d48; // "HMT1", as a little-endian number

/**
 * Return a tile from its bytes.
 *
 * @param {ArrayBuffer} bytes
 * @returns {Tile}
 */
export function readTile(bytes) {
  const header = new DataView(bytes);
  if (bytes.byteLength < HEADER_BYTES || header.getUint32(0, true) !== MAGIC) {
    throw new Error("not a tile");
  }
  const rows = header.getUint16(6, true);
  const columns = header.getUint16(8, true);
  const full = header.getUint8(4) === 2;
  return {
    values: full ? new Float32Array(bytes, HEADER_BYTES, rows * columns) : null,
    exact: header.getUint8(5) === 1,
    rows,
    columns,
    largest: header.getFloat32(12, true),
  };
}

/**
 * Takes the answer of `POST /tiles` apart as it comes, piece by piece. A tile of no bytes is one
 * that could not be computed.
 */
export class BatchReader {
  /** How many tiles have come. */
  count = 0;
  #target = new Uint8Array(8);
  #filled = 0;
  /** @type {number | null} */
  #place = null;
  #onTile;

  /** @param {(place: number, bytes: ArrayBuffer) => void} onTile */
  constructor(onTile) {
    this.#onTile = onTile;
  }

  /** @param {Uint8Array} piece */
  push(piece) {
    let at = 0;
    while (at < piece.length) {
      const taken = Math.min(this.#target.length - this.#filled, piece.length - at);
      this.#target.set(piece.subarray(at, at + taken), this.#filled);
      at += taken;
      this.#filled += taken;
      if (this.#filled === this.#target.length) {
        this.#finish();
      }
    }
  }

  #finish() {
    this.#filled = 0;
    if (this.#place === null) {
      const head = new DataView(this.#target.buffer);
      this.#place = head.getUint32(0, true);
      this.#target = new Uint8Array(head.getUint32(4, true));
      if (this.#target.length > 0) {
        return;
      }
    }
    const whole = this.#target;
    const place = this.#place;
    this.#place = null;
    this.#target = new Uint8Array(8);
    this.count += 1;
    this.#onTile(place, whole.buffer);
  }
}
