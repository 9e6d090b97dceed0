/** What every part of the lesson needs: the state, the numbers, and the words of the language. */

import { make } from "./dom.js";
import { computed } from "./lesson_attention.js";
import { rich } from "./lesson_format.js";
import { texts as english } from "./lesson_texts_en.js";
import { texts as chinese } from "./lesson_texts_zh.js";

/** @typedef {keyof typeof chinese} Key */
/** @typedef {Record<string, string | number>} Values what stands in the place of {names} */

/** @type {Record<string, Record<Key, string>>} */
const TABLES = { zh: chinese, en: english };

/**
 * Where the page gets what it does not compute itself.
 *
 * @typedef {object} Source
 * @property {import("./lesson_store.js").StartNumbers} numbers
 * @property {import("./lesson_measured.js").Measured | null} measured
 * @property {Record<string, import("./lesson_sentence.js").Sentence>} sentences one for each
 *   language, looked at before
 * @property {import("./lesson_program.js").Program | null} program null where none answers
 */

export class Lesson {
  /**
   * @param {import("./lesson_store.js").LessonStore} store
   * @param {Source} source
   * @param {AbortSignal} ended until when what is built now is shown
   */
  constructor(store, source, ended) {
    this.store = store;
    this.source = source;
    this.ended = ended;
    this.#made = { state: store.state, numbers: computed(store.state) };
  }

  #made;

  get state() {
    return this.store.state;
  }

  /** Every number, as the state has it now. */
  get numbers() {
    if (this.#made.state !== this.state) {
      this.#made = { state: this.state, numbers: computed(this.state) };
    }
    return this.#made.numbers;
  }

  /**
   * Return a text in the language of the page.
   *
   * @param {Key} key
   * @param {Values} [values]
   */
  say(key, values = {}) {
    return TABLES[this.state.language][key].replace(/\{(\w+)\}/g, (whole, name) =>
      name in values ? String(values[name]) : whole,
    );
  }

  /**
   * Return an element with a text.
   *
   * @template {keyof HTMLElementTagNameMap} Tag
   * @param {Tag} tag
   * @param {Key} key
   * @param {Values} [values]
   * @param {Record<string, string>} [attributes]
   * @returns {HTMLElementTagNameMap[Tag]}
   */
  text(tag, key, values = {}, attributes = {}) {
    return make(tag, attributes, ...rich(this.say(key, values)));
  }

  /**
   * Return the name of the frame that stands in a row.
   *
   * @param {number} row
   */
  frameName(row) {
    return this.say("frame_name", { frame: this.state.order[row] + 1 });
  }

  /**
   * Do something now, and again whenever any number may have changed.
   *
   * @param {() => void} update
   */
  live(update) {
    this.store.onNumbers(update, this.ended);
    update();
  }
}
