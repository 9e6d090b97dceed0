/** All that a reader can change, in one place; whoever shows a part of it listens to that part. */

/** @typedef {import("./lesson_algebra.js").Matrix} Matrix */

/**
 * The numbers to begin with, as `start_numbers.json` has them.
 *
 * @typedef {object} StartNumbers
 * @property {number} seed
 * @property {Matrix[]} sounds
 * @property {number[][]} valid
 * @property {Matrix} w_q
 * @property {Matrix} w_k
 * @property {Matrix} w_v
 * @property {Matrix} more
 */

/** @typedef {"x" | "wq" | "wk" | "wv"} Editable */
/** @typedef {Editable | "input" | "q" | "k" | "v" | "scores" | "scaled" | "weights" | "output"} MatrixName */
/** @typedef {{matrix: MatrixName, row: number, column: number}} Cell */

/**
 * @typedef {object} LessonState
 * @property {number} sound which of the two sounds
 * @property {Matrix} frames the features of each frame, by its number
 * @property {number[]} order the numbers of the frames in the order in which they stand
 * @property {boolean[]} valid which frames are no padding, by their number
 * @property {Matrix} wq
 * @property {Matrix} wk
 * @property {Matrix} wv
 * @property {boolean} scaled whether scores are divided by √d
 * @property {number} temperature
 * @property {boolean} causal
 * @property {number} heads
 * @property {boolean} positions whether X is told where each frame stands
 * @property {number} head the one on show
 * @property {number} chosen the row of the frame whose row is followed
 * @property {Cell | null} cell the cell whose arithmetic is shown
 * @property {string | null} typed the sentence that somebody typed, looked at or not
 * @property {import("./lesson_sentence.js").Sentence | null} sentence the one that was looked at
 * @property {Partial<Record<string, import("./lesson_timeline.js").Timeline>>} timelines those that are open, by name
 * @property {string} language
 * @property {"auto" | "light" | "dark"} theme
 */

/** What decides the numbers; the rest only says what is shown of them. */
const DECISIVE = /** @type {const} */ ([
  "frames",
  "order",
  "valid",
  "wq",
  "wk",
  "wv",
  "scaled",
  "temperature",
  "causal",
  "heads",
  "positions",
]);

export const SHORTEST = 2;

/** How far from 0 an input may be. */
export const LIMIT = 10;

export class LessonStore {
  /** @type {LessonState} */
  state;
  /** @type {Set<(changed: Set<string>) => void>} */
  #listeners = new Set();

  /**
   * @param {StartNumbers} numbers
   * @param {string} language
   */
  constructor(numbers, language) {
    this.numbers = numbers;
    this.state = {
      ...beginning(numbers, 0),
      cell: null,
      typed: null,
      sentence: null,
      timelines: {},
      language,
      theme: "auto",
    };
  }

  /** @param {Partial<LessonState>} parts */
  set(parts) {
    const names = /** @type {(keyof LessonState)[]} */ (Object.keys(parts));
    const changed = new Set(
      names.filter((name) => JSON.stringify(parts[name]) !== JSON.stringify(this.state[name])),
    );
    if (changed.size === 0) {
      return;
    }
    this.state = { ...this.state, ...parts };
    for (const listener of [...this.#listeners]) {
      listener(changed);
    }
  }

  /**
   * Call `listener` when one of `names` has changed.
   *
   * @param {readonly (keyof LessonState)[]} names
   * @param {() => void} listener
   * @param {AbortSignal} [ended] until when
   */
  on(names, listener, ended) {
    const told = (/** @type {Set<string>} */ changed) => {
      if (names.some((name) => changed.has(name))) {
        listener();
      }
    };
    this.#listeners.add(told);
    ended?.addEventListener("abort", () => this.#listeners.delete(told));
  }

  /**
   * Call `listener` when any number may have changed.
   *
   * @param {() => void} listener
   * @param {AbortSignal} [ended]
   */
  onNumbers(listener, ended) {
    this.on(DECISIVE, listener, ended);
  }

  /** Whether every number is as at the start. */
  get isAtStart() {
    const start = /** @type {Record<string, unknown>} */ (beginning(this.numbers, this.state.sound));
    return DECISIVE.every((name) => JSON.stringify(start[name]) === JSON.stringify(this.state[name]));
  }

  /** Put back what the lesson began with, or begin with another sound. */
  restart(sound = this.state.sound) {
    this.set({ ...beginning(this.numbers, sound), cell: null });
  }

  /**
   * Change one number; one of X is that of the frame that stands in this row.
   *
   * @param {Editable} matrix
   * @param {number} row
   * @param {number} column
   * @param {number} value
   */
  edit(matrix, row, column, value) {
    const name = matrix === "x" ? "frames" : matrix;
    const place = matrix === "x" ? this.state.order[row] : row;
    const changed = this.state[name].map((numbers) => [...numbers]);
    changed[place][column] = value;
    this.set({ [name]: changed });
  }

  /**
   * Make the sequence longer or shorter; frames that were edited stay as they are.
   *
   * @param {number} length
   */
  lengthen(length) {
    const { frames, valid, order, chosen } = this.state;
    const all = [...this.numbers.sounds[this.state.sound], ...this.numbers.more];
    this.set({
      frames: all.slice(0, length).map((frame, number) => frames[number] ?? frame),
      valid: Array.from({ length }, (_, number) => valid[number] ?? true),
      order: [
        ...order.filter((number) => number < length),
        ...Array.from({ length }, (_, number) => number).filter((number) => !order.includes(number)),
      ],
      chosen: Math.min(chosen, length - 1),
      cell: null,
    });
  }
}

/**
 * @param {StartNumbers} numbers
 * @param {number} sound
 */
function beginning(numbers, sound) {
  const frames = numbers.sounds[sound];
  return {
    sound,
    frames,
    order: frames.map((_, number) => number),
    valid: numbers.valid[sound].map((valid) => valid === 1),
    wq: numbers.w_q,
    wk: numbers.w_k,
    wv: numbers.w_v,
    scaled: true,
    temperature: 1,
    causal: false,
    heads: 1,
    positions: false,
    head: 0,
    chosen: 0,
  };
}
