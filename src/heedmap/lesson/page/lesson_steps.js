/** The six steps from a sound to what each frame has made of all: every number on the page. */

import { make } from "./dom.js";
import { MatrixView } from "./lesson_matrix.js";
import { formula } from "./lesson_format.js";
import { choice } from "./lesson_knobs.js";
import { question } from "./lesson_questions.js";
import { soundPanel } from "./lesson_sound.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */
/** @typedef {import("./lesson_context.js").Key} Key */
/** @typedef {import("./lesson_store.js").MatrixName} MatrixName */

/**
 * Return the sections of the steps.
 *
 * @param {Lesson} lesson
 */
export function steps(lesson) {
  return [
    step(lesson, 1, stepX(lesson), "frames"),
    step(lesson, 2, stepRoles(lesson), "projection"),
    step(lesson, 3, stepScores(lesson), "scores"),
    step(lesson, 4, stepScaled(lesson), "scale"),
    step(lesson, 5, stepWeights(lesson), "budget"),
    step(lesson, 6, stepOutput(lesson), null),
  ];
}

/**
 * @param {Lesson} lesson
 * @param {1 | 2 | 3 | 4 | 5 | 6} number
 * @param {(Node | string)[]} content
 * @param {string | null} asked
 */
function step(lesson, number, content, asked) {
  return make(
    "section",
    { class: "ls-step", id: `step-${number}` },
    make(
      "h2",
      {},
      make("span", { class: "ls-step-number" }, String(number)),
      lesson.text("span", `step_${number}`),
    ),
    lesson.text("p", `step_${number}_says`),
    make(
      "div",
      { class: "ls-step-body" },
      make("div", { class: "ls-step-numbers" }, ...content),
      ...(asked ? [question(lesson, asked)] : []),
    ),
  );
}

/** @param {Lesson} lesson */
function stepX(lesson) {
  const view = new MatrixView(
    lesson,
    "x",
    () => ({
      values: lesson.numbers.x,
      looks: {
        family: "input",
        rows: frames(lesson),
        columns: numbered(lesson.numbers.x[0].length),
        rowsAreFrames: true,
        description: lesson.say("grid_x"),
      },
    }),
    { editable: true },
  );
  return [
    make("div", { class: "ls-side-by-side" }, soundPanel(lesson), figure(lesson, view, "X")),
    lesson.text("p", "honest_sound", {}, { class: "ls-note" }),
  ];
}

/** @param {Lesson} lesson */
function stepRoles(lesson) {
  const input = new MatrixView(lesson, "input", () => ({
    values: lesson.numbers.input,
    looks: {
      family: "input",
      rows: frames(lesson),
      columns: numbered(lesson.numbers.x[0].length),
      rowsAreFrames: true,
      description: lesson.say("grid_input"),
    },
  }));
  const caption = make("span");
  lesson.live(() => caption.replaceChildren(formula(lesson.state.positions ? "X + P" : "X")));
  const rows = /** @type {const} */ (["q", "k", "v"]).map((name) => roleRow(lesson, name));
  return [
    make(
      "div",
      { class: "ls-roles" },
      make("div", { class: "ls-roles-input" }, figure(lesson, input, caption)),
      make("div", { class: "ls-roles-rows" }, ...rows),
    ),
  ];
}

/**
 * @param {Lesson} lesson
 * @param {"q" | "k" | "v"} name
 */
function roleRow(lesson, name) {
  const family = { q: "query", k: "key", v: "value" }[name];
  const letter = name.toUpperCase();
  const parameters = /** @type {"wq" | "wk" | "wv"} */ (`w${name}`);
  const wide = () => numbered(lesson.numbers.q[0].length);
  const weights = new MatrixView(
    lesson,
    parameters,
    () => ({
      values: lesson.state[parameters],
      looks: {
        family,
        rows: numbered(lesson.state[parameters].length),
        columns: wide(),
        bright: bright(lesson),
        description: lesson.say("grid_w", { letter }),
      },
    }),
    { editable: true },
  );
  const made = new MatrixView(lesson, name, () => ({
    values: lesson.numbers[name],
    looks: {
      family,
      rows: frames(lesson),
      columns: wide(),
      rowsAreFrames: true,
      bright: bright(lesson),
      description: lesson.say(`role_${name}`),
    },
  }));
  return make(
    "div",
    { class: `ls-role ls-of-${family}` },
    lesson.text("p", `role_${name}`, {}, { class: "ls-role-says" }),
    equation(
      sign("×"),
      figure(lesson, weights, `W_${letter}`),
      sign("="),
      figure(lesson, made, letter),
    ),
  );
}

/** @param {Lesson} lesson */
function stepScores(lesson) {
  const view = square(lesson, "scores", "score", () => head(lesson).scores);
  return [headChoice(lesson), equation(figure(lesson, view, "QK^⊤"))];
}

