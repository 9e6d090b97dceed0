/** What a file holds: an index and the bytes that it points into, as heedmap.explore.packing has it. */

/** @typedef {{ at: number, bytes: number }} Piece */
/** @typedef {Piece & { bits: 16 | 32, largest: number, rows: number, columns: number }} Weights */

/** An index, and its pieces. */
export class Unpacked {
  /** @type {any} */
  index;
  #bytes;
  #start;

  /** @param {ArrayBuffer} bytes */
  constructor(bytes) {
    const size = new DataView(bytes).getUint32(0, true);
    this.index = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, size)));
    this.#bytes = bytes;
    this.#start = 4 + size;
  }

  /**
   * @param {Piece} piece
   * @returns {Uint8Array<ArrayBuffer>}
   */
  raw(piece) {
    return new Uint8Array(this.#bytes, this.#start + piece.at, piece.bytes);
  }

  /** @param {Piece} piece */
  integers(piece) {
    return new Int32Array(this.#bytes, this.#start + piece.at, piece.bytes / 4);
  }

  /** @param {Piece} piece */
  floats(piece) {
    return new Float32Array(this.#bytes, this.#start + piece.at, piece.bytes / 4);
  }

  /**
   * Return weights, which lie there as they are, or in half precision, divided by the largest.
   *
   * @param {Weights} piece
   */
  weights(piece) {
    if (piece.bits === 32) {
      return this.floats(piece);
    }
    const halves = new Uint16Array(this.#bytes, this.#start + piece.at, piece.bytes / 2);
    return Float32Array.from(halves, (half) => fromHalf(half) * piece.largest);
  }
}

/**
 * Return what a text in base64 of compressed bytes holds.
 *
 * @param {string} packed
 */
export async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Unpacked(await new Response(stream).arrayBuffer());
}

/**
 * Return the number that 16 bits of half precision mean.
 *
 * @param {number} half
 */
export function fromHalf(half) {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) {
    return sign * fraction * 2 ** -24;
  }
  if (exponent === 0x1f) {
    return fraction ? NaN : sign * Infinity;
  }
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
