/** The lesson with the window for itself, whether a program serves it or a file holds it. */

import { mountLesson } from "./lesson.js";

/**
 * Show the lesson in the language that was asked for, or in the browser's.
 *
 * @param {HTMLElement | null} element
 * @param {{start_numbers: any, sentences: any, measured: any}} data
 * @param {import("./lesson_program.js").Program | null} program
 */
export function mountAlone(element, data, program) {
  if (!element) {
    return;
  }
  const wanted = [element.dataset.language, ...navigator.languages.map((name) => name.split("-")[0])];
  const language = wanted.find((name) => name === "zh" || name === "en") ?? "zh";
  const source = { numbers: data.start_numbers, sentences: data.sentences, measured: data.measured, program };
  mountLesson(element, source, language);
}
