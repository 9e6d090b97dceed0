/** The sound or film of a map: choosing a moment goes there, and playing moves the row. */

import { TROUBLE_WORDS } from "./banner.js";
import { throwUnlessExpected } from "./activity.js";
import { data, make } from "./dom.js";
import { icon } from "./icons.js";
import { TransportError } from "./transport.js";

/** @typedef {import("./page.js").Page} Page */

/** Shorter moments are played with something before and after: 20 ms alone are only a click. */
const SHORTEST_SECONDS = 0.6;

export class Player {
  element = make("section", { class: "hm-panel hm-player" });
  #page;
  #media;
  /** @type {HTMLMediaElement} */
  #player;
  /** @type {HTMLVideoElement | null} the frame of the key, beside that of the query */
  #other = null;
  /** The time to which we went ourselves; where people go, the row follows. */
  #sent = -1;
  /** Until when a single moment is played. */
  #until = Infinity;
  #leading = false;
  /** @type {Map<"query" | "key", HTMLButtonElement>} what plays a single moment */
  #plays = new Map();
  #ended;
  #trouble = make("p", { role: "alert", hidden: "" });

  /**
   * @param {Page} page
   * @param {import("./protocol.js").Media} media
   * @param {AbortSignal} ended when it is no longer shown
   */
  constructor(page, media, ended) {
    this.#page = page;
    this.#ended = ended;
    this.#media = media;
    const film = media.kind === "video";
    this.#player = make(film ? "video" : "audio", { controls: "", preload: "auto" });
    this.#player.setAttribute("playsinline", "");
    this.#player.setAttribute("aria-label", media.title);
    const row = make("div", { class: film ? "hm-row" : "" }, this.#pictures(film), this.#buttons());
    this.element.append(data("h2", media.title), row, this.#trouble);
    this.#listen();
    this.#load();
  }

  /** Play the moment of the chosen query, or that of the chosen key. */
  play(/** @type {"query" | "key"} */ which) {
    const span = this.#spanOf(which);
    if (span) {
      const [start, end] = span;
      const around = Math.max(0, SHORTEST_SECONDS - (end - start)) / 2;
      this.#until = end + around;
      this.#goTo(Math.max(0, start - around));
      this.#player.play().catch(() => {});
    }
  }

  /** Start or stop playing. */
  toggle() {
    this.#until = Infinity;
    if (this.#player.paused) {
      this.#player.play().catch(() => {});
    } else {
      this.#player.pause();
    }
  }

  /** Show the moments that are chosen. */
  show() {
    this.#enable();
    if (this.#leading) {
      return;
    }
    const main = this.#spanOf(this.#main);
    if (main && this.#player.paused) {
      this.#goTo(middleOf(main));
    }
    this.#showOther();
  }

  /** Let moments be played that are chosen and known. */
  #enable() {
    for (const [which, play] of this.#plays) {
      play.disabled = this.#spanOf(which) === null;
    }
  }

  /** Which side the player follows: queries, if they are moments. */
  get #main() {
    return this.#page.queries.unit === "second" ? "query" : "key";
  }

