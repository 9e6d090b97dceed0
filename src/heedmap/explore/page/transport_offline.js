/** Answer from what lies in the page itself, as heedmap.explore.offline packs it. */

import { blockAround, lineOf, thumbnailOf, tileOf } from "./rasters.js";
import { TransportError } from "./transport.js";
import { unpack } from "./unpacking.js";

/**
 * Return the transport for a page that is a file.
 *
 * @param {string} packed what it holds
 * @returns {Promise<import("./transport.js").Transport>}
 */
export async function offlineTransport(packed) {
  const answers = new Answers(await unpack(packed));
  return {
    json: async (path, signal) => {
      signal?.throwIfAborted();
      return answers.json(path);
    },
    bytes: async (path) => {
      const [what, layer, head, statistic, ...place] = path.split("/");
      const [raster, described] = [answers.raster(layer, head), answers.layer(layer)];
      const [zoom, x, y] = place.map(Number);
      return what === "tiles"
        ? tileOf(raster, described, statistic, zoom, x, y)
        : thumbnailOf(raster, described);
    },
    tiles: async (names, onTile, signal) => {
      for (const [place, [layer, head, ...rest]] of names.entries()) {
        // Between two tiles the page may draw.
        await new Promise((resolve) => setTimeout(resolve));
        signal?.throwIfAborted();
        onTile(place, tileOf(answers.raster(layer, head), answers.layer(layer), ...rest));
      }
    },
    mediaUrl: async (name) => answers.mediaUrl(name),
    checkMedia: async () => {},
  };
}

class Answers {
  #unpacked;
  /** @type {Map<string, import("./rasters.js").Raster>} */
  #rasters = new Map();

  /** @param {import("./unpacking.js").Unpacked} unpacked */
  constructor(unpacked) {
    this.#unpacked = unpacked;
  }

  /** @param {string | number} number */
  layer(number) {
    return this.#unpacked.index.description.layers[number];
  }

  /**
   * @param {string | number} layer
   * @param {string | number} head
   */
  raster(layer, head) {
    const name = `${layer}/${head}`;
    let found = this.#rasters.get(name);
    if (!found) {
      const { side, mean, max } = this.#map(name);
      const { rows, columns } = mean;
      const [means, largest] = [this.#unpacked.weights(mean), this.#unpacked.weights(max)];
      found = { side, rows, columns, mean: means, max: largest };
      this.#rasters.set(name, found);
    }
    return found;
  }

  /**
   * @param {string} path
   * @returns {unknown}
   */
  json(path) {
    const [address, query = ""] = path.split("?");
    const [what, ...parts] = address.split("/");
    const options = new URLSearchParams(query);
    switch (what) {
      case "description":
        return this.#unpacked.index.description;
      case "axes":
        return this.#unpacked.index.axes[parts[0]];
      case "progress":
        return { done: 1, exact: this.raster(parts[0], parts[1]).side <= 2 ** this.layer(parts[0]).zooms };
      case "cells":
        return this.#cell(parts);
      case "rows":
      case "columns":
        return parts[3] === "top"
          ? this.#strongest(what, parts, Number(options.get("count")))
          : this.#line(what, parts, options);
      case "blocks":
        return this.#block(parts, options);
    }
    throw new TransportError("missing");
  }

  /** @param {string} name */
  mediaUrl(name) {
    const piece = this.#unpacked.index.media[name];
    return URL.createObjectURL(new Blob([this.#unpacked.raw(piece)], { type: piece.type }));
  }

  /** @param {string} name */
  #map(name) {
    const found = this.#unpacked.index.maps[name];
    if (!found) {
      throw new TransportError("missing");
    }
    return found;
  }

  /**
   * Return a single weight, or the block in which it lies where nothing else is known of it.
   *
   * @param {string[]} parts
   */
  #cell([layer, head, query, key]) {
    const among = this.#amongStrongest([layer, head, query], Number(key));
    if (among !== undefined) {
      return { weight: among };
    }
    const raster = this.raster(layer, head);
    const block = blockAround(raster, this.layer(layer), Number(query), Number(key));
    return raster.side === 1 ? { weight: block.mean } : { block };
  }

  /**
   * Return the weight of a key where it is one of the strongest of a query.
   *
   * @param {string[]} parts
   * @param {number} key
   */
  #amongStrongest([layer, head, query], key) {
    if (!this.#map(`${layer}/${head}`).rows) {
      return undefined;
    }
    const { positions, weights } = this.#strongest("rows", [layer, head, query], Infinity);
    return weights[positions.indexOf(key)];
  }

  /**
   * @param {"rows" | "columns"} side
   * @param {string[]} parts
   * @param {URLSearchParams} options
   */
  #line(side, [layer, head, number], options) {
    const [first, stop, bins] = ["first", "stop", "bins"].map((name) => Number(options.get(name)));
    const raster = this.raster(layer, head);
    const size = side === "rows" ? this.layer(layer).queries : this.layer(layer).keys;
    const begin = Math.floor(Number(number) / raster.side) * raster.side;
    return {
      values: lineOf(raster, side, Number(number), first, stop, bins),
      lines: Math.min(raster.side, size - begin),
      exact: true,
    };
  }

  /**
   * @param {"rows" | "columns"} side
   * @param {string[]} parts
   * @param {number} count
   */
  #strongest(side, [layer, head, number], count) {
    const kept = this.#map(`${layer}/${head}`)[side];
    if (!kept) {
      throw new TransportError("missing");
    }
    const width = kept.weights.columns;
    const from = Number(number) * width;
    const stop = from + Math.min(count, width);
    const whole = this.#unpacked.weights(kept.weights);
    return {
      positions: [...this.#unpacked.integers(kept.positions).slice(from, stop)],
      weights: [...whole.slice(from, stop)],
      sum: this.#unpacked.floats(kept.sums)[Number(number)],
    };
  }

  /**
   * @param {string[]} parts
   * @param {URLSearchParams} options
   */
  #block([layer, head], options) {
    const raster = this.#whole(layer, head);
    const [[top, bottom], [left, right]] = ["rows", "columns"].map((name) =>
      String(options.get(name)).split(":").map(Number),
    );
    let sum = 0;
    let most = -Infinity;
    let whole = 0;
    let at = [top, left];
    for (let row = top; row < bottom; row += 1) {
      for (let column = 0; column < raster.columns; column += 1) {
        const weight = raster.mean[row * raster.columns + column];
        whole += weight;
        if (column >= left && column < right) {
          sum += weight;
          if (weight > most) {
            most = weight;
            at = [row, column];
          }
        }
      }
    }
    const cells = (bottom - top) * (right - left);
    return { sum, mean: sum / cells, max: most, max_at: at, share: whole ? sum / whole : 0 };
  }

  /**
   * Return a map of which every single weight is in this file.
   *
   * @param {string} layer
   * @param {string} head
   */
  #whole(layer, head) {
    const raster = this.raster(layer, head);
    if (raster.side !== 1) {
      throw new TransportError("missing");
    }
    return raster;
  }
}
