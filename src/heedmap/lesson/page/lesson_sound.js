/** The sound of X: seen as bars, heard as a whole or frame by frame, and measured again. */

import { data, make } from "./dom.js";
import { difference } from "./lesson_algebra.js";
import { FRAME_SECONDS, measured, RATE_HZ, synthesised, TONES_HZ } from "./lesson_tones.js";

/** @typedef {import("./lesson_context.js").Lesson} Lesson */

/** The features between which a bar grows from nothing to its full height. */
const [LOWEST, HIGHEST] = [-3, 3];

/**
 * Return the panel.
 *
 * @param {Lesson} lesson
 */
export function soundPanel(lesson) {
  const player = new Player(lesson.ended);
  const frames = make("div", { class: "ls-frames" });
  const found = make("p", { class: "hm-faint ls-measured" });
  const play = lesson.text("button", "play_all", {}, { type: "button", class: "hm-small" });
  play.addEventListener("click", () => player.play(lesson.numbers.x, 0, lesson.numbers.x.length));
  player.onFrame = (number) => {
    [...frames.children].forEach((frame, place) =>
      frame.classList.toggle("ls-playing", place === number),
    );
  };
  const update = () => {
    const { x } = lesson.numbers;
    frames.replaceChildren(...x.map((_, row) => frameButton(lesson, player, row)));
    const { samples, middle } = synthesised(x);
    const largest = difference(measured(samples, middle), x);
    found.replaceChildren(
      ...lesson.text("span", "measured_again", { difference: largest.toExponential(1) }).childNodes,
    );
  };
  lesson.store.on(["frames", "order"], update, lesson.ended);
  update();
  const tones = TONES_HZ.map((hertz, tone) =>
    make("li", {}, data("span", String(tone + 1), { class: `ls-tone ls-tone-${tone}` }), `${hertz} Hz`),
  );
  return make(
    "div",
    { class: "ls-sound" },
    make("div", { class: "ls-sound-row" }, play, make("ul", { class: "ls-tones" }, ...tones)),
    frames,
    found,
  );
}

/**
 * @param {Lesson} lesson
 * @param {Player} player
 * @param {number} row
 */
function frameButton(lesson, player, row) {
  const bars = lesson.numbers.x[row].map((feature, tone) => {
    const bar = make("i", { class: `ls-tone-${tone}` });
    const part = (feature - LOWEST) / (HIGHEST - LOWEST);
    bar.style.setProperty("--part", String(Math.min(1, Math.max(0.02, part))));
    return bar;
  });
  const name = lesson.frameName(row);
  const button = make(
    "button",
    { type: "button", class: "ls-frame-button", "aria-label": lesson.say("play_frame", { name }) },
    make("span", { class: "ls-bars" }, ...bars),
    make("span", {}, String(lesson.state.order[row] + 1)),
  );
  button.addEventListener("click", () => player.play(lesson.numbers.x, row, row + 1));
  return button;
}

/** Plays frames, and says which one is heard. */
class Player {
  /** @type {(number: number | null) => void} */
  onFrame = () => {};
  /** @type {AudioContext | null} */
  #context = null;
  /** @type {AudioBufferSourceNode | null} */
  #source = null;
  #timer = 0;

  /** @param {AbortSignal} ended */
  constructor(ended) {
    ended.addEventListener("abort", () => {
      this.#stop();
      this.#context?.close();
    });
  }

  /**
   * @param {import("./lesson_algebra.js").Matrix} features
   * @param {number} first the first frame to be heard
   * @param {number} stop the one behind the last
   */
  play(features, first, stop) {
    this.#stop();
    this.#context ??= new AudioContext();
    const context = this.#context;
    const { samples } = synthesised(features);
    const buffer = context.createBuffer(1, samples.length, RATE_HZ);
    buffer.copyToChannel(samples, 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    const begin = context.currentTime;
    source.start(begin, first * FRAME_SECONDS, (stop - first) * FRAME_SECONDS);
    this.#source = source;
    this.#timer = window.setInterval(() => {
      const number = first + Math.floor((context.currentTime - begin) / FRAME_SECONDS);
      this.onFrame(number < stop ? number : null);
      if (number >= stop) {
        this.#stop();
      }
    }, 30);
  }

  #stop() {
    window.clearInterval(this.#timer);
    this.#source?.stop();
    this.#source = null;
    this.onFrame(null);
  }
}