  #showOther() {
    const key = this.#spanOf("key");
    if (key && this.#other) {
      this.#other.currentTime = middleOf(key);
    }
  }

  /** @param {"query" | "key"} which */
  #spanOf(which) {
    const places = which === "query" ? this.#page.queries : this.#page.keys;
    return places.span(this.#page.state[which]);
  }

  /** @param {boolean} film */
  #pictures(film) {
    if (!film) {
      return this.#player;
    }
    const { words } = this.#page;
    const both = this.#page.queries.unit === "second" && this.#page.keys.unit === "second";
    const captioned = (/** @type {HTMLElement} */ picture, /** @type {"query" | "key"} */ word) =>
      make("figure", {}, picture, words.put(make("figcaption", { class: `hm-of-${word}` }), word));
    const pictures = make("div", { class: "hm-pictures" }, captioned(this.#player, this.#main));
    if (both) {
      this.#other = make("video", { preload: "auto", playsinline: "" });
      this.#other.muted = true;
      words.name(this.#other, "frame_of_key");
      pictures.append(captioned(this.#other, "key"));
    }
    return pictures;
  }

  #buttons() {
    const { words, store, state } = this.#page;
    const follow = make("input", { type: "checkbox" });
    follow.checked = state.following;
    follow.addEventListener("change", () => store.set({ following: follow.checked }));
    const row = make("div", { class: "hm-group" });
    for (const which of /** @type {const} */ (["query", "key"])) {
      const places = which === "query" ? this.#page.queries : this.#page.keys;
      if (places.unit === "second") {
        const word = words.put(make("span"), which === "query" ? "hear_query" : "hear_key");
        const play = make("button", { type: "button", class: "hm-small" }, icon("play"), word);
        play.dataset.hear = which;
        play.addEventListener("click", () => this.play(which));
        play.disabled = true;
        this.#plays.set(which, play);
        row.append(play);
      }
    }
    row.append(make("label", { class: "hm-check" }, follow, words.put(make("span"), "follow")));
    return row;
  }

  #listen() {
    const player = this.#player;
    player.addEventListener("play", () => this.#whilePlaying());
    player.addEventListener("seeked", () => {
      if (Math.abs(player.currentTime - this.#sent) > 0.05) {
        this.#until = Infinity;
        this.#follow();
      }
      this.#sent = -1;
    });
    player.addEventListener("error", async () => {
      const { transport, words } = this.#page;
      try {
        await transport.checkMedia(this.#media.name);
        words.put(this.#trouble, "cannot_play");
        this.#trouble.hidden = false;
      } catch (error) {
        this.#tell(error);
      }
    });
    player.addEventListener("loadedmetadata", () => (this.#trouble.hidden = true));
    this.#page.store.on(["query", "key", "layer"], () => this.show(), this.#ended);
    this.#ended.addEventListener("abort", () => player.pause());
  }

  #whilePlaying() {
    if (this.#player.paused || this.#ended.aborted) {
      return;
    }
    if (this.#player.currentTime >= this.#until) {
      this.#player.pause();
      this.#until = Infinity;
      return;
    }
    // A single moment is played with its surroundings, and the row stays on it.
    if (this.#until === Infinity) {
      this.#follow();
    }
    requestAnimationFrame(() => this.#whilePlaying());
  }

  #follow() {
    const places = this.#main === "query" ? this.#page.queries : this.#page.keys;
    if (this.#page.state.following && places.axis && places.size > 0) {
      const position = places.at(this.#player.currentTime);
      if (position !== this.#page.state[this.#main]) {
        this.#leading = true;
        this.#page.choose({ [this.#main]: position }, { remembered: false });
        this.#leading = false;
      }
    }
  }

  /** @param {number} seconds */
  #goTo(seconds) {
    // Beyond its end a player goes to the end.
    this.#sent = Math.min(seconds, this.#player.duration || seconds);
    this.#player.currentTime = seconds;
  }

  /**
   * Say why there is nothing to be heard or seen.
   *
   * @param {unknown} error
   */
  #tell(error) {
    const trouble = error instanceof TransportError ? error.trouble : "refused";
    this.#page.words.put(this.#trouble, TROUBLE_WORDS[trouble]);
    this.#trouble.hidden = false;
  }

  async #load() {
    let address = "";
    try {
      address = await this.#page.transport.mediaUrl(this.#media.name);
    } catch (error) {
      throwUnlessExpected(error, this.#ended);
      this.#tell(error);
      return;
    }
    this.#player.src = address;
    if (this.#other) {
      this.#other.src = address;
    }
    this.#player.addEventListener("loadedmetadata", () => this.show(), { once: true });
    this.#other?.addEventListener("loadedmetadata", () => this.#showOther(), { once: true });
  }
}

/** @param {[number, number]} span */
function middleOf([start, end]) {
  return (start + end) / 2;
}
