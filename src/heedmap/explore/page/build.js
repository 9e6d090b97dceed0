/** Puts the parts of the page together, and tells each what it must know of the others. */

import { atlas } from "./atlas.js";
import { AxisView } from "./axis_view.js";
import { blockPanel, brushBlock } from "./block.js";
import { chosenPanel } from "./chosen.js";
import { Colouring } from "./colouring.js";
import { controlBar } from "./controls.js";
import { CrossHair } from "./cross_hair.js";
import { Dock } from "./dock.js";
import { data, make } from "./dom.js";
import { listenToPointers } from "./gestures.js";
import { helpDialog } from "./help.js";
import { listenToKeys, shortcuts } from "./keys.js";
import { Legend } from "./legend.js";
import { keepInAddress } from "./link.js";
import { MapView } from "./map_view.js";
import { Minimap } from "./minimap.js";
import { learnNames } from "./names.js";
import { savePicture } from "./picture.js";
import { addProgress } from "./progress.js";
import { rankedList } from "./ranked.js";
import { Stage } from "./stage.js";
import { Strip } from "./strips.js";
import { Strongest } from "./strongest.js";
import { keepTheme } from "./theme.js";
import { TileLoader } from "./tile_loader.js";
import { addZoomButtons } from "./zoom_buttons.js";

/** @typedef {import("./page.js").Page} Page */

/**
 * Build the page into its root, and return the view of the map.
 *
 * @param {Page} page
 * @param {import("./store.js").State} start where links begin
 * @param {boolean} alone whether the window is the page's own
 */
export function buildPage(page, start, alone) {
  const { root, store, words, ended } = page;
  // Whoever hears of another language must find it spoken already.
  store.on(["language"], () => speak(page));
  speak(page);
  page.stage = new Stage(page);
  page.loader = new TileLoader(page, () => {
    page.colouring.tilesCame();
    page.stage.redraw();
  });
  page.colouring = new Colouring(page);
  const live = data("div", "", { class: "hm-unseen", "aria-live": "polite" });
  page.announce = (text) => {
    live.textContent = text;
  };

  const { stage } = page;
  const view = new MapView(page);
  const crossHair = new CrossHair(page);
  makeReachable(page);
  const axes = new AxisView(page);
  for (const side of /** @type {const} */ (["row", "column"])) {
    new Strip(page, side);
  }
  stage.element.append(stage.map);
  addZoomButtons(page);
  addProgress(page, view);
  listenToPointers(page, {
    onHover: (left, top) => crossHair.hover(left, top),
    onLeave: () => crossHair.leave(),
    onClick: (left, top) => {
      const cell = stage.frame.cellAt(left, top);
      if (cell) {
        page.choose(cell, { shown: false });
      }
    },
    onBrush: (from, to, done) => brushBlock(page, from, to, done),
  });

  const ofQuery = new Strongest(page, "query");
  const ofKey = new Strongest(page, "key");
  const dock = new Dock(page, ofQuery);
  const help = helpDialog(page, () => table);
  const table = shortcuts(page, { help: help.open, player: () => dock.player });
  const bar = controlBar(page, {
    copyLink: alone ? () => copyLink(page) : null,
    savePicture: () => savePicture(page),
    help: help.open,
  });
  const chosen = chosenPanel(page);
  const block = blockPanel(page);
  const keysOfQuery = rankedList(page, "query", ofQuery);
  const queriesOfKey = rankedList(page, "key", ofKey);
  const heads = atlas(page);
  const side = make(
    "aside",
    { class: "hm-side", tabindex: "-1" },
    chosen.element,
    block.element,
    make("div", { class: "hm-pair" }, keysOfQuery.element, queriesOfKey.element),
    new Minimap(page).element,
    heads.element,
    ...notes(page),
  );
  const main = make("div", { class: "hm-main" }, stage.element, new Legend(page, view).element, dock.element);
  root.append(bar, make("div", { class: "hm-body" }, main, side), live, help.element);

  keepTheme(root, store, ended, (onPaper) => {
    stage.forgetInks();
    page.colouring.retheme();
    heads.repaint();
    if (onPaper) {
      stage.drawNow();
    }
  });
  store.on(["language"], () => {
    axes.makeRoom();
    keysOfQuery.show();
    queriesOfKey.show();
    chosen.update();
    stage.redraw();
  });
  const writeAgain = () => {
    axes.makeRoom();
    for (const part of [chosen, block]) {
      part.update();
    }
    keysOfQuery.show();
    queriesOfKey.show();
    dock.namesCame();
    stage.redraw();
  };
  learnNames(page, view, writeAgain);
  // What was measured and drawn before its font had come is of another width, or boxes.
  document.fonts.addEventListener("loadingdone", writeAgain, { signal: ended });
  listenToKeys(alone ? document : root, table, ended);
  if (alone) {
    const entitle = () => {
      document.title = `${words.given(page.description.name)} · heedmap`;
      document.documentElement.lang = page.state.language;
    };
    store.on(["language"], entitle);
    entitle();
    keepInAddress(store, page.description, start, ended);
  }
  stage.redraw();
  return view;
}

/** @param {Page} page */
function speak(page) {
  page.words.speak(page.state.language, page.root);
  for (const places of page.places) {
    places.second = page.words.say("second");
  }
}

/**
 * Let the map take the focus, and say what it is.
 *
 * @param {Page} page
 */
function makeReachable(page) {
  const { map } = page.stage;
  map.tabIndex = 0;
  map.setAttribute("role", "application");
  page.words.name(map, "map");
  if (page.description.layers.some(({ queries, keys }) => queries === 0 || keys === 0)) {
    const empty = page.words.put(make("p", { class: "hm-empty" }), "no_positions");
    const update = () => {
      empty.hidden = page.layer.queries > 0 && page.layer.keys > 0;
    };
    page.store.on(["layer"], update);
    update();
    map.append(empty);
  }
}

/** @param {Page} page */
function notes(page) {
  const remarks = page.description.notes.map((note) => data("p", note));
  return remarks.length > 0
    ? [make("section", { class: "hm-panel" }, page.words.put(make("h2"), "notes"), ...remarks)]
    : [];
}

/** @param {Page} page */
async function copyLink(page) {
  const address = location.href;
  try {
    await navigator.clipboard.writeText(address);
    page.announce(page.words.say("link_copied"));
    toast(page, "link_copied");
  } catch {
    // Without leave to write there, the address bar has the same link.
    toast(page, "link_in_address");
  }
}

/**
 * Show a short text for a moment.
 *
 * @param {Page} page
 * @param {import("./words.js").Word} word
 */
function toast(page, word) {
  const element = page.words.put(make("div", { class: "hm-toast" }), word);
  page.root.append(element);
  setTimeout(() => element.remove(), 2500);
}
