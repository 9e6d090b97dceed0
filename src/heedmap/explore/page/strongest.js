/** The strongest keys of the chosen query, or queries of the chosen key: asked once, shown often. */

import { askLater, steadily } from "./activity.js";

const COUNT = 40;

/**
 * @typedef {object} Top
 * @property {number[]} positions
 * @property {(number | null)[]} weights
 * @property {number | null} sum
 * @property {boolean} [exact] false where only some rows were read so far
 */

export class Strongest {
  /** @type {Top | null} the last that came, maybe of what was chosen before; null for none */
  last = null;
  #of = "";
  #page;
  #which;
  /** @type {Set<() => void>} */
  #listeners = new Set();

  /**
   * @param {import("./page.js").Page} page
   * @param {"query" | "key"} which whose strongest partners are meant
   */
  constructor(page, which) {
    this.#page = page;
    this.#which = which;
    const side = which === "query" ? "rows" : "columns";
    const tell = () => this.#listeners.forEach((listener) => listener());
    const ask = steadily(page.activity, 90, async (signal) => {
      const { path } = page;
      const chosen = page.state[which];
      if (chosen !== null) {
        const address = `${side}/${path}/${chosen}/top?count=${COUNT}`;
        this.last = await page.transport.json(address, signal);
        this.#of = `${path}/${chosen}`;
        tell();
        if (this.last?.exact === false) {
          askLater(page, ask);
        }
      }
    });
    page.store.on(["layer", "head", which], () => {
      // While a sound is played, the list before stays until the next one has come.
      if (page.state[which] === null) {
        this.last = null;
      }
      tell();
      ask();
    });
    ask();
  }

  /** What came, if it is of what is chosen now. */
  get top() {
    const now = `${this.#page.path}/${this.#page.state[this.#which]}`;
    return this.#of === now ? this.last : null;
  }

  /**
   * @param {() => void} listener called when other partners are known
   * @param {AbortSignal} [ended] until when
   */
  onChange(listener, ended) {
    this.#listeners.add(listener);
    ended?.addEventListener("abort", () => this.#listeners.delete(listener));
  }
}
