/** The knobs: what can be changed about attention, and what each change does to the weights. */

import { make } from "./dom.js";
import { difference } from "./lesson_algebra.js";
import { computed } from "./lesson_attention.js";
import { percent } from "./lesson_format.js";
import { effectiveFrames } from "./lesson_gaze.js";
import { SHORTEST } from "./lesson_store.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */
/** @typedef {import("./lesson_context.js").Key} Key */
/** @typedef {import("./lesson_store.js").LessonState} LessonState */

/** The slider of the temperature moves evenly in powers of ten. */
const COLDEST = -1;
const HOTTEST = 1;

/**
 * Return the panel with all knobs.
 *
 * @param {Lesson} lesson
 */
export function knobPanel(lesson) {
  return make(
    "div",
    { class: "ls-knobs" },
    group(lesson, "knob_scale_long", toggle(lesson, "knob_scale", "scaled"), temperature(lesson)),
    group(lesson, "knob_padding_long", padding(lesson)),
    group(lesson, "knob_causal_long", toggle(lesson, "knob_causal", "causal")),
    group(lesson, "knob_heads_long", headCount(lesson)),
    group(lesson, "knob_shuffle_long", ...shuffle(lesson), toggle(lesson, "knob_positions", "positions")),
    group(lesson, "knob_length_long", length(lesson)),
    group(lesson, "knob_sound_long", sounds(lesson)),
  );
}

/**
 * Return what the knobs have done, in numbers.
 *
 * @param {Lesson} lesson
 */
export function reading(lesson) {
  const list = make("dl", { class: "ls-reading", "aria-live": "polite" });
  const update = () => {
    const { weights } = lesson.numbers.heads[lesson.state.head];
    const rows = weights.filter((row) => row.some((weight) => weight > 0));
    const mean = (/** @type {number[]} */ values) =>
      values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
    const largest = mean(rows.map((row) => Math.max(...row)));
    const spread = mean(rows.map(effectiveFrames));
    const zeros = weights.flat().filter((weight) => weight === 0).length;
    /** @type {[Key, string, number][]} */
    const lines = [
      ["reading_largest", `${percent(largest)} %`, largest],
      ["reading_spread", spread.toFixed(2), spread],
      ["reading_zeros", `${zeros} / ${weights.length ** 2}`, zeros],
    ];
    list.replaceChildren(
      ...lines.flatMap(([key, text, value]) => [
        lesson.text("dt", key),
        make("dd", { "data-reading": key, "data-value": String(value) }, text),
      ]),
    );
  };
  lesson.live(update);
  lesson.store.on(["head"], update, lesson.ended);
  return list;
}

/**
 * @param {Lesson} lesson
 * @param {Key} about
 * @param {...HTMLElement} controls
 */
function group(lesson, about, ...controls) {
  return make(
    "div",
    { class: "ls-knob" },
    make("div", { class: "ls-knob-controls" }, ...controls),
    lesson.text("p", about, {}, { class: "hm-faint" }),
  );
}

/**
 * @param {Lesson} lesson
 * @param {Key} key
 * @param {"scaled" | "causal" | "positions"} name
 */
function toggle(lesson, key, name) {
  const box = make("input", { type: "checkbox", "data-knob": name });
  box.addEventListener("change", () => lesson.store.set({ [name]: box.checked, cell: null }));
  lesson.live(() => {
    box.checked = lesson.state[name];
  });
  return make("label", { class: "hm-check" }, box, lesson.text("span", key));
}

/** @param {Lesson} lesson */
function temperature(lesson) {
  const slider = make("input", {
    type: "range",
    min: String(COLDEST),
    max: String(HOTTEST),
    step: "0.01",
    "data-knob": "temperature",
  });
  const value = make("output", { class: "ls-number" });
  slider.addEventListener("input", () =>
    lesson.store.set({ temperature: Number((10 ** slider.valueAsNumber).toFixed(3)) }),
  );
  lesson.live(() => {
    slider.value = String(Math.log10(lesson.state.temperature));
    value.textContent = lesson.state.temperature.toFixed(2);
  });
  return make("label", { class: "hm-check" }, lesson.text("span", "knob_temperature"), slider, value);
}

/** @param {Lesson} lesson */
function padding(lesson) {
  const boxes = make("div", { class: "ls-boxes", role: "group", "aria-label": lesson.say("knob_padding") });
  lesson.live(() => {
    const { order, valid } = lesson.state;
    if (boxes.children.length !== order.length) {
      boxes.replaceChildren(...order.map((_, row) => frameBox(lesson, row)));
    }
    [...boxes.querySelectorAll("input")].forEach((box, row) => {
      box.checked = valid[order[row]];
      box.setAttribute("aria-label", lesson.frameName(row));
      /** @type {HTMLElement} */ (box.nextElementSibling).textContent = String(order[row] + 1);
    });
  });
  return make("div", { class: "ls-knob-row" }, lesson.text("span", "knob_padding"), boxes);
}

