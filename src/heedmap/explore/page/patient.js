/** A transport that asks again when nobody answers, and says what is wrong meanwhile. */

import { TransportError } from "./transport.js";

const LONGEST_PAUSE_MS = 8000;

/**
 * Return `transport` with patience: what is busy or gone is asked again, more and more seldom. While
 * nobody answers, only one request at a time finds out whether somebody does again.
 *
 * @param {import("./transport.js").Transport} transport
 * @param {import("./activity.js").Activity} activity told of every request
 * @param {(error: TransportError) => () => void} onTrouble called when a request fails; what comes
 *   back is called when the same request needs no more waiting for
 * @param {AbortSignal} ended when the page is gone, nothing is asked any more
 * @returns {import("./transport.js").Transport}
 */
export function patient(transport, activity, onTrouble, ended) {
  const outage = new Outage();

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
        const leave = await outage.turn(stop);
        try {
          stop.throwIfAborted();
          const answer = await ask(stop);
          outage.end();
          return answer;
        } catch (error) {
          if (stop.aborted || !(error instanceof TransportError)) {
            throw error;
          }
          over();
          if (error.trouble !== "missing") {
            over = onTrouble(error);
          }
          if (error.trouble === "gone") {
            outage.begin();
            continue;
          }
          outage.end();
          if (error.trouble !== "busy") {
            throw error;
          }
          const asked = (error.retryAfterSeconds ?? 0) * 1000;
          await pause(Math.max(asked, pauseAfter(attempt)), stop);
        } finally {
          leave();
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
    checkMedia: (name) => transport.checkMedia(name),
  };
}

/** The time in which nobody answers: requests take turns, with longer and longer pauses. */
class Outage {
  #lasts = false;
  #attempts = 0;
  /** @type {Promise<void> | null} ends when the request whose turn it is has ended */
  #asking = null;

  begin() {
    this.#lasts = true;
  }

  end() {
    this.#lasts = false;
    this.#attempts = 0;
  }

  /**
   * Wait until it is a request's turn, which it is at once unless nobody answers; what comes back is
   * to be called when the request has ended.
   *
   * @param {AbortSignal} stop
   * @returns {Promise<() => void>}
   */
  async turn(stop) {
    stop.throwIfAborted();
    while (this.#asking) {
      await Promise.race([this.#asking, aborted(stop)]);
      stop.throwIfAborted();
    }
    if (!this.#lasts) {
      return () => {};
    }
    let leave = () => {};
    this.#asking = new Promise((resolve) => {
      leave = () => {
        this.#asking = null;
        resolve();
      };
    });
    try {
      await pause(pauseAfter(this.#attempts), stop);
    } catch (error) {
      leave();
      throw error;
    }
    this.#attempts += 1;
    return leave;
  }
}

/** @param {number} attempt how many have failed before */
function pauseAfter(attempt) {
  return Math.min(LONGEST_PAUSE_MS, 400 * 2 ** attempt);
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function aborted(signal) {
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
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
