/** What the page asks of the program: sentences, sounds and films, looked at by real models. */

import { ask } from "./transport_http.js";

/** @typedef {import("./lesson_sentence.js").Sentence} Sentence */
/** @typedef {import("./lesson_timeline.js").Timeline} Timeline */
/** @typedef {import("./lesson_timeline.js").Row} Row */

/**
 * The program, which `heedmap lesson` is.
 *
 * @typedef {object} Program
 * @property {(text: string) => Promise<Sentence>} sentence
 * @property {(name: string) => Promise<Timeline>} timeline
 * @property {(name: string, query: number) => Promise<Row>} row
 * @property {() => Promise<string>} doing what is going on
 */

/** @returns {Program} */
export function httpProgram() {
  return {
    sentence: async (text) =>
      json("/sentences", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ text }),
      }),
    timeline: async (name) => json(`/timelines/${name}`),
    row: async (name, query) => json(`/timelines/${name}/rows/${query}`),
    doing: async () => (await json("/doing")).line,
  };
}

/**
 * @param {string} path
 * @param {RequestInit} [how]
 */
async function json(path, how = {}) {
  return (await ask(path, how)).json();
}
