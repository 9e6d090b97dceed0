/** A sound or a film: one moment, and which moments it looks at. */

import { draw, make } from "./dom.js";
import { percent } from "./lesson_format.js";
import { waiting } from "./lesson_waiting.js";
import { wholeMap } from "./lesson_whole_map.js";
import { TransportError } from "./transport.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */
/** @typedef {"voices" | "film"} Name */

/**
 * @typedef {object} Timeline
 * @property {"audio" | "video"} kind
 * @property {number} scene
 * @property {number} layer
 * @property {number} head
 * @property {number} first the moment to begin with
 * @property {[number, number][]} seconds
 * @property {[number, number, string][]} parts
 */

/**
 * @typedef {object} Row
 * @property {number[]} weights
 * @property {number} near
 * @property {Record<string, [weight: number, time: number]>} far
 */

const HEIGHT = 100;
const PARTS_HEIGHT = 22;

/**
 * Return the example, which loads when it is asked to.
 *
 * @param {Lesson} lesson
 * @param {Name} name
 */
export function timelineExample(lesson, name) {
  const { program } = lesson.source;
  const place = make("div", {});
  const { line, wait } = waiting(lesson);
  const open = lesson.text("button", `${name}_open`, {}, { type: "button", class: "hm-small" });
  open.addEventListener("click", async () => {
    if (program) {
      open.disabled = true;
      await wait(program.timeline(name), (timeline) => {
        lesson.store.set({ timelines: { ...lesson.state.timelines, [name]: timeline } });
        show(timeline);
      });
      open.disabled = false;
    }
  });
  const show = (/** @type {Timeline} */ timeline) => {
    open.hidden = true;
    place.replaceChildren(new TimelineView(lesson, name, timeline).element);
  };
  const opened = lesson.state.timelines[name];
  if (opened) {
    show(opened);
  }
  return make(
    "div",
    { class: "ls-example", "data-example": name },
    lesson.text("h3", name),
    lesson.text("p", `${name}_says`),
    program ? open : lesson.text("p", "needs_program", {}, { class: "ls-note" }),
    line,
    place,
  );
}

class TimelineView {
  #query;
  #asked = -1;
  #busy = false;