/** @param {Lesson} lesson */
function stepScaled(lesson) {
  const view = square(lesson, "scaled", "score", () => head(lesson).scaled);
  const caption = make("span");
  lesson.live(() => {
    const { width } = lesson.numbers;
    const scaled = `S = QK^⊤ / √${width}`;
    caption.replaceChildren(formula(lesson.state.scaled ? scaled : "S = QK^⊤"));
  });
  return [equation(figure(lesson, view, caption))];
}

/** @param {Lesson} lesson */
function stepWeights(lesson) {
  const view = square(lesson, "weights", "weight", () => head(lesson).weights, true);
  return [headChoice(lesson), equation(figure(lesson, view, "A = softmax(S)")), changes(lesson)];
}

/** @param {Lesson} lesson */
function stepOutput(lesson) {
  const view = new MatrixView(lesson, "output", () => ({
    values: lesson.numbers.output,
    looks: {
      family: "value",
      rows: frames(lesson),
      columns: numbered(lesson.numbers.output[0].length),
      rowsAreFrames: true,
      bright: bright(lesson),
      description: lesson.say("step_6"),
    },
  }));
  return [equation(figure(lesson, view, "O = A V")), lesson.text("p", "whole_says", {}, { class: "ls-note" })];
}

/**
 * Return the view of a matrix of frames by frames.
 *
 * @param {Lesson} lesson
 * @param {"scores" | "scaled" | "weights"} name
 * @param {string} family
 * @param {() => import("./lesson_algebra.js").Matrix} read
 * @param {boolean} [summed]
 */
export function square(lesson, name, family, read, summed = false) {
  const digits = summed ? 3 : 2;
  return new MatrixView(
    lesson,
    name,
    () => {
      const values = read();
      return {
        values,
        looks: {
          family,
          rows: frames(lesson),
          columns: frames(lesson),
          rowsAreFrames: true,
          columnsAreFrames: true,
          visible: summed ? lesson.numbers.visible : undefined,
          sums: summed ? values.map((row) => row.reduce((sum, weight) => sum + weight, 0)) : undefined,
          description: lesson.say(`grid_${name}`),
        },
      };
    },
    { digits },
  );
}

/**
 * Say which knobs have been turned, where the numbers would else surprise.
 *
 * @param {Lesson} lesson
 */
function changes(lesson) {
  const note = make("p", { class: "ls-changes", "aria-live": "polite" });
  lesson.live(() => {
    const { scaled, temperature, causal, valid, order } = lesson.state;
    const padded = order.filter((number) => !valid[number]).map((number) => number + 1);
    const words = [
      ...(scaled ? [] : [lesson.say("changed_scale")]),
      ...(temperature === 1 ? [] : [lesson.say("changed_temperature", { temperature })]),
      ...(padded.length ? [lesson.say("changed_padding", { frames: padded.join(", ") })] : []),
      ...(causal ? [lesson.say("changed_causal")] : []),
    ];
    note.hidden = words.length === 0;
    note.textContent = words.join(" · ");
  });
  return note;
}

/**
 * Return the buttons that choose the head on show.
 *
 * @param {Lesson} lesson
 */
export function headChoice(lesson) {
  const place = make("div", { class: "ls-head-choice" });
  let built = 0;
  lesson.live(() => {
    const { heads } = lesson.state;
    place.hidden = heads === 1;
    if (heads !== built) {
      built = heads;
      const buttons = choice(lesson, "which_head", numbered(heads), {
        read: () => String(lesson.state.head + 1),
        choose: (value) => lesson.store.set({ head: Number(value) - 1 }),
      });
      place.replaceChildren(buttons);
    }
  });
  return place;
}

/**
 * Return a matrix with its name and its shape.
 *
 * @param {Lesson} lesson
 * @param {MatrixView} view
 * @param {string | HTMLElement} name a formula
 */
export function figure(lesson, view, name) {
  const shape = make("span", { class: "hm-faint" });
  lesson.live(() => {
    const { values } = view.read();
    shape.textContent = `${values.length} × ${values[0].length}`;
  });
  const caption = make(
    "figcaption",
    {},
    typeof name === "string" ? formula(name) : name,
    " ",
    shape,
    ...(view.editable ? [" ", lesson.text("span", "editable", {}, { class: "ls-editable-mark" })] : []),
  );
  return make("figure", { class: "ls-figure" }, caption, view.element);
}

/** @param {...Node} parts */
function equation(...parts) {
  return make("div", { class: "ls-equation" }, ...parts);
}

/** @param {string} text */
function sign(text) {
  return make("span", { class: "ls-sign", "aria-hidden": "true" }, text);
}

/** @param {Lesson} lesson */
function head(lesson) {
  return lesson.numbers.heads[lesson.state.head];
}

/**
 * @param {Lesson} lesson
 * @returns {[number, number] | undefined}
 */
function bright(lesson) {
  const { first, stop } = head(lesson);
  return lesson.state.heads === 1 ? undefined : [first, stop];
}

/** @param {Lesson} lesson */
function frames(lesson) {
  return lesson.state.order.map((number) => String(number + 1));
}

/** @param {number} size */
function numbered(size) {
  return Array.from({ length: size }, (_, place) => String(place + 1));
}
