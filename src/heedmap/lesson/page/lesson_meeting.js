/** The meeting: five people around a table, and how much the one who writes takes from each. */

import { draw } from "./dom.js";
import { percent } from "./lesson_format.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */

const SIZE = 400;
const MIDDLE = SIZE / 2;
const TABLE = 104;
const SEATS = 146;
const WIDEST = 22;

/** So many people fit around the table; of longer sequences the first are shown. */
const MOST = 5;

/**
 * Return the picture, which follows the weights and the chosen frame.
 *
 * @param {Lesson} lesson
 */
export function meetingPicture(lesson) {
  const picture = draw("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, class: "ls-meeting-picture", role: "img" });
  const update = () => {
    const { heads } = lesson.numbers;
    const all = heads[lesson.state.head].weights;
    const count = Math.min(MOST, all.length);
    const chosen = Math.min(lesson.state.chosen, count - 1);
    const weights = all[chosen].slice(0, count);
    const seats = weights.map((_, row) => seat(row, count));
    picture.setAttribute(
      "aria-label",
      lesson.say("meeting_picture", { frame: lesson.frameName(chosen) }),
    );
    picture.replaceChildren(
      draw("circle", { cx: MIDDLE, cy: MIDDLE, r: TABLE, class: "ls-table" }),
      ...weights.map((weight, row) => thread(weight, seats[chosen], seats[row], row === chosen)),
      ...weights.map((weight, row) => person(lesson, weight, row, seats[row], row === chosen)),
    );
  };
  lesson.live(update);
  lesson.store.on(["chosen", "head"], update, lesson.ended);
  return picture;
}

/** @typedef {{x: number, y: number, inward: number}} Seat */

/**
 * @param {number} row
 * @param {number} count
 * @returns {Seat}
 */
function seat(row, count) {
  const angle = (2 * Math.PI * row) / count - Math.PI / 2;
  return { x: MIDDLE + SEATS * Math.cos(angle), y: MIDDLE + SEATS * Math.sin(angle), inward: angle + Math.PI };
}

/**
 * @param {number} weight
 * @param {Seat} from
 * @param {Seat} to
 * @param {boolean} own
 */
function thread(weight, from, to, own) {
  const near = (/** @type {Seat} */ { x, y, inward }, turn = 0) => [
    x + 34 * Math.cos(inward + turn),
    y + 34 * Math.sin(inward + turn),
  ];
  const width = weight === 0 ? 0 : Math.max(0.5, WIDEST * weight);
  const [x1, y1] = near(from, own ? 0.55 : 0);
  const [x2, y2] = near(to, own ? -0.55 : 0);
  const bend = (/** @type {number} */ turn) => [
    from.x + 96 * Math.cos(from.inward + turn),
    from.y + 96 * Math.sin(from.inward + turn),
  ];
  const d = own
    ? `M ${x1} ${y1} C ${bend(0.55).join(" ")} ${bend(-0.55).join(" ")} ${x2} ${y2}`
    : `M ${x1} ${y1} Q ${MIDDLE} ${MIDDLE} ${x2} ${y2}`;
  return draw("path", { d, class: "ls-thread", "stroke-width": width });
}

/**
 * @param {Lesson} lesson
 * @param {number} weight
 * @param {number} row
 * @param {Seat} seat
 * @param {boolean} asks
 */
function person(lesson, weight, row, { x, y }, asks) {
  const made = draw(
    "g",
    { class: asks ? "ls-person ls-asks" : "ls-person" },
    draw("path", { d: `M ${x - 27} ${y + 24} a 27 25 0 0 1 54 0 z` }),
    draw("circle", { cx: x, cy: y - 16, r: 15 }),
    draw("text", { x, y: y + 18 }, String(lesson.state.order[row] + 1)),
    draw("text", { x, y: y < MIDDLE / 2 ? y - 38 : y + 41, class: "ls-tenths" }, `${percent(weight)} %`),
  );
  made.addEventListener("click", () => lesson.store.set({ chosen: row }));
  return made;
}
