/** A transport that asks again when nobody answers, and says what is wrong meanwhile. */

import { TransportError } from "./transport.js";

const LONGEST_PAUSE_MS = 8000;

/**
 * Return `transport` with patience: what is busy or gone is asked again, more and more seldom.
 *
 * @param {import("./transport.js").Transport} transport
 * @param {import("./activity.js").Activity} activity told of every request
 * @param {(error: TransportError) => () => void} onTrouble called when a request fails; what comes
 *   back is called when the same request needs no more waiting for
 * @param {AbortSignal} ended when the page is gone, nothing is asked any more
 * @returns {import("./transport.js").Transport}
 */
export function patient(transport, activity, onTrouble, ended) {
  /**
   * @template T
   * @param {AbortSignal | undefined} signal
   * @param {(signal: AbortSignal) => Promise<T>} ask
   * @returns {Promise<T>}
   */
  async function persist(signal, ask) {
    const stop = signal ? AbortSignal.any([signal, ended]) : ended;
    let over = () => {};
    try {
      for (let attempt = 0; ; attempt += 1) {
        try {
          stop.throwIfAborted();
          return await ask(stop);
        } catch (error) {
          if (stop.aborted || !(error instanceof TransportError)) {
            throw error;
          }
          over();
          if (error.trouble !== "missing") {
            over = onTrouble(error);
          }
          if (error.trouble !== "gone" && error.trouble !== "busy") {
            throw error;
          }
          const asked = (error.retryAfterSeconds ?? 0) * 1000;
          await pause(Math.max(asked, Math.min(LONGEST_PAUSE_MS, 400 * 2 ** attempt)), stop);
        }
      }
    } finally {
      over();
    }
  }

  return {
    json: (path, signal) =>
      activity.during(persist(signal, (stop) => transport.json(path, stop))),
    bytes: (path, signal) =>
      activity.during(persist(signal, (stop) => transport.bytes(path, stop))),
    tiles: (names, onTile, signal) => {
      const come = new Set();
      return activity.during(
        persist(signal, (stop) => {
          const open = names.map((_, place) => place).filter((place) => !come.has(place));
          return transport.tiles(
            open.map((place) => names[place]),
            (place, bytes) => {
              come.add(open[place]);
              onTile(open[place], bytes);
            },
            stop,
          );
        }),
      );
    },
    mediaUrl: (name) => transport.mediaUrl(name),
  };
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        reject(signal.reason);
      },
      { once: true },
    );
  });
}
