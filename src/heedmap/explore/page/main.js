/** The live map, to be put into any element. */

import { Activity, throwUnlessExpected } from "./activity.js";
import { banner } from "./banner.js";
import { make } from "./dom.js";
import { buildPage } from "./build.js";
import { linkOf, stateOf } from "./link.js";
import { patient } from "./patient.js";
import { Places } from "./places.js";
import { Page } from "./page.js";
import { SCHEMA } from "./protocol.js";
import { Store } from "./store.js";
import { preferredLanguage, Words } from "./words.js";

/**
 * @typedef {object} Options
 * @property {boolean} [alone] whether the page has the window for itself: then the address says
 *   what is seen, and keys are heard everywhere
 * @property {string} [link] what to show at first, as `linkOf` writes it
 * @property {string} [language] "en" or "zh"; the browser's own unless given
 */

/**
 * What a program can do with a mounted map; also `element.heedmap`.
 *
 * @typedef {object} HeedmapView
 * @property {() => Promise<void>} whenQuiet resolves when no request is under way and all that is
 *   seen is drawn; the picture may still be approximate, which `state().exact` says
 * @property {(query: number, key: number) => number[] | null} colourAt red, green and blue, 0 to
 *   255, of a cell on the screen; null where it is not seen
 * @property {() => import("./store.js").State & {exact: boolean, range: {low: number, high: number}}} state
 * @property {(parts: Partial<import("./store.js").State>) => void} set changes parts of the state
 * @property {(query: number, key: number) => [number, number]} placeOf where the middle of a cell
 *   is in the window, in CSS pixels
 * @property {() => string} link the state as `Options.link` takes it
 * @property {() => void} destroy takes the map away and ends all that it does
 */

/**
 * Show the live map in an element.
 *
 * @param {HTMLElement} element
 * @param {import("./transport.js").Transport} transport
 * @param {Options} [options]
 * @returns {HeedmapView}
 */
export function mount(element, transport, options = {}) {
  const ending = new AbortController();
  const activity = new Activity();
  const words = new Words();
  const language = options.language ?? preferredLanguage();
  const root = make("div", { class: options.alone ? "heedmap heedmap-alone" : "heedmap" });
  const trouble = banner(words);
  root.append(trouble.element);
  element.append(root);
  words.speak(language, root);
  const kind = patient(transport, activity, trouble.tell, ending.signal);

  /** @type {{page: Page, view: import("./map_view.js").MapView} | null} */
  let built = null;
  const ready = activity.during(
    begin(root, kind, { words, activity, options, language, ended: ending.signal })
      .then((made) => {
        built = made;
        made.page.loader.onFailure = () => trouble.failed();
      })
      .catch((error) => {
        if (error instanceof UnknownSchema) {
          trouble.outdated();
        } else {
          throwUnlessExpected(error, ending.signal);
        }
      }),
  );

  const parts = () => {
    if (!built) {
      throw new Error("the map is not there yet; await whenQuiet()");
    }
    return built;
  };
  /** @type {HeedmapView} */
  const handle = {
    whenQuiet: async () => {
      await ready;
      await activity.whenQuiet();
    },
    colourAt: (query, key) => parts().view.colourAt(query, key),
    state: () => {
      const { page, view } = parts();
      const { low, high } = page.colouring.range;
      return { ...page.state, exact: view.exact, range: { low, high } };
    },
    set: (some) => parts().page.store.set(some),
    placeOf: (query, key) => {
      const { frame, map } = parts().page.stage;
      const box = map.getBoundingClientRect();
      return [box.left + frame.left(key + 0.5), box.top + frame.top(query + 0.5)];
    },
    link: () => linkOf(parts().page.state),
    destroy: () => {
      ending.abort();
      root.remove();
    },
  };
  Object.assign(element, { heedmap: handle });
  return handle;
}

class UnknownSchema extends Error {}

/**
 * Ask what there is to see, and build the page for it.
 *
 * @param {HTMLElement} root
 * @param {import("./transport.js").Transport} transport
 * @param {{words: Words, activity: Activity, options: Options, language: string,
 *   ended: AbortSignal}} given
 */
async function begin(root, transport, { words, activity, options, language, ended }) {
  /** @type {import("./protocol.js").Description} */
  const description = await transport.json("description");
  if (description.schema !== SCHEMA) {
    throw new UnknownSchema();
  }
  const { layer, head, query } = description.chosen;
  /** @type {import("./store.js").State} */
  const start = {
    layer,
    head,
    statistic: "mean",
    colours: "viridis",
    scale: "linear",
    limits: null,
    view: null,
    query,
    key: null,
    block: null,
    language,
    theme: "auto",
    brushing: false,
    following: true,
  };
  const link = options.link ?? (options.alone ? location.hash : "");
  const store = new Store(stateOf(link, description, start));
  words.speak(store.state.language, root);
  const places = description.axes.map((axis) => new Places(axis));
  const page = new Page(root, store, transport, words, activity, description, places, ended);
  const view = buildPage(page, start, options.alone ?? false);
  return { page, view };
}