  /**
   * @param {Lesson} lesson
   * @param {Name} name
   * @param {Timeline} timeline
   */
  constructor(lesson, name, timeline) {
    this.lesson = lesson;
    this.name = name;
    this.timeline = timeline;
    this.#query = timeline.first;
    const address = `/scenes/${timeline.scene}/media/0`;
    const kind = timeline.kind === "video" ? "video" : "audio";
    this.media = make(kind, { controls: "", preload: "auto", src: address });
    this.other = timeline.kind === "video" ? make("video", { preload: "auto", src: address }) : null;
    this.strip = draw("svg", {
      class: "ls-strip",
      viewBox: `0 0 ${timeline.seconds.length} ${HEIGHT + PARTS_HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": lesson.say("strip"),
    });
    this.slider = make("input", {
      type: "range",
      min: "0",
      max: String(timeline.seconds.length - 1),
      "aria-label": lesson.say("moment"),
    });
    this.said = make("p", { class: "ls-said", "aria-live": "polite" });
    this.shares = make("div", { class: "ls-shares" });
    this.trouble = make("p", { class: "ls-busy ls-trouble", role: "status" });
    this.element = make(
      "div",
      { class: "ls-timeline" },
      this.#screens(),
      this.strip,
      this.#legend(),
      this.slider,
      this.said,
      this.shares,
      this.trouble,
      wholeMap(lesson, timeline.scene),
    );
    this.#listen();
    this.#go(timeline.first, { seek: true });
  }

  /** Say which colour is whose. */
  #legend() {
    const names = [...new Set(this.timeline.parts.map(([, , name]) => name))].sort();
    return make(
      "ul",
      { class: "ls-legend" },
      ...names.map((name) =>
        make(
          "li",
          {},
          make("i", { class: `ls-part ls-part-${partNumber(name)}` }),
          this.lesson.say(`${this.name}_part`, { name }),
        ),
      ),
    );
  }

  #screens() {
    if (!this.other) {
      return this.media;
    }
    return make(
      "div",
      { class: "ls-screens" },
      make("figure", {}, this.lesson.text("figcaption", "screen_now"), this.media),
      make("figure", {}, this.lesson.text("figcaption", "screen_looked_at"), this.other),
    );
  }

  #listen() {
    this.slider.addEventListener("input", () => this.#go(this.slider.valueAsNumber, { seek: true }));
    this.media.addEventListener("timeupdate", () => {
      if (!this.media.paused) {
        this.#go(this.#positionAt(this.media.currentTime), { seek: false });
      }
    });
    this.strip.addEventListener("click", (event) => {
      const { left, width } = this.strip.getBoundingClientRect();
      const part = (event.clientX - left) / width;
      this.#go(Math.floor(part * this.timeline.seconds.length), { seek: true });
    });
  }

  /** @param {number} seconds */
  #positionAt(seconds) {
    const found = this.timeline.seconds.findIndex(([, end]) => end > seconds);
    return found < 0 ? this.timeline.seconds.length - 1 : found;
  }

  /**
   * @param {number} query
   * @param {{seek: boolean}} how
   */
  #go(query, { seek }) {
    this.#query = query;
    this.slider.value = String(query);
    const [start, end] = this.timeline.seconds[query];
    if (seek) {
      this.media.currentTime = (start + end) / 2;
    }
    this.#ask();
  }

  /** Ask for the row of the newest moment, one at a time; one that did not come may be asked for again. */
  async #ask() {
    const { program } = this.lesson.source;
    if (this.#busy || this.#asked === this.#query || !program) {
      return;
    }
    this.#busy = true;
    const asked = (this.#asked = this.#query);
    this.trouble.textContent = "";
    try {
      this.#show(asked, await program.row(this.name, asked));
    } catch (error) {
      if (!(error instanceof TransportError)) {
        throw error;
      }
      this.trouble.textContent = error.said || this.lesson.say("no_answer");
      this.#asked = -1;
    } finally {
      this.#busy = false;
    }
    if (asked !== this.#query) {
      this.#ask();
    }
  }

  /**
   * @param {number} query
   * @param {Row} row
   */
  #show(query, row) {
    const { seconds, parts } = this.timeline;
    const size = seconds.length;
    const [first, last] = [seconds[0][0], seconds[size - 1][1]];
    const across = (/** @type {number} */ time) => ((time - first) / (last - first)) * size;
    const largest = Math.max(...row.weights);
    const line = row.weights
      .map((weight, at) => `L ${at} ${HEIGHT * (1 - weight / largest)} h 1`)
      .join(" ");
    this.strip.replaceChildren(
      draw("path", { class: "ls-strip-weights", d: `M 0 ${HEIGHT} ${line} L ${size} ${HEIGHT} z` }),
      ...parts.map(([start, end, name]) =>
        draw("rect", {
          class: `ls-part ls-part-${partNumber(name)}`,
          x: across(start),
          y: HEIGHT + 3,
          width: across(end) - across(start),
          height: PARTS_HEIGHT - 3,
        }),
      ),
      draw("rect", {
        class: "ls-now",
        x: query,
        y: 0,
        width: Math.max(1, size / 300),
        height: HEIGHT + PARTS_HEIGHT,
      }),
    );
    this.#say(query, row);
    if (this.other) {
      this.other.currentTime = middle(seconds[this.#bestElsewhere(query, row)]);
    }
  }

  /**
   * Return the moment that gets most, of those in other parts: another shot, or the same one again.
   *
   * @param {number} query
   * @param {Row} row
   */
  #bestElsewhere(query, row) {
    const own = this.#partsAt(query);
    const weights = row.weights.map((weight, at) =>
      this.#partsAt(at).some((part) => own.includes(part)) ? -1 : weight,
    );
    return weights.indexOf(Math.max(...weights));
  }

  /**
   * Return the parts that a moment lies in; two may speak at once.
   *
   * @param {number} at
   */
  #partsAt(at) {
    const time = middle(this.timeline.seconds[at]);
    return this.timeline.parts.filter(([start, end]) => start <= time && time < end);
  }

  /**
   * @param {number} query
   * @param {Row} row
   */
  #say(query, row) {
    const parts = this.#partsAt(query).map(([, , name]) =>
      this.lesson.say(`${this.name}_part`, { name }),
    );
    const name = parts.join(" + ") || this.lesson.say("no_part");
    const values = {
      seconds: middle(this.timeline.seconds[query]).toFixed(2),
      part: name,
      near: percent(row.near),
    };
    this.said.replaceChildren(...this.lesson.text("span", "moment_says", values).childNodes);
    this.shares.replaceChildren(
      make("span"),
      this.lesson.text("span", "share_of_weight"),
      this.lesson.text("span", "share_of_time"),
      make("span"),
      ...Object.entries(row.far).flatMap(([key, [weight, time]]) => {
        const bar = make("span", { class: "ls-share-bar" });
        bar.style.setProperty("--part", String(weight));
        return [
          make("span", {}, this.lesson.say(`${this.name}_part`, { name: key })),
          make("strong", { "data-share": key, "data-value": String(weight) }, `${percent(weight)} %`),
          make("span", {}, `${percent(time)} %`),
          bar,
        ];
      }),
    );
  }
}

/** @param {[number, number]} span */
function middle([start, end]) {
  return (start + end) / 2;
}

/** @param {string} name */
function partNumber(name) {
  return /^[A-Z]$/.test(name) ? name.charCodeAt(0) - 64 : Number(name);
}
