/** “Who should I look at?”: one frame, and how it shares its attention among all. */

import { draw, make } from "./dom.js";
import { percent } from "./lesson_format.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */

/** From so many frames on there are no buttons, only the slider. */
const CROWDED = 13;

const HEIGHT = 100;
const WIDEST_PIXELS = 14;

/**
 * Return the panel.
 *
 * @param {Lesson} lesson
 */
export function gazePanel(lesson) {
  const arcs = make("div", { class: "ls-arcs" });
  const frames = make("div", { class: "ls-gaze-frames", role: "group", "aria-label": lesson.say("choose_frame") });
  const slider = make("input", { type: "range", min: "1", "aria-label": lesson.say("choose_frame") });
  const budget = make("div", { class: "ls-budget", "aria-hidden": "true" });
  const said = make("p", { class: "ls-said", "aria-live": "polite" });
  slider.addEventListener("input", () => lesson.store.set({ chosen: slider.valueAsNumber - 1 }));

  const update = () => {
    const { chosen, head } = lesson.state;
    const weights = lesson.numbers.heads[head].weights[chosen];
    arcs.replaceChildren(drawing(weights, chosen));
    const crowded = weights.length >= CROWDED;
    frames.hidden = crowded;
    slider.hidden = !crowded;
    slider.max = String(weights.length);
    slider.value = String(chosen + 1);
    fill(lesson, frames, weights);
    budget.replaceChildren(...weights.map((weight, row) => slice(lesson, weight, row)));
    const key = weights.some((weight) => weight > 0) ? "gaze_says" : "gaze_nobody";
    said.replaceChildren(...lesson.text("span", key, sentence(lesson, weights)).childNodes);
  };
  lesson.live(update);
  lesson.store.on(["chosen", "head"], update, lesson.ended);
  return make("div", { class: "ls-gaze" }, arcs, frames, slider, budget, said);
}

/**
 * @param {Lesson} lesson
 * @param {HTMLElement} frames
 * @param {number[]} weights
 */
function fill(lesson, frames, weights) {
  const { chosen } = lesson.state;
  if (frames.children.length !== weights.length) {
    frames.replaceChildren(...weights.map((_, row) => frameButton(lesson, row)));
  }
  [...frames.children].forEach((button, row) => {
    button.setAttribute("aria-pressed", String(row === chosen));
    button.setAttribute("aria-label", `${lesson.frameName(row)}: ${percent(weights[row])} %`);
    button.setAttribute("data-value", String(weights[row]));
    const [name, share] = button.children;
    name.textContent = String(lesson.state.order[row] + 1);
    share.textContent = `${percent(weights[row])} %`;
  });
}

/**
 * @param {Lesson} lesson
 * @param {number} row
 */
function frameButton(lesson, row) {
  const button = make(
    "button",
    { type: "button", class: "ls-gaze-frame" },
    make("span", { class: "ls-badge" }),
    make("span", { class: "ls-share" }),
  );
  button.addEventListener("click", () => lesson.store.set({ chosen: row }));
  return button;
}

/**
 * Return arcs from the chosen frame to every other one, as wide as their weights, and a loop to
 * itself.
 *
 * @param {number[]} weights
 * @param {number} chosen
 */
function drawing(weights, chosen) {
  const size = weights.length;
  const middle = (/** @type {number} */ row) => row + 0.5;
  const paths = weights.map((weight, row) => {
    const distance = Math.abs(row - chosen) / Math.max(1, size - 1);
    const top = HEIGHT * (1 - 1.25 * (0.25 + 0.75 * distance));
    const from = middle(chosen);
    const to = middle(row);
    const shape =
      row === chosen
        ? `M ${from - 0.14} ${HEIGHT} C ${from - 0.34} ${HEIGHT * 0.45} ${from + 0.34} ${HEIGHT * 0.45} ${from + 0.14} ${HEIGHT}`
        : `M ${from} ${HEIGHT} C ${from} ${top} ${to} ${top} ${to} ${HEIGHT}`;
    return draw("path", {
      d: shape,
      class: "ls-arc",
      "stroke-width": weight === 0 ? 0 : Math.max(0.4, WIDEST_PIXELS * weight),
      "vector-effect": "non-scaling-stroke",
    });
  });
  return draw(
    "svg",
    { viewBox: `0 0 ${size} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    ...paths,
  );
}

/**
 * @param {Lesson} lesson
 * @param {number} weight
 * @param {number} row
 */
function slice(lesson, weight, row) {
  const wide = weight > 0.07;
  const part = make("span", {}, wide ? String(lesson.state.order[row] + 1) : "");
  part.style.setProperty("--part", String(weight));
  part.classList.toggle("ls-own", row === lesson.state.chosen);
  return part;
}

/**
 * @param {Lesson} lesson
 * @param {number[]} weights
 */
function sentence(lesson, weights) {
  const { chosen } = lesson.state;
  const best = weights.indexOf(Math.max(...weights));
  const effective = effectiveFrames(weights);
  return {
    frame: lesson.frameName(chosen),
    best: best === chosen ? lesson.say("itself") : lesson.frameName(best),
    share: percent(weights[best]),
    effective: effective.toFixed(1),
    size: weights.length,
  };
}

/**
 * Return over how many frames attention is spread: as many as it would be if all that were looked
 * at had the same weight.
 *
 * @param {number[]} weights
 */
export function effectiveFrames(weights) {
  const entropy = weights.reduce((sum, weight) => sum - (weight > 0 ? weight * Math.log(weight) : 0), 0);
  return weights.some((weight) => weight > 0) ? Math.exp(entropy) : 0;
}
