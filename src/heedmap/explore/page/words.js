/** The words of the page in the language that is chosen; one table of strings for each. */

import { strings as english, headKinds as englishKinds, given as englishGiven } from "./strings_en.js";
import { strings as chinese, headKinds as chineseKinds, given as chineseGiven } from "./strings_zh.js";

/** @typedef {keyof typeof english} Word */
/** @typedef {Record<string, string | number>} Values what stands in the place of {names} */

/** @type {Record<string, Record<Word, string>>} */
const TABLES = { en: english, zh: chinese };

/** @type {Record<string, Record<string, string>>} */
const KINDS = { en: englishKinds, zh: chineseKinds };

/** @type {Record<string, Record<string, string>>} */
const GIVEN = { en: englishGiven, zh: chineseGiven };

/** The languages, each by its own name. */
export const LANGUAGES = { en: "English", zh: "中文" };

/** Return the first language of the browser that the page speaks. */
export function preferredLanguage() {
  const wanted = navigator.languages.map((language) => language.split("-")[0]);
  return wanted.find((language) => language in TABLES) ?? "en";
}

/** Puts words into elements, and puts them again when the language changes. */
export class Words {
  language = "en";
  /** @type {WeakMap<Element, Values>} */
  #values = new WeakMap();

  /**
   * Return a text.
   *
   * @param {Word} word
   * @param {Values} [values]
   */
  say(word, values = {}) {
    return TABLES[this.language][word].replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
  }

  /**
   * Return what a head does, in this language where it is a kind that we know.
   *
   * @param {string} label
   */
  headKind(label) {
    return KINDS[this.language][label] ?? label;
  }

  /**
   * Return a name that the library gave, in this language where it is one that we know; other names
   * are people's own.
   *
   * @param {string} name
   */
  given(name) {
    return GIVEN[this.language][name] ?? name;
  }

  /**
   * Make a text the content of an element, and return the element.
   *
   * @template {Element} Some
   * @param {Some} element
   * @param {Word} word
   * @param {Values} [values]
   * @returns {Some}
   */
  put(element, word, values = {}) {
    element.setAttribute("data-word", word);
    this.#values.set(element, values);
    const text = this.say(word, values);
    if (element.textContent !== text) {
      element.textContent = text;
    }
    return element;
  }

  /**
   * Make a text the name of an element, for screen readers and as a hint, and return the element.
   *
   * @template {Element} Some
   * @param {Some} element
   * @param {Word} word
   * @returns {Some}
   */
  name(element, word) {
    element.setAttribute("data-name", word);
    element.setAttribute("aria-label", this.say(word));
    // A hint over a whole map or text would only hide it.
    if (element.matches("button, select, input")) {
      element.setAttribute("title", this.say(word));
    }
    return element;
  }

  /**
   * Speak another language everywhere in an element.
   *
   * @param {string} language
   * @param {HTMLElement} root
   */
  speak(language, root) {
    this.language = language;
    root.lang = language;
    for (const element of root.querySelectorAll("[data-word]")) {
      const word = /** @type {Word} */ (element.getAttribute("data-word"));
      element.textContent = this.say(word, this.#values.get(element));
    }
    for (const element of root.querySelectorAll("[data-name]")) {
      this.name(element, /** @type {Word} */ (element.getAttribute("data-name")));
    }
  }
}
