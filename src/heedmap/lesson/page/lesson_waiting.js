/** Waiting for the program: what it is doing, and what went wrong. */

import { make } from "./dom.js";
import { TransportError } from "./transport.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */

const ASK_EVERY_MS = 700;

/**
 * Return a line that tells what the program is doing while something is waited for, and how to wait
 * or say that there is nothing to wait for.
 *
 * @param {Lesson} lesson
 */
export function waiting(lesson) {
  const line = make("p", { class: "ls-busy", role: "status" });
  const refuse = (/** @type {string} */ why) => {
    line.className = "ls-busy ls-trouble";
    line.textContent = why;
  };

  /**
   * Wait for something, telling so, and hand it on.
   *
   * @template T
   * @param {Promise<T>} wanted
   * @param {(answer: T) => void} take
   */
  const wait = async (wanted, take) => {
    line.className = "ls-busy";
    line.textContent = lesson.say("working");
    const timer = window.setInterval(async () => {
      const doing = await lesson.source.program?.doing().catch(() => "");
      if (doing && line.className === "ls-busy" && line.textContent) {
        line.textContent = lesson.say("working_on", { doing });
      }
    }, ASK_EVERY_MS);
    lesson.ended.addEventListener("abort", () => window.clearInterval(timer));
    try {
      const answer = await wanted;
      line.textContent = "";
      if (!lesson.ended.aborted) {
        take(answer);
      }
    } catch (error) {
      if (!(error instanceof TransportError)) {
        throw error;
      }
      refuse(error.said || lesson.say("no_answer"));
    } finally {
      window.clearInterval(timer);
    }
  };
  return { line, wait, refuse };
}
