/** The state of the page, in one place; whoever shows a part of it listens to that part. */

/** @typedef {{x: number, y: number, zoom: number}} View the key and query in the middle, in cells */
/** @typedef {"mean" | "max" | "sum"} Statistic */
/** @typedef {{rows: [number, number], columns: [number, number]}} Block from, and to before */

/**
 * @typedef {object} State
 * @property {number} layer
 * @property {number} head
 * @property {Statistic} statistic
 * @property {string} colours
 * @property {"linear" | "log"} scale
 * @property {[number, number] | null} limits fixed ends of the scale; null: from what is visible
 * @property {View | null} view null: the whole map
 * @property {number | null} query
 * @property {number | null} key
 * @property {Block | null} block
 * @property {string} language
 * @property {"auto" | "light" | "dark"} theme
 * @property {boolean} brushing whether dragging marks a block
 * @property {boolean} following whether playing moves the row
 */

/** @typedef {(changed: Set<keyof State>, remembered: boolean) => void} Listener */

export class Store {
  /** @type {State} */
  #state;
  /** @type {Set<Listener>} */
  #listeners = new Set();

  /** @param {State} state */
  constructor(state) {
    this.#state = state;
  }

  /** The state as it is; never written into. */
  get state() {
    return this.#state;
  }

  /**
   * Change parts of the state and tell those who listen.
   *
   * @param {Partial<State>} parts
   * @param {{remembered?: boolean}} [how] whether the browser's history gets an entry
   */
  set(parts, { remembered = true } = {}) {
    const names = /** @type {(keyof State)[]} */ (Object.keys(parts));
    const changed = new Set(names.filter((name) => !same(parts[name], this.#state[name])));
    if (changed.size === 0) {
      return;
    }
    this.#state = { ...this.#state, ...parts };
    for (const listener of [...this.#listeners]) {
      listener(changed, remembered);
    }
  }

  /**
   * Call `listener` when one of `names` has changed.
   *
   * @param {(keyof State)[]} names
   * @param {() => void} listener
   * @param {AbortSignal} [ended] until when
   */
  on(names, listener, ended) {
    /** @type {Listener} */
    const told = (changed) => {
      if (names.some((name) => changed.has(name))) {
        listener();
      }
    };
    this.#listeners.add(told);
    ended?.addEventListener("abort", () => this.#listeners.delete(told));
  }

  /** @param {Listener} listener called at every change */
  onAny(listener) {
    this.#listeners.add(listener);
  }
}

/**
 * @param {unknown} one
 * @param {unknown} other
 */
function same(one, other) {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}
