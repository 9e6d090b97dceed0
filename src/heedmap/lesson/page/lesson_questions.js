/** Small questions; the page knows the answers from the numbers as they are. */

import { make } from "./dom.js";
import { typed, typedShare } from "./lesson_format.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */
/** @typedef {import("./lesson_context.js").Key} Key */
/** @typedef {import("./lesson_context.js").Values} Values */

/**
 * @typedef {object} Question
 * @property {Key} ask
 * @property {Key} why said behind the answer, right or wrong
 * @property {Key[]} [choices] one of which is right; without them a number is asked for
 * @property {(lesson: Lesson) => number} answer the number, or the place of the right choice
 * @property {boolean} [share] whether the number is a share, which may be a percentage
 * @property {(lesson: Lesson) => number} [within] by how much a number may be off
 * @property {(lesson: Lesson) => Values} [values] what stands in the texts
 * @property {number} [row] the row that is asked about; while nobody is seen from it, nothing is
 */

/** Of longer rows the sum is shown: rounded one by one, so many weights would leave any answer open. */
const MOST_LISTED = 8;

/** Half a unit of the last digit, by which a number of two decimals may be off. */
const ROUNDING = 0.005;

/** @type {Record<string, Question>} */
export const QUESTIONS = {
  frames: {
    ask: "ask_strength",
    why: "why_strength",
    answer: () => 4,
  },
  projection: {
    ask: "ask_roles",
    why: "why_roles",
    choices: ["roles_q", "roles_k", "roles_v"],
    answer: () => 1,
  },
  scores: {
    ask: "ask_row",
    why: "why_row",
    choices: ["row_received", "row_given"],
    answer: () => 1,
  },
  scale: {
    ask: "ask_scale",
    why: "why_scale",
    choices: ["scale_flatter", "scale_same", "scale_sharper"],
    answer: () => 2,
  },
  budget: {
    ask: "ask_rest",
    share: true,
    row: 1,
    why: "why_rest",
    answer: (lesson) => last(weightsOf(lesson, 1)),
    // Each number that is shown may be off, and the one that is typed.
    within: (lesson) => ROUNDING * (addends(lesson).length + 1) + 1e-9,
    values: (lesson) => ({
      frame: lesson.frameName(1),
      weights: addends(lesson).join(" + "),
      answer: last(weightsOf(lesson, 1)).toFixed(2),
    }),
  },
  looks: {
    ask: "ask_most",
    row: 0,
    why: "why_most",
    answer: (lesson) => {
      const row = weightsOf(lesson, 0);
      return lesson.state.order[row.indexOf(Math.max(...row))] + 1;
    },
    values: (lesson) => ({ frame: lesson.frameName(0) }),
  },
  padding: {
    ask: "ask_padding",
    share: true,
    why: "why_padding_answer",
    answer: () => 0,
  },
  shuffle: {
    ask: "ask_shuffle",
    why: "why_shuffle",
    choices: ["shuffle_new", "shuffle_moves", "shuffle_mean"],
    answer: () => 1,
  },
  length: {
    ask: "ask_length",
    why: "why_length",
    answer: () => 100,
  },
};

/**
 * Return the row of weights of the frame that stands in a row.
 *
 * @param {Lesson} lesson
 * @param {number} row
 */
function weightsOf(lesson, row) {
  return lesson.numbers.heads[lesson.state.head].weights[row];
}

/**
 * Return what is shown of the weights before the last one: each, or in a long row their sum.
 *
 * @param {Lesson} lesson
 */
function addends(lesson) {
  const others = weightsOf(lesson, 1).slice(0, -1);
  if (others.length <= MOST_LISTED) {
    return others.map((weight) => weight.toFixed(2));
  }
  const sum = others.reduce((total, weight) => total + weight, 0).toFixed(2);
  return [lesson.say("sum_of_first", { count: others.length, sum })];
}

/** @param {number[]} row */
function last(row) {
  return row[row.length - 1];
}

/**
 * Return a question with its way to answer.
 *
 * @param {Lesson} lesson
 * @param {keyof typeof QUESTIONS} name
 */
export function question(lesson, name) {
  const asked = QUESTIONS[name];
  const answer = asked.choices ? choices(lesson, name, asked.choices) : numberField(asked.share);
  const said = make("p", { class: "ls-verdict", role: "status" });
  const prompt = make("p", { class: "ls-ask" });
  const check = lesson.text("button", "check", {}, { type: "submit", class: "hm-small" });
  const form = make(
    "form",
    { class: "ls-question", "data-question": name },
    lesson.text("p", "question", {}, { class: "ls-kicker" }),
    prompt,
    answer.element,
    check,
    said,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const given = answer.read();
    const right = given !== null && Math.abs(given - asked.answer(lesson)) <= (asked.within?.(lesson) ?? 0);
    /** @type {Key} */
    const verdict = given === null ? "verdict_none" : right ? "verdict_right" : "verdict_wrong";
    const values = asked.values?.(lesson);
    said.replaceChildren(
      lesson.text("strong", verdict),
      " ",
      ...(given === null ? [] : lesson.text("span", asked.why, values).childNodes),
    );
    form.dataset.verdict = verdict;
  });
  lesson.live(() => {
    const { row } = asked;
    const nobody = row !== undefined && weightsOf(lesson, row).every((weight) => weight === 0);
    answer.element.hidden = check.hidden = nobody;
    const words = nobody
      ? lesson.text("span", "ask_nothing", { frame: lesson.frameName(row) })
      : lesson.text("span", asked.ask, asked.values?.(lesson));
    prompt.replaceChildren(...words.childNodes);
    answer.element.setAttribute("aria-label", prompt.textContent ?? "");
    said.replaceChildren();
    delete form.dataset.verdict;
  });
  return form;
}

/**
 * @param {Lesson} lesson
 * @param {string} name
 * @param {Key[]} keys
 */
function choices(lesson, name, keys) {
  const inputs = keys.map((_, place) =>
    make("input", { type: "radio", name: `question-${name}`, value: String(place) }),
  );
  const element = make(
    "div",
    { class: "ls-choices", role: "radiogroup" },
    ...inputs.map((input, place) => make("label", {}, input, lesson.text("span", keys[place]))),
  );
  const read = () => {
    const place = inputs.findIndex((input) => input.checked);
    return place < 0 ? null : place;
  };
  return { element, read };
}

/** @param {boolean} [share] */
function numberField(share = false) {
  const input = make("input", {
    type: "text",
    inputmode: "decimal",
    class: "hm-number",
    autocomplete: "off",
  });
  return { element: input, read: () => (share ? typedShare : typed)(input.value) };
}
