/** What the colours mean: a bar with numbers, and the colours of zero and of what is no number. */

import { css } from "./colours.js";
import { make } from "./dom.js";
import { cleared } from "./surface.js";
import { placeOn, scaleTicks, writeWeight } from "./scale.js";

const BAR = 14;

export class Legend {
  element = make("div", { class: "hm-legend" });
  canvas = make("canvas", { class: "hm-legend-bar", role: "img" });
  #page;
  #view;
  #fixed = make("button", { type: "button", class: "hm-small" });
  #zero = make("span", { class: "hm-swatch" });
  #missing = make("span", { class: "hm-swatch" });
  #missingEntry;

  /**
   * @param {import("./page.js").Page} page
   * @param {import("./map_view.js").MapView} view
   */
  constructor(page, view) {
    this.#page = page;
    this.#view = view;
    const { words } = page;
    this.#missingEntry = entry(this.#missing, words.put(make("span"), "not_a_number"));
    this.element.append(
      this.canvas,
      entry(this.#zero, words.put(make("span"), "zero")),
      this.#missingEntry,
      words.name(words.put(this.#fixed, "fix_scale"), "fix_scale_long"),
    );
    words.name(this.canvas, "legend");
    this.#fixed.addEventListener("click", () => {
      const { low, high } = page.colouring.range;
      page.store.set({ limits: page.state.limits ? null : [low, high] });
    });
    page.stage.onDraw((_, inks) => this.#draw(inks));
  }

  /** @param {import("./surface.js").Inks} inks */
  #draw(inks) {
    const { colouring, state } = this.#page;
    const { colours } = colouring.paint;
    this.#zero.style.backgroundColor = css(colours.zero);
    this.#missing.style.backgroundColor = css(colours.missing);
    this.#missingEntry.hidden = !this.#view.missing;
    this.#fixed.setAttribute("aria-pressed", String(state.limits !== null));
    const { clientWidth, clientHeight } = this.canvas;
    const context = cleared(this.canvas, clientWidth, clientHeight);
    drawLegend(context, this.#page, clientWidth, inks);
  }
}

/**
 * Draw the bar of colours with its numbers.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {import("./page.js").Page} page
 * @param {number} width
 * @param {import("./surface.js").Inks} inks
 */
export function drawLegend(context, page, width, inks) {
  const { range, paint } = page.colouring;
  const left = 18;
  const bar = width - 2 * left;
  const { steps } = paint.colours;
  for (let pixel = 0; pixel < bar; pixel += 1) {
    context.fillStyle = css(steps[Math.round((pixel / Math.max(1, bar - 1)) * (steps.length - 1))]);
    context.fillRect(left + pixel, 0, 1.5, BAR);
  }
  if (range.clipped) {
    // Larger weights take the last colour: the bar has a point, as in the library's pictures.
    context.beginPath();
    context.moveTo(left + bar, 0);
    context.lineTo(left + bar + 8, BAR / 2);
    context.lineTo(left + bar, BAR);
    context.fillStyle = css(steps[steps.length - 1]);
    context.fill();
  }
  context.font = `11px ${inks.font}`;
  context.textBaseline = "top";
  context.textAlign = "center";
  const place = placeOn(range);
  let free = -Infinity;
  for (const tick of scaleTicks(range, Math.max(1, Math.floor(bar / 60)))) {
    const at = left + place(tick) * bar;
    const text = writeWeight(tick);
    const half = context.measureText(text).width / 2;
    if (at - half > free) {
      context.fillStyle = inks.faint;
      context.fillRect(Math.min(at, left + bar - 1), BAR, 1, 3);
      context.fillStyle = inks.text;
      context.fillText(text, at, BAR + 4);
      free = at + half + 8;
    }
  }
}

/**
 * @param {HTMLElement} swatch
 * @param {HTMLElement} text
 */
function entry(swatch, text) {
  return make("span", { class: "hm-legend-entry" }, swatch, text);
}
