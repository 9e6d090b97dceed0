/** Which colours the map has now: the colour map, and a scale for what is visible. */

import { coloursOf, colourOf } from "./colours.js";
import { fixedRange, placeOn, rangeOf } from "./scale.js";
import { latest } from "./activity.js";
import { nameOf } from "./tile_cache.js";
import { TILE } from "./protocol.js";
import { pixelRatio } from "./surface.js";

const MOST_SAMPLES = 60_000;

export class Colouring {
  /** @type {import("./scale.js").Range} */
  range;
  /** @type {import("./tile_painter.js").Paint} */
  paint;
  #page;
  #known = "";
  #mixed = "";
  #colours = coloursOf("viridis", "light");
  #remeasure;

  /** @param {import("./page.js").Page} page */
  constructor(page) {
    this.#page = page;
    this.range = rangeOf(new Float32Array(0), page.state.scale);
    this.paint = this.#mix();
    this.#remeasure = latest(page.activity, 150, () => this.#measure());
    page.store.on(["colours", "theme", "scale", "limits"], () => {
      this.#measure();
      this.#repaint();
    });
    page.store.on(["layer", "head", "statistic", "view"], () => this.#remeasure());
  }

  /** Take the tiles into account that have come; the first of a map at once. */
  tilesCame() {
    if (this.#known === this.#mapOnShow()) {
      this.#remeasure();
    } else {
      this.#measure();
    }
  }

  /** Mix the colours again, after the theme has changed. */
  retheme() {
    this.#repaint();
  }

  /**
   * Return the colour of a weight as the map shows it.
   *
   * @param {number} value
   */
  colour(value) {
    return colourOf(this.paint.colours, value, this.paint.place(value));
  }

  #mapOnShow() {
    const { layer, head, statistic, scale } = this.#page.state;
    return `${layer}/${head}/${statistic}/${scale}`;
  }

  #mix() {
    const { colours } = this.#page.state;
    const theme = this.#page.root.dataset.theme === "dark" ? "dark" : "light";
    const mixed = `${colours}/${theme}`;
    if (mixed !== this.#mixed) {
      this.#mixed = mixed;
      this.#colours = coloursOf(colours, theme);
    }
    return { colours: this.#colours, place: placeOn(this.range) };
  }

  #repaint() {
    this.paint = this.#mix();
    this.#page.stage.redraw();
  }

  #measure() {
    const samples = this.#samples();
    const range = samples ? this.#rangeOf(samples) : this.range;
    if (samples) {
      this.#known = this.#mapOnShow();
    }
    if (JSON.stringify(range) !== JSON.stringify(this.range)) {
      this.range = range;
      this.#repaint();
    }
  }

  /** @param {Float32Array} samples */
  #rangeOf(samples) {
    const { limits, scale } = this.#page.state;
    const range = rangeOf(samples, scale);
    if (!limits) {
      return range;
    }
    const largest = samples.findLast((value) => !Number.isNaN(value)) ?? 0;
    return fixedRange(limits, scale, largest);
  }

  /** Values of the tiles that are seen, at even steps; null where no tile has come. */
  #samples() {
    const { stage, loader, state } = this.#page;
    const { frame } = stage;
    const level = frame.level(pixelRatio(), this.#page.deepest);
    const seen = frame.tiles(level);
    const come = seen.filter((tile) => loader.cache.get(nameOf(state, tile)));
    const places = come.length > 0 ? come : [{ zoom: 0, x: 0, y: 0 }];
    const { rows, columns } = frame.visible;
    const pixels = ((rows[1] - rows[0]) * (columns[1] - columns[0])) / 4 ** (frame.layer.zooms - level);
    const step = Math.max(1, Math.ceil(Math.sqrt(pixels / MOST_SAMPLES)));
    /** @type {number[]} */
    const samples = [];
    let found = false;
    for (const place of places) {
      const tile = loader.cache.get(nameOf(state, place));
      if (tile) {
        found = true;
        collect(samples, tile, place, frame, step);
      }
    }
    return found ? Float32Array.from(samples) : null;
  }
}

/**
 * Add the values of a tile that are seen.
 *
 * @param {number[]} samples
 * @param {import("./protocol.js").Tile} tile
 * @param {{zoom: number, x: number, y: number}} place
 * @param {import("./frame.js").Frame} frame
 * @param {number} step
 */
function collect(samples, tile, place, frame, step) {
  const { values } = tile;
  if (!values) {
    return;
  }
  const side = 2 ** (frame.layer.zooms - place.zoom);
  const { rows, columns } = frame.visible;
  const within = (/** @type {number} */ edge, /** @type {number} */ tileNumber) =>
    edge / side - tileNumber * TILE;
  const top = Math.max(0, Math.floor(within(rows[0], place.y)));
  const bottom = Math.min(tile.rows, within(rows[1], place.y));
  const left = Math.max(0, Math.floor(within(columns[0], place.x)));
  const right = Math.min(tile.columns, within(columns[1], place.x));
  for (let row = top; row < bottom; row += step) {
    for (let column = left; column < right; column += step) {
      samples.push(values[row * tile.columns + column]);
    }
  }
}
