/** Below the map: the text, sound or film that the map on show is about. */

import { arcsPanel } from "./arcs.js";
import { make } from "./dom.js";
import { Player } from "./player.js";
import { reader } from "./reader.js";

/** @typedef {import("./page.js").Page} Page */

export class Dock {
  element = make("div", { class: "hm-dock" });
  /** @type {Player | null} */
  player = null;
  #page;
  #strongest;
  #built = "";
  /** Ends what was built before. */
  #before = new AbortController();
  /** @type {(() => void)[]} */
  #shows = [];

  /**
   * @param {Page} page
   * @param {import("./strongest.js").Strongest} strongest the keys of the chosen query
   */
  constructor(page, strongest) {
    this.#page = page;
    this.#strongest = strongest;
    page.store.on(["layer"], () => this.build());
    page.ended.addEventListener("abort", () => this.#before.abort());
    this.build();
  }

  /** Build what the axes of the layer on show need, if that is not there already. */
  build() {
    const { layer, queries, keys, description } = this.#page;
    const wanted = `${layer.query_axis}/${layer.key_axis}`;
    if (wanted === this.#built) {
      return;
    }
    this.#built = wanted;
    this.#before.abort();
    this.#before = new AbortController();
    const { signal } = this.#before;
    this.element.replaceChildren();
    this.#shows = [];
    const same = queries === keys;
    if (same && queries.kind === "token") {
      this.#add(arcsPanel(this.#page, this.#strongest, signal));
    }
    if (queries.kind === "token") {
      this.#add(reader(this.#page, same ? "both" : "query", this.#strongest, signal));
    }
    if (!same && keys.kind === "token") {
      this.#add(reader(this.#page, "key", this.#strongest, signal));
    }
    const kinds = [queries, keys].map((places) => places.kind);
    const media = description.media.find(({ kind }) => kind !== "text" && kinds.includes(kind));
    this.player = media ? new Player(this.#page, media, signal) : null;
    if (this.player) {
      this.element.append(this.player.element);
    }
    this.element.hidden = this.element.childElementCount === 0;
  }

  /** Show again what depends on the names of positions. */
  namesCame() {
    this.#shows.forEach((show) => show());
    this.player?.show();
  }

  /** @param {{element: HTMLElement, show: () => void}} part */
  #add({ element, show }) {
    this.element.append(element);
    this.#shows.push(show);
  }
}
