/** The lesson, to be put into an element: its parts in their order, in one language at a time. */

import { make } from "./dom.js";
import { arithmeticBar } from "./lesson_bar.js";
import { Lesson } from "./lesson_context.js";
import { formula } from "./lesson_format.js";
import { gazePanel } from "./lesson_gaze.js";
import { knobPanel, reading } from "./lesson_knobs.js";
import { MatrixView } from "./lesson_matrix.js";
import { measuredSection } from "./lesson_measured.js";
import { meetingPicture } from "./lesson_meeting.js";
import { question } from "./lesson_questions.js";
import { sentenceExample } from "./lesson_sentence.js";
import { figure, headChoice, steps } from "./lesson_steps.js";
import { LessonStore } from "./lesson_store.js";
import { timelineExample } from "./lesson_timeline.js";
import { keepTheme } from "./theme.js";
import { LANGUAGES } from "./words.js";

/** @typedef {import("./lesson_context.js").Key} Key */

/**
 * What a program can do with the lesson; also `element.lesson`.
 *
 * @typedef {object} LessonView
 * @property {LessonStore} store all that can be changed
 * @property {() => import("./lesson_attention.js").Computed} numbers every number
 */

/**
 * Show the lesson in an element.
 *
 * @param {HTMLElement} element
 * @param {import("./lesson_context.js").Source} source
 * @param {string} language
 * @returns {LessonView}
 */
export function mountLesson(element, source, language) {
  const store = new LessonStore(source.numbers, language);
  const root = make("div", { class: "heedmap ls" });
  element.append(root);
  let ending = new AbortController();
  /** @type {Lesson} */
  let lesson;
  const build = () => {
    ending.abort();
    ending = new AbortController();
    lesson = new Lesson(store, source, ending.signal);
    root.lang = document.documentElement.lang = store.state.language;
    document.title = lesson.say("title");
    root.replaceChildren(...parts(lesson));
  };
  build();
  store.on(["language"], () => {
    build();
    // Whoever chose it is still there.
    root.querySelector("select")?.focus();
  });
  keepTheme(root, store, new AbortController().signal, () => {});
  const view = { store, numbers: () => lesson.numbers };
  Object.assign(element, { lesson: view });
  return view;
}

/** @param {Lesson} lesson */
function parts(lesson) {
  return [
    bar(lesson),
    make(
      "article",
      { class: "ls-page" },
      opening(lesson),
      meeting(lesson),
      wholeFormula(lesson),
      ...steps(lesson),
      gaze(lesson),
      knobs(lesson),
      examples(lesson),
      ...measuredSection(lesson),
      beware(lesson),
      code(lesson),
    ),
    arithmeticBar(lesson),
    refusals(lesson),
  ];
}

/** @param {Lesson} lesson */
function bar(lesson) {
  const languages = make(
    "select",
    { class: "hm-select", "aria-label": lesson.say("language") },
    ...Object.entries(LANGUAGES).map(([value, name]) => make("option", { value }, name)),
  );
  languages.value = lesson.state.language;
  languages.addEventListener("change", () => lesson.store.set({ language: languages.value }));
  const themeName = lesson.say("switch_theme");
  const theme = make(
    "button",
    { type: "button", class: "hm-small", "aria-label": themeName, title: themeName },
    "◐",
  );
  theme.addEventListener("click", () => {
    const dark = theme.closest(".ls")?.getAttribute("data-theme") === "dark";
    lesson.store.set({ theme: dark ? "light" : "dark" });
  });
  const restart = lesson.text("button", "restart", {}, { type: "button", class: "hm-small ls-restart" });
  restart.addEventListener("click", () => lesson.store.restart());
  lesson.live(() => {
    restart.hidden = lesson.store.isAtStart;
  });
  return make(
    "header",
    { class: "ls-top" },
    make("span", { class: "ls-brand" }, "heedmap"),
    restart,
    languages,
    theme,
  );
}

/** @param {Lesson} lesson */
function opening(lesson) {
  return make(
    "section",
    { class: "ls-opening" },
    lesson.text("h1", "title"),
    lesson.text("p", "one_sentence", {}, { class: "ls-lead" }),
    lesson.text("p", "rhyme", {}, { class: "ls-rhyme" }),
    contents(lesson),
  );
}

/**
 * Return links to the parts of a long page.
 *
 * @param {Lesson} lesson
 */
function contents(lesson) {
  /** @type {[string, Key][]} */
  const places = [
    ["#step-1", "six_steps"],
    ["#gaze", "gaze"],
    ["#knobs", "knobs"],
    ["#examples", "examples"],
    ["#measured", "measured"],
    ["#beware", "beware"],
    ["#code", "code"],
  ];
  return make(
    "nav",
    { class: "ls-contents", "aria-label": lesson.say("contents") },
    ...places.map(([href, key]) => lesson.text("a", key, {}, { href })),
  );
}

