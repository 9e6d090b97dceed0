/** The strongest keys of the chosen query, or queries of the chosen key: asked once, shown often. */

import { steadily } from "./activity.js";

const COUNT = 40;

/** @typedef {{positions: number[], weights: (number | null)[], sum: number | null}} Top */

export class Strongest {
  /** @type {Top | null} null while none is chosen or nothing has come */
  top = null;
  /** @type {Set<() => void>} */
  #listeners = new Set();

  /**
   * @param {import("./page.js").Page} page
   * @param {"query" | "key"} which whose strongest partners are meant
   */
  constructor(page, which) {
    const side = which === "query" ? "rows" : "columns";
    const tell = () => this.#listeners.forEach((listener) => listener());
    const ask = steadily(page.activity, 90, async (signal) => {
      const chosen = page.state[which];
      if (chosen !== null) {
        const path = `${side}/${page.path}/${chosen}/top?count=${COUNT}`;
        this.top = await page.transport.json(path, signal);
        tell();
      }
    });
    page.store.on(["layer", "head", which], () => {
      // While a sound is played, the list before stays until the next one has come.
      if (page.state[which] === null) {
        this.top = null;
        tell();
      }
      ask();
    });
    ask();
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
