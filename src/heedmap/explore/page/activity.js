/** Knows whether anything is under way: requests, waits before requests, frames to be drawn. */

export class Activity {
  #count = 0;
  /** @type {(() => void)[]} */
  #waiting = [];

  /**
   * Count `work` as under way until it has ended.
   *
   * @template T
   * @param {Promise<T>} work
   * @returns {Promise<T>}
   */
  async during(work) {
    const end = this.begin();
    try {
      return await work;
    } finally {
      end();
    }
  }

  /** Say that something has begun; the function that comes back says that it has ended. */
  begin() {
    this.#count += 1;
    let ended = false;
    return () => {
      if (!ended) {
        ended = true;
        this.#count -= 1;
        this.#tell();
      }
    };
  }

  /** Resolve when nothing has been under way for two frames. */
  async whenQuiet() {
    for (let still = 0; still < 2; ) {
      if (this.#count > 0) {
        still = 0;
        await new Promise((resolve) => this.#waiting.push(() => resolve(null)));
      } else {
        still += 1;
        await new Promise((resolve) => setTimeout(resolve, 17));
      }
    }
  }

  #tell() {
    if (this.#count === 0) {
      for (const resolve of this.#waiting.splice(0)) {
        resolve();
      }
    }
  }
}

/**
 * Return a function that runs `work` a moment after its last call, and aborts the run before.
 *
 * What a view asks for while it moves is asked once, when it rests.
 *
 * @template {any[]} Inputs
 * @param {Activity} activity
 * @param {number} delayMs
 * @param {(signal: AbortSignal, ...inputs: Inputs) => Promise<void> | void} work
 * @returns {(...inputs: Inputs) => void}
 */
export function latest(activity, delayMs, work) {
  /** @type {AbortController | null} */
  let running = null;
  let cancel = () => {};
  return (...inputs) => {
    cancel();
    running?.abort();
    const controller = (running = new AbortController());
    const end = activity.begin();
    const timer = setTimeout(async () => {
      try {
        await work(controller.signal, ...inputs);
      } catch (error) {
        throwUnlessExpected(error, controller.signal);
      } finally {
        end();
      }
    }, delayMs);
    cancel = () => {
      clearTimeout(timer);
      end();
    };
  };
}

/**
 * Return a function that runs `work` soon after its first call, with the inputs of its last one, and
 * aborts the run before only then: what changes all the time, as while a sound is played, is still
 * asked for now and then.
 *
 * @template {any[]} Inputs
 * @param {Activity} activity
 * @param {number} delayMs
 * @param {(signal: AbortSignal, ...inputs: Inputs) => Promise<void> | void} work
 * @returns {(...inputs: Inputs) => void}
 */
export function steadily(activity, delayMs, work) {
  const begin = latest(activity, 0, work);
  return nowAndThen(activity, delayMs, begin);
}

/**
 * Return a function that runs `work` soon after its first call, with the inputs of its last one.
 *
 * So what moves on and on is still followed, at most once in a while.
 *
 * @template {any[]} Inputs
 * @param {Activity} activity
 * @param {number} delayMs
 * @param {(...inputs: Inputs) => void} work
 * @returns {(...inputs: Inputs) => void}
 */
export function nowAndThen(activity, delayMs, work) {
  /** @type {Inputs | null} */
  let newest = null;
  return (...inputs) => {
    const waiting = newest !== null;
    newest = inputs;
    if (waiting) {
      return;
    }
    const end = activity.begin();
    setTimeout(() => {
      const last = /** @type {Inputs} */ (newest);
      newest = null;
      try {
        work(...last);
      } finally {
        end();
      }
    }, delayMs);
  };
}

/**
 * Throw an error again, unless the work was aborted, by its own signal or with the whole page, or the
 * banner has said what is wrong.
 *
 * @param {unknown} error
 * @param {AbortSignal} [signal]
 */
export function throwUnlessExpected(error, signal) {
  const told = error instanceof Error && "trouble" in error;
  const aborted = error instanceof DOMException && error.name === "AbortError";
  if (!signal?.aborted && !aborted && !told) {
    throw error;
  }
}

const LATER_MS = 1500;

/**
 * Ask once more in a while, unless the page is gone by then.
 *
 * @param {import("./page.js").Page} page
 * @param {() => void} ask
 */
export function askLater(page, ask) {
  setTimeout(() => page.ended.aborted || ask(), LATER_MS);
}
