/** The lesson with the window for itself, whether a program serves it or a file holds it. */

import { mountLesson } from "./lesson.js";

/**
 * Show the lesson in the language of the address, or that was asked for, or the browser's.
 *
 * @param {HTMLElement | null} element
 * @param {{start_numbers: any, sentences: any, measured: any}} data
 * @param {import("./lesson_program.js").Program | null} program
 */
export function mountAlone(element, data, program) {
  if (!element) {
    return;
  }
  const spoken = navigator.languages.map((name) => name.split("-")[0]);
  const wanted = [location.hash.slice(1), element.dataset.language, ...spoken];
  const language = wanted.find((name) => name === "zh" || name === "en") ?? "zh";
  const source = { numbers: data.start_numbers, sentences: data.sentences, measured: data.measured, program };
  const { store } = mountLesson(element, source, language);
  // The address keeps what was chosen, for a reload and for whoever it is sent to.
  store.on(["language"], () => history.replaceState(null, "", `#${store.state.language}`));
}
