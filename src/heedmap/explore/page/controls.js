/** The bar at the top: which map, which statistic, which colours, and what else can be done. */

import { COLOUR_MAPS } from "./colours.js";
import { data, make } from "./dom.js";
import { icon } from "./icons.js";
import { LANGUAGES } from "./words.js";

/** @typedef {import("./page.js").Page} Page */
/** @typedef {import("./words.js").Word} Word */

/**
 * Return the bar.
 *
 * @param {Page} page
 * @param {{copyLink: (() => void) | null, savePicture: () => void, help: () => void}} actions
 */
export function controlBar(page, actions) {
  const { description, words, store } = page;
  const name = data("strong", "");
  const model = data("span", "", { class: "hm-faint" });
  const title = make("div", { class: "hm-title" }, name, ...(description.model ? [model] : []));
  const entitle = () => {
    name.textContent = name.title = words.given(description.name);
    model.textContent = model.title = words.given(description.model);
  };
  store.on(["language"], entitle);
  entitle();
  /** @type {HTMLElement[]} */
  const buttons = [
    button(page, "picture", "save_picture", actions.savePicture),
    button(page, "theme", "switch_theme", () => {
      store.set({ theme: page.root.dataset.theme === "dark" ? "light" : "dark" });
    }),
    button(page, "help", "help", actions.help),
  ];
  if (actions.copyLink) {
    buttons.unshift(button(page, "link", "copy_link", actions.copyLink));
  }
  const language = choice(page, "language", Object.entries(LANGUAGES), "language");
  for (const option of language.options) {
    option.lang = option.value;
  }
  return make(
    "header",
    { class: "hm-bar" },
    title,
    mapChoice(page),
    labelled(page, "statistic", choice(page, "statistic", worded(page, ["mean", "max", "sum"]))),
    labelled(page, "colours", choice(page, "colours", worded(page, COLOUR_MAPS))),
    labelled(page, "scale", choice(page, "scale", worded(page, ["linear", "log"]))),
    make("div", { class: "hm-group hm-end" }, words.name(language, "language"), ...buttons),
  );
}

/**
 * Return a button with a drawing, or with a word where there is none.
 *
 * @param {Page} page
 * @param {string} drawing
 * @param {Word} word
 * @param {() => void} act
 */
export function button(page, drawing, word, act) {
  const made = make("button", { type: "button", class: "hm-button" }, icon(drawing));
  made.addEventListener("click", act);
  return page.words.name(made, word);
}

/**
 * The two lists of layers and heads, with buttons to go through the heads.
 *
 * @param {Page} page
 */
function mapChoice(page) {
  const { description, store, words } = page;
  const layers = make("select", { class: "hm-select" });
  const heads = make("select", { class: "hm-select" });
  const update = () => {
    const { layer, head } = page.state;
    layers.replaceChildren(
      ...description.layers.map(({ name }, number) =>
        data("option", `${number} · ${words.given(name)}`, { value: String(number) }),
      ),
    );
    layers.value = String(layer);
    heads.replaceChildren(
      ...page.layer.heads.map((name, number) => {
        const kind = words.headKind(page.layer.labels[number] ?? "");
        return data("option", kind ? `${name} · ${kind}` : name, { value: String(number) });
      }),
    );
    heads.value = String(head);
  };
  layers.addEventListener("change", () => page.showHead(Number(layers.value), page.state.head));
  heads.addEventListener("change", () => page.showHead(page.state.layer, Number(heads.value)));
  store.on(["layer", "head", "language"], update);
  update();
  return make(
    "div",
    { class: "hm-group hm-which" },
    labelled(page, "layer", layers),
    labelled(page, "head", heads),
    button(page, "previous", "previous_head", () => stepHead(page, -1)),
    button(page, "next", "next_head", () => stepHead(page, 1)),
  );
}

/**
 * Show the next head, or the first of the next layer; or the one before.
 *
 * @param {Page} page
 * @param {1 | -1} step
 */
export function stepHead(page, step) {
  const { layers } = page.description;
  let { layer, head } = page.state;
  head += step;
  if (head < 0 || head >= layers[layer].heads.length) {
    layer = (layer + step + layers.length) % layers.length;
    head = step > 0 ? 0 : layers[layer].heads.length - 1;
  }
  page.showHead(layer, head);
}

/**
 * Return the values of a choice, each with an element that says it.
 *
 * @param {Page} page
 * @param {string[]} values
 * @returns {[string, Word][]}
 */
function worded(page, values) {
  return values.map((value) => [value, /** @type {Word} */ (value)]);
}

/**
 * Return a list that shows and sets a part of the state.
 *
 * @param {Page} page
 * @param {"statistic" | "colours" | "scale" | "language"} part
 * @param {[string, string][]} entries values, and what they are called
 * @param {string} [kind] "language": what they are called is not translated
 */
function choice(page, part, entries, kind) {
  const select = make("select", { class: "hm-select" });
  for (const [value, text] of entries) {
    select.append(
      kind === "language"
        ? data("option", text, { value })
        : page.words.put(make("option", { value }), /** @type {Word} */ (text)),
    );
  }
  const update = () => {
    select.value = page.state[part];
  };
  select.addEventListener("change", () => page.store.set({ [part]: select.value }));
  page.store.on([part], update);
  update();
  return select;
}

/**
 * @param {Page} page
 * @param {Word} word
 * @param {HTMLElement} control
 */
function labelled(page, word, control) {
  return make(
    "label",
    { class: "hm-label" },
    page.words.put(make("span", { class: "hm-faint" }), word),
    control,
  );
}