/** @param {Lesson} lesson */
function meeting(lesson) {
  /** @type {[Key, Key, Key][]} */
  const table = [
    ["meeting_person", "meeting_frame", "symbol_x"],
    ["meeting_question", "role_q", "symbol_q"],
    ["meeting_badge", "role_k", "symbol_k"],
    ["meeting_speech", "role_v", "symbol_v"],
    ["meeting_minutes", "meeting_output", "symbol_o"],
  ];
  return make(
    "section",
    { class: "ls-meeting" },
    lesson.text("h2", "meeting"),
    make(
      "div",
      { class: "ls-halves" },
      make(
        "div",
        {},
        lesson.text("p", "meeting_says"),
        lesson.text("p", "meeting_mix"),
        make(
          "table",
          { class: "ls-glossary" },
          ...table.map(([there, here, symbol]) =>
            make("tr", {}, lesson.text("td", there), lesson.text("td", symbol), lesson.text("td", here)),
          ),
        ),
      ),
      meetingPicture(lesson),
    ),
  );
}

/** @param {Lesson} lesson */
function wholeFormula(lesson) {
  const link = (/** @type {string} */ text, /** @type {number} */ step, /** @type {string} */ family) =>
    make("a", { href: `#step-${step}`, class: `ls-of-${family}` }, formula(text));
  return make(
    "section",
    { class: "ls-whole" },
    lesson.text("h2", "formula"),
    make(
      "p",
      { class: "ls-formula" },
      link("O", 6, "value"),
      " = ",
      link("softmax", 5, "weight"),
      "(",
      link("Q", 2, "query"),
      link("K^⊤", 2, "key"),
      " / ",
      link("√d", 4, "score"),
      ") · ",
      link("V", 2, "value"),
    ),
    lesson.text("p", "formula_says"),
    lesson.text("p", "how_to_use", {}, { class: "ls-note" }),
  );
}

/** @param {Lesson} lesson */
function gaze(lesson) {
  return make(
    "section",
    { id: "gaze" },
    lesson.text("h2", "gaze"),
    lesson.text("p", "gaze_about"),
    headChoice(lesson),
    gazePanel(lesson),
    question(lesson, "looks"),
  );
}

/** @param {Lesson} lesson */
function knobs(lesson) {
  return make(
    "section",
    { id: "knobs" },
    lesson.text("h2", "knobs"),
    lesson.text("p", "knobs_say"),
    make(
      "div",
      { class: "ls-knob-place" },
      knobPanel(lesson),
      make("div", { class: "ls-watch" }, headChoice(lesson), miniature(lesson), reading(lesson)),
    ),
    make(
      "div",
      { class: "ls-questions" },
      question(lesson, "padding"),
      question(lesson, "shuffle"),
      question(lesson, "length"),
    ),
  );
}

/**
 * Return the weights once more, beside the knobs that change them.
 *
 * @param {Lesson} lesson
 */
function miniature(lesson) {
  const names = () => lesson.state.order.map((number) => String(number + 1));
  const view = new MatrixView(
    lesson,
    "weights",
    () => ({
      values: lesson.numbers.heads[lesson.state.head].weights,
      looks: {
        family: "weight",
        rows: names(),
        columns: names(),
        rowsAreFrames: true,
        columnsAreFrames: true,
        visible: lesson.numbers.visible,
        description: lesson.say("grid_weights"),
      },
    }),
    { digits: 3 },
  );
  return figure(lesson, view, "A");
}

/** @param {Lesson} lesson */
function examples(lesson) {
  return make(
    "section",
    { id: "examples" },
    lesson.text("h2", "examples"),
    lesson.text("p", "examples_say"),
    sentenceExample(lesson),
    timelineExample(lesson, "voices"),
    timelineExample(lesson, "film"),
  );
}

/** @param {Lesson} lesson */
function beware(lesson) {
  /** @type {Key[]} */
  const keys = ["beware_1", "beware_2", "beware_3"];
  return make(
    "section",
    { id: "beware" },
    lesson.text("h2", "beware"),
    make("ul", {}, ...keys.map((key) => lesson.text("li", key))),
  );
}

/** @param {Lesson} lesson */
function code(lesson) {
  return make(
    "section",
    { id: "code" },
    lesson.text("h2", "code"),
    lesson.text("p", "code_says"),
    make("pre", { class: "ls-code", tabindex: "0" }, make("code", {}, lesson.say("code_text"))),
    lesson.text("p", "code_train"),
  );
}

/**
 * Say for a moment that what was typed could not be taken.
 *
 * @param {Lesson} lesson
 */
function refusals(lesson) {
  const toast = lesson.text("div", "refused", {}, { class: "hm-toast", role: "alert" });
  toast.hidden = true;
  let timer = 0;
  const tell = () => {
    toast.hidden = false;
    window.clearTimeout(timer);
    timer = window.setTimeout(() => {
      toast.hidden = true;
    }, 3000);
  };
  document.addEventListener("ls-refused", tell, { signal: lesson.ended });
  return toast;
}
