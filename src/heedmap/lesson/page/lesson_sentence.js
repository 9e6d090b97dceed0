/** A sentence in a model that was really trained: which words look at which. */

import { data, make } from "./dom.js";
import { percent } from "./lesson_format.js";
import { waiting } from "./lesson_waiting.js";
import { wholeMap } from "./lesson_whole_map.js";
import { headKinds as chineseKinds } from "./strings_zh.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */
/** @typedef {{text: string, start: number, stop: number}} Token */
/** @typedef {{layer: number, head: number, kind: string, weights: number[][]}} SentenceHead */

/**
 * @typedef {object} Sentence
 * @property {string} text
 * @property {string} model
 * @property {Token[]} tokens
 * @property {Record<string, number>} kinds how many heads do what
 * @property {SentenceHead[]} heads some of them, the one to begin with first
 * @property {number} [scene] the number of the map of all heads, if the program has it
 */

/** So many characters the program takes, blanks at the ends not counted. */
const MOST_CHARACTERS = 120;

/**
 * Return the example.
 *
 * @param {Lesson} lesson
 */
export function sentenceExample(lesson) {
  const place = make("div", {});
  const input = make("input", {
    type: "text",
    class: "hm-number",
    "aria-label": lesson.say("sentence_field"),
  });
  const first = lesson.source.sentences[lesson.state.language];
  input.value = lesson.state.typed ?? first.text;
  input.addEventListener("input", () => lesson.store.set({ typed: input.value }));
  const { line, wait, refuse } = waiting(lesson);
  const submit = lesson.text("button", "sentence_look", {}, { type: "submit", class: "hm-small" });
  const form = make("form", { class: "ls-sentence-form" }, input, submit);
  const { program } = lesson.source;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const size = [...input.value.trim().replace(/\s+/g, " ")].length;
    if (size === 0 || size > MOST_CHARACTERS) {
      refuse(lesson.say("sentence_size", { most: MOST_CHARACTERS, size }));
    } else if (program) {
      submit.disabled = true;
      await wait(program.sentence(input.value), (sentence) => {
        lesson.store.set({ sentence });
        show(sentence);
      });
      submit.disabled = false;
    }
  });
  const show = (/** @type {Sentence} */ sentence) => {
    place.replaceChildren(new SentenceView(lesson, sentence).element);
  };
  show(lesson.state.sentence ?? first);
  return make(
    "div",
    { class: "ls-example", "data-example": "sentence" },
    lesson.text("h3", "sentence"),
    lesson.text("p", "sentence_says"),
    program ? form : lesson.text("p", "needs_program", {}, { class: "ls-note" }),
    line,
    place,
    lesson.text("p", "sentence_honest", {}, { class: "ls-note" }),
  );
}

class SentenceView {
  #head = 0;
  #query;

  /**
   * @param {Lesson} lesson
   * @param {Sentence} sentence
   */
  constructor(lesson, sentence) {
    this.lesson = lesson;
    this.sentence = sentence;
    this.#query = mostTelling(sentence.heads[0].weights, sentence.tokens);
    this.tokens = make("div", { class: "ls-tokens", role: "group", "aria-label": lesson.say("tokens") });
    this.heads = make("div", { class: "ls-choose-head", role: "group", "aria-label": lesson.say("which_head") });
    this.said = make("p", { class: "ls-said", "aria-live": "polite" });
    this.element = make(
      "div",
      {},
      this.heads,
      this.tokens,
      this.said,
      this.#count(),
      ...(sentence.scene === undefined ? [] : [wholeMap(lesson, sentence.scene)]),
    );
    sentence.heads.forEach((head, number) => this.heads.append(this.#headButton(head, number)));
    sentence.tokens.forEach((token, number) => this.tokens.append(this.#tokenButton(token, number)));
    this.#show();
  }

  /**
   * @param {SentenceHead} head
   * @param {number} number
   */
  #headButton({ layer, head, kind }, number) {
    const name = this.lesson.say("head_name", { kind: this.#kind(kind), layer, head });
    const button = make("button", { type: "button", class: "hm-small" }, name);
    button.addEventListener("click", () => {
      this.#head = number;
      this.#show();
    });
    return button;
  }

  /**
   * @param {Token} token
   * @param {number} number
   */
  #tokenButton({ text, start, stop }, number) {
    const button = make(
      "button",
      { type: "button", class: start === stop ? "ls-token ls-special" : "ls-token" },
      data("span", text, { class: "ls-word" }),
      make("span", { class: "ls-share" }),
    );
    button.addEventListener("click", () => {
      this.#query = number;
      this.#show();
    });
    return button;
  }

  #show() {
    const { weights, kind } = this.sentence.heads[this.#head];
    const row = weights[this.#query];
    [...this.heads.children].forEach((button, number) =>
      button.setAttribute("aria-pressed", String(number === this.#head)),
    );
    [...this.tokens.children].forEach((button, number) => {
      const token = /** @type {HTMLElement} */ (button);
      token.setAttribute("aria-pressed", String(number === this.#query));
      token.style.setProperty("--tint", String(row[number]));
      token.dataset.value = String(row[number]);
      /** @type {Element} */ (token.lastElementChild).textContent = `${percent(row[number])} %`;
    });
    const best = row.indexOf(Math.max(...row));
    const words = {
      from: this.sentence.tokens[this.#query].text,
      to: this.sentence.tokens[best].text,
      share: percent(row[best]),
      kind: this.#kind(kind),
    };
    this.said.replaceChildren(...this.lesson.text("span", "sentence_row", words).childNodes);
  }

  /** Say how many heads do what. */
  #count() {
    const all = Object.values(this.sentence.kinds).reduce((sum, count) => sum + count, 0);
    const list = Object.entries(this.sentence.kinds)
      .sort(([, one], [, other]) => other - one)
      .map(([kind, count]) => this.lesson.say("kind_count", { kind: this.#kind(kind), count }))
      .join(this.lesson.say("list_comma"))
      // A full-width bracket brings its own blank.
      .replaceAll("） ", "）");
    return this.lesson.text("p", "sentence_kinds", { all, list });
  }

  /** @param {string} kind */
  #kind(kind) {
    return this.lesson.state.language === "zh" ? (chineseKinds[kind] ?? kind) : kind;
  }
}

/**
 * Return the token that looks most at one other token of the text; the only one, if there is no other.
 *
 * @param {number[][]} weights
 * @param {Token[]} tokens
 */
function mostTelling(weights, tokens) {
  const isText = tokens.map(({ start, stop }) => stop > start);
  const strongest = weights.map((row, query) =>
    isText[query]
      ? Math.max(...row.filter((_, key) => key !== query && isText[key]), 0)
      : 0,
  );
  const most = Math.max(...strongest);
  return most > 0 ? strongest.indexOf(most) : Math.max(isText.indexOf(true), 0);
}
