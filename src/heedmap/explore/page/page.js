/** What every part of the page is given: the state, the transport, the words, the map on show. */

import { clamp } from "./frame.js";

export class Page {
  // These three need a page themselves, and are set before anything else is built.
  stage = /** @type {import("./stage.js").Stage} */ (/** @type {unknown} */ (null));
  loader = /** @type {import("./tile_loader.js").TileLoader} */ (/** @type {unknown} */ (null));
  colouring = /** @type {import("./colouring.js").Colouring} */ (/** @type {unknown} */ (null));
  /** @type {(text: string) => void} says something to those who listen instead of looking */
  announce = () => {};

  /**
   * @param {HTMLElement} root
   * @param {import("./store.js").Store} store
   * @param {import("./transport.js").Transport} transport
   * @param {import("./words.js").Words} words
   * @param {import("./activity.js").Activity} activity
   * @param {import("./protocol.js").Description} description
   * @param {import("./places.js").Places[]} places one for each axis
   * @param {AbortSignal} ended aborted when the page is taken away
   */
  constructor(root, store, transport, words, activity, description, places, ended) {
    this.root = root;
    this.store = store;
    this.transport = transport;
    this.words = words;
    this.activity = activity;
    this.description = description;
    this.places = places;
    this.ended = ended;
  }

  get state() {
    return this.store.state;
  }

  /** The layer on show. */
  get layer() {
    return this.description.layers[this.state.layer];
  }

  /** How many cells a side the smallest blocks have that are known of the map on show. */
  get side() {
    const { deepest, zooms } = this.layer;
    return deepest ? 2 ** (zooms - deepest[this.state.head]) : 1;
  }

  /** The deepest level of which the map on show has tiles. */
  get deepest() {
    return Math.max(0, this.layer.deepest?.[this.state.head] ?? this.layer.zooms);
  }

  /** What the queries on show are called. */
  get queries() {
    return this.places[this.layer.query_axis];
  }

  /** What the keys on show are called. */
  get keys() {
    return this.places[this.layer.key_axis];
  }

  /** The path of the map on show, for requests. */
  get path() {
    return `${this.state.layer}/${this.state.head}`;
  }

  /**
   * Choose a query, a key or both; null for none.
   *
   * @param {{query?: number | null, key?: number | null}} chosen
   * @param {{remembered?: boolean, shown?: boolean}} [how] whether the history gets an entry, and
   *   whether the map moves so that they are seen
   */
  choose(chosen, { remembered = true, shown = true } = {}) {
    const { queries, keys } = this.layer;
    /** @type {{query?: number | null, key?: number | null}} */
    const inside = {};
    if (chosen.query !== undefined) {
      inside.query = within(chosen.query, queries);
    }
    if (chosen.key !== undefined) {
      inside.key = within(chosen.key, keys);
    }
    this.store.set(inside, { remembered });
    if (shown) {
      this.stage.show(inside.query ?? null, inside.key ?? null);
    }
  }

  /**
   * Show another head, and choose nothing that its map does not have.
   *
   * @param {number} layer
   * @param {number} head
   */
  showHead(layer, head) {
    const before = this.layer;
    const after = this.description.layers[layer];
    const alike = before.queries === after.queries && before.keys === after.keys;
    this.store.set({
      layer,
      head: clamp(head, 0, after.heads.length - 1),
      ...(alike
        ? {}
        : {
            view: null,
            block: null,
            query: kept(this.state.query, after.queries),
            key: kept(this.state.key, after.keys),
          }),
    });
  }
}

/**
 * @param {number | null} position
 * @param {number} size
 */
function within(position, size) {
  return position === null || size === 0 ? null : clamp(Math.round(position), 0, size - 1);
}

/**
 * @param {number | null} position
 * @param {number} size
 */
function kept(position, size) {
  return position !== null && position < size ? position : null;
}
