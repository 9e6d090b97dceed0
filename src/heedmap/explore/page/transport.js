/** How the page talks with what computes: the interface, whatever carries it. */

/** @typedef {[layer: number, head: number, statistic: string, zoom: number, x: number, y: number]} TileName */

/**
 * All that the page asks of the program. Paths are those of docs/explore.md, without the slash in
 * front. What does not come ends in a `TransportError`; what is aborted, in the signal's reason.
 *
 * @typedef {object} Transport
 * @property {(path: string, signal?: AbortSignal) => Promise<any>} json
 *   An answer in JSON.
 * @property {(path: string, signal?: AbortSignal) => Promise<ArrayBuffer>} bytes
 *   An answer in bytes, such as a thumbnail.
 * @property {(names: TileName[], onTile: (place: number, bytes: ArrayBuffer) => void,
 *   signal?: AbortSignal) => Promise<void>} tiles
 *   Many tiles, each handed over as it comes with its place in `names`.
 * @property {(name: string) => Promise<string>} mediaUrl
 *   An address that a media element can play.
 * @property {(name: string) => Promise<void>} checkMedia
 *   Ends well while what the address leads to can be had as it was.
 */

/**
 * What went wrong: nobody answers, the cookie is missing, there is too much to do, there is no such
 * thing, the file behind it has changed or is no longer there, or the request was refused.
 *
 * @typedef {"gone" | "unauthorised" | "busy" | "missing" | "changed" | "lost" | "refused"} Trouble
 */

/** @type {Record<number, Trouble>} what the status of an answer means; else it is "refused" */
export const TROUBLES = {
  401: "unauthorised",
  404: "missing",
  409: "changed",
  410: "lost",
  429: "busy",
  503: "busy",
};

/** A request that was not answered as it should have been. */
export class TransportError extends Error {
  /**
   * @param {Trouble} trouble
   * @param {string} [message] what the program said of it
   * @param {number} [retryAfterSeconds] when to ask again, where the program said so
   */
  constructor(trouble, message = "", retryAfterSeconds = undefined) {
    super(message || trouble);
    this.trouble = trouble;
    this.said = message;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}
