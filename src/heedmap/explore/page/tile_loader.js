/** Asks for the tiles that are seen and not there, and gives up what is seen no more. */

import { readTile } from "./protocol.js";
import { nameOf, TileCache } from "./tile_cache.js";
import { nowAndThen, throwUnlessExpected } from "./activity.js";

/** @typedef {{layer: number, head: number, statistic: string}} MapName */
/** @typedef {{zoom: number, x: number, y: number}} TilePlace */
/** @typedef {{open: Set<string>, controller: AbortController}} Batch */

const MOST_IN_A_BATCH = 256;

export class TileLoader {
  cache = new TileCache();
  /** @type {Set<string>} tiles that the program could not compute; not asked for again */
  failed = new Set();
  /** Called when a tile could not be computed. */
  onFailure = () => {};
  /** @type {Set<Batch>} */
  #batches = new Set();
  #page;
  #onTile;
  #ask;
  /** @type {Set<string>} what has come since the last refresh: not asked for again until the next */
  #refreshed = new Set();

  /**
   * @param {import("./page.js").Page} page
   * @param {() => void} onTile called when tiles have come
   */
  constructor(page, onTile) {
    this.#page = page;
    this.#onTile = onTile;
    /** @type {(map: MapName, places: TilePlace[]) => void} */
    this.#ask = nowAndThen(page.activity, 40, (map, places) =>
      this.#update(map, places),
    );
  }

  /**
   * Say what is seen now, the most urgent first.
   *
   * @param {MapName} map
   * @param {TilePlace[]} places
   */
  want(map, places) {
    this.#ask(map, places);
  }

  /** Ask again for every tile that is not exact, when it is next wanted. */
  refresh() {
    this.#refreshed.clear();
  }

  /**
   * @param {MapName} map
   * @param {TilePlace[]} places
   */
  #update(map, places) {
    const wanted = new Map(places.map((place) => [nameOf(map, place), place]));
    for (const batch of [...this.#batches]) {
      const still = [...batch.open].filter((name) => wanted.has(name)).length;
      if (still * 2 < batch.open.size) {
        batch.controller.abort();
        this.#batches.delete(batch);
      }
    }
    const coming = new Set([...this.#batches].flatMap((batch) => [...batch.open]));
    const missing = [...wanted].filter(([name]) => !coming.has(name) && this.#lacks(name));
    if (missing.length > 0) {
      this.#fetch(map, missing.slice(0, MOST_IN_A_BATCH));
    }
  }

  /** @param {string} name */
  #lacks(name) {
    if (this.failed.has(name)) {
      return false;
    }
    const tile = this.cache.get(name);
    return !tile || (!tile.exact && !this.#refreshed.has(name));
  }

  /**
   * @param {MapName} map
   * @param {[string, TilePlace][]} missing
   */
  async #fetch({ layer, head, statistic }, missing) {
    const batch = {
      open: new Set(missing.map(([name]) => name)),
      controller: new AbortController(),
    };
    this.#batches.add(batch);
    try {
      await this.#page.transport.tiles(
        missing.map(([, { zoom, x, y }]) => [layer, head, statistic, zoom, x, y]),
        (place, bytes) => {
          const [name] = missing[place];
          batch.open.delete(name);
          if (bytes.byteLength === 0) {
            this.failed.add(name);
            this.onFailure();
          } else {
            this.cache.put(name, readTile(bytes));
            this.#refreshed.add(name);
          }
          this.#onTile();
        },
        batch.controller.signal,
      );
    } catch (error) {
      throwUnlessExpected(error, batch.controller.signal);
    } finally {
      this.#batches.delete(batch);
    }
  }
}