/**
 * @param {Lesson} lesson
 * @param {number} row
 */
function frameBox(lesson, row) {
  const box = make("input", { type: "checkbox", "data-knob": "valid" });
  box.addEventListener("change", () => {
    const valid = [...lesson.state.valid];
    valid[lesson.state.order[row]] = box.checked;
    lesson.store.set({ valid });
  });
  return make("label", { class: "ls-box" }, box, make("span"));
}

/** @param {Lesson} lesson */
function headCount(lesson) {
  return choice(lesson, "knob_heads", [1, 2, 4].map(String), {
    read: () => String(lesson.state.heads),
    choose: (value) => lesson.store.set({ heads: Number(value), head: 0, cell: null }),
  });
}

/** @param {Lesson} lesson */
function sounds(lesson) {
  return choice(lesson, "knob_sound", ["1", "2"], {
    read: () => String(lesson.state.sound + 1),
    choose: (value) => lesson.store.restart(Number(value) - 1),
  });
}

/**
 * Return buttons of which one is pressed.
 *
 * @param {Lesson} lesson
 * @param {Key} key
 * @param {string[]} values
 * @param {{read: () => string, choose: (value: string) => void}} how
 */
export function choice(lesson, key, values, { read, choose }) {
  const buttons = values.map((value) => {
    const button = make("button", { type: "button", class: "hm-small", "data-choice": value }, value);
    button.addEventListener("click", () => choose(value));
    return button;
  });
  const update = () => {
    for (const button of buttons) {
      button.setAttribute("aria-pressed", String(button.dataset.choice === read()));
    }
  };
  lesson.live(update);
  lesson.store.on(["head", "sound"], update, lesson.ended);
  return make(
    "div",
    { class: "ls-knob-row", role: "group", "aria-label": lesson.say(key), "data-knob": key },
    lesson.text("span", key),
    ...buttons,
  );
}

/** @param {Lesson} lesson */
function shuffle(lesson) {
  const mix = lesson.text("button", "knob_shuffle", {}, { type: "button", class: "hm-small" });
  const back = lesson.text("button", "knob_unshuffle", {}, { type: "button", class: "hm-small" });
  const said = make("p", { class: "ls-said", "data-knob": "moved", "aria-live": "polite" });
  mix.addEventListener("click", () => lesson.store.set({ order: shuffled(lesson.state.order), cell: null }));
  back.addEventListener("click", () =>
    lesson.store.set({ order: lesson.state.frames.map((_, number) => number), cell: null }),
  );
  lesson.live(() => {
    const { order } = lesson.state;
    const moved = order.some((number, row) => number !== row);
    back.disabled = !moved;
    said.hidden = !moved;
    const away = moved ? movedBy(lesson) : 0;
    said.dataset.value = String(away);
    said.replaceChildren(
      ...lesson.text("span", away < 1e-9 ? "moved_along" : "moved_else", {
        difference: away.toFixed(3),
      }).childNodes,
    );
  });
  return [mix, back, said];
}

/**
 * Return by how much the output of any frame differs from what it was before the frames moved.
 *
 * @param {Lesson} lesson
 */
function movedBy(lesson) {
  const { order } = lesson.state;
  const before = computed({ ...lesson.state, order: order.map((_, row) => row) }).output;
  return difference(
    lesson.numbers.output,
    order.map((number) => before[number]),
  );
}

/**
 * Return another order.
 *
 * @param {number[]} order
 */
function shuffled(order) {
  const made = [...order];
  do {
    for (let last = made.length - 1; last > 0; last--) {
      const other = Math.floor(Math.random() * (last + 1));
      [made[last], made[other]] = [made[other], made[last]];
    }
  } while (made.every((number, row) => number === row));
  return made;
}

/** @param {Lesson} lesson */
function length(lesson) {
  const longest = lesson.store.numbers.sounds[0].length + lesson.store.numbers.more.length;
  const slider = make("input", {
    type: "range",
    min: String(SHORTEST),
    max: String(longest),
    "data-knob": "length",
  });
  const value = make("output", { class: "ls-number" });
  slider.addEventListener("input", () => lesson.store.lengthen(slider.valueAsNumber));
  lesson.live(() => {
    const frames = lesson.state.frames.length;
    slider.value = String(frames);
    value.textContent = lesson.say("length_says", { frames, weights: frames ** 2 });
  });
  return make("label", { class: "hm-check" }, lesson.text("span", "knob_length"), slider, value);
}
