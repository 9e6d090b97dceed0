/** The map with what stands around it: its size, its view, and when it is drawn. */

import { Frame } from "./frame.js";
import { make } from "./dom.js";
import { inksOf } from "./surface.js";

const FLIGHT_MS = 180;

/** @typedef {(frame: Frame, inks: import("./surface.js").Inks) => void} Drawing */

export class Stage {
  element = make("div", { class: "hm-stage" });
  /** The map itself, on which everything is pointed at. */
  map = make("div", { class: "hm-map" });
  /** @type {Drawing[]} */
  #drawings = [];
  /** @type {Drawing[]} drawn alone where only a pointer has moved */
  #marks = [];
  #width = 0;
  #height = 0;
  #asked = { all: false, marks: false };
  #flight = 0;
  #page;
  /** @type {import("./surface.js").Inks | null} */
  #inks = null;

  /** @param {import("./page.js").Page} page */
  constructor(page) {
    this.#page = page;
    const observer = new ResizeObserver(() => this.#measure());
    observer.observe(this.map);
    page.ended.addEventListener("abort", () => observer.disconnect());
    page.store.onAny(() => this.redraw());
    page.store.on(["theme"], () => this.forgetInks());
  }

  /** The frame of what is seen now. */
  get frame() {
    const { layer, state } = this.#page;
    return new Frame(layer, this.#width, this.#height, state.view);
  }

  /** Read the colours of the theme again. */
  forgetInks() {
    this.#inks = null;
    this.redraw();
  }

  get inks() {
    return (this.#inks ??= inksOf(this.#page.root));
  }

  /** @param {Drawing} drawing */
  onDraw(drawing) {
    this.#drawings.push(drawing);
  }

  /** @param {Drawing} drawing drawn with the rest, and when a pointer moves */
  onMark(drawing) {
    this.#marks.push(drawing);
  }

  /** Draw everything at the next frame. */
  redraw() {
    this.#schedule({ all: true, marks: true });
  }

  /** Draw everything at once: paper waits for no frame. */
  drawNow() {
    this.#draw([...this.#drawings, ...this.#marks]);
  }

  /** Draw what marks the map, and leave the map as it is. */
  remark() {
    this.#schedule({ all: false, marks: true });
  }

  /**
   * Show another part of the map.
   *
   * @param {import("./store.js").View | null} view null: all of it
   */
  moveTo(view) {
    this.#flight += 1;
    this.#look(view);
  }

  /**
   * Go to another part of the map in a short flight.
   *
   * @param {import("./store.js").View | null} view
   */
  flyTo(view) {
    const start = this.frame;
    const end = new Frame(this.#page.layer, this.#width, this.#height, view);
    if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.moveTo(view);
      return;
    }
    const flight = (this.#flight += 1);
    const finished = this.#page.activity.begin();
    const began = performance.now();
    const step = () => {
      const part = Math.min(1, (performance.now() - began) / FLIGHT_MS);
      if (flight !== this.#flight || part === 1 || this.#page.ended.aborted) {
        if (flight === this.#flight) {
          this.#look(view);
        }
        finished();
        return;
      }
      this.#look(between(start, end, part * (2 - part)));
      requestAnimationFrame(step);
    };
    step();
  }

  /**
   * Zoom about a pixel, the middle unless it is given.
   *
   * @param {number} levels
   * @param {number} [left]
   * @param {number} [top]
   */
  zoomBy(levels, left = this.#width / 2, top = this.#height / 2) {
    const { frame } = this;
    this.flyTo(frame.zoomedTo(frame.zoom + levels, left, top));
  }

  /**
   * Move the map so that a query and a key are seen, if they are not.
   *
   * @param {number | null} query
   * @param {number | null} key
   */
  show(query, key) {
    const { frame } = this;
    const hidden = (/** @type {number} */ start, /** @type {number} */ size, /** @type {number} */ room) =>
      start < 0 || start + size > room;
    const x = key !== null && hidden(frame.left(key), Math.min(frame.across, 8), frame.width);
    const y = query !== null && hidden(frame.top(query), Math.min(frame.down, 8), frame.height);
    if (x || y) {
      this.flyTo({
        x: x && key !== null ? key + 0.5 : frame.x,
        y: y && query !== null ? query + 0.5 : frame.y,
        zoom: frame.zoom,
      });
    }
  }

  /** @param {import("./store.js").View | null} view */
  #look(view) {
    const frame = view && new Frame(this.#page.layer, this.#width, this.#height, view);
    const seen = frame && !frame.isWhole ? { x: frame.x, y: frame.y, zoom: frame.zoom } : null;
    this.#page.store.set({ view: seen }, { remembered: false });
  }

  #measure() {
    const { clientWidth, clientHeight } = this.map;
    if (clientWidth !== this.#width || clientHeight !== this.#height) {
      this.#width = clientWidth;
      this.#height = clientHeight;
      this.redraw();
    }
  }

  /** @param {{all: boolean, marks: boolean}} asked */
  #schedule({ all, marks }) {
    const waiting = this.#asked.marks;
    this.#asked = { all: all || this.#asked.all, marks };
    if (waiting) {
      return;
    }
    const drawn = this.#page.activity.begin();
    requestAnimationFrame(() => {
      const everything = this.#asked.all;
      this.#asked = { all: false, marks: false };
      try {
        this.#draw(everything ? [...this.#drawings, ...this.#marks] : this.#marks);
      } finally {
        drawn();
      }
    });
  }

  /** @param {Drawing[]} drawings */
  #draw(drawings) {
    if (this.#width > 0 && this.#height > 0 && !this.#page.ended.aborted) {
      const { frame, inks } = this;
      for (const drawing of drawings) {
        drawing(frame, inks);
      }
    }
  }
}

/**
 * @param {Frame} start
 * @param {Frame} end
 * @param {number} part
 */
function between(start, end, part) {
  const mix = (/** @type {number} */ one, /** @type {number} */ other) =>
    one + (other - one) * part;
  const zoom = mix(start.zoom, end.zoom);
  // What stays in place while zooming: the middle goes as the visible width does.
  const first = 2 ** -start.zoom;
  const last = 2 ** -end.zoom;
  const way = Math.abs(last - first) < 1e-12 ? part : (2 ** -zoom - first) / (last - first);
  return { x: start.x + (end.x - start.x) * way, y: start.y + (end.y - start.y) * way, zoom };
}
