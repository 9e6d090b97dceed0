/** A matrix on the page: numbers that can be pointed at, walked through with keys, and edited. */

import { make } from "./dom.js";
import { fitted, shown, typed } from "./lesson_format.js";
import { LIMIT } from "./lesson_store.js";

/** @typedef {import("./lesson_algebra.js").Matrix} Matrix */
/** @typedef {import("./lesson_context.js").Lesson} Lesson */
/** @typedef {import("./lesson_store.js").MatrixName} MatrixName */
/** @typedef {import("./lesson_store.js").Editable} Editable */

/** From so many columns on there is no room for numbers: colours alone, and the sum below. */
const CROWDED = 11;

/**
 * What is around the numbers.
 *
 * @typedef {object} Looks
 * @property {string} family whose colour it has: input, query, key, value, score or weight
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {boolean} [rowsAreFrames]
 * @property {boolean} [columnsAreFrames]
 * @property {boolean[][]} [visible] what is hidden is crossed out
 * @property {[number, number]} [bright] the columns that the head on show has to itself
 * @property {number[]} [sums] what each row sums to
 * @property {string} [description] what it is, for those who hear the page
 */

const ARROWS = /** @type {Record<string, [number, number]>} */ ({
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
});

export class MatrixView {
  /** @type {HTMLElement[][]} */
  #cells = [];
  /** @type {Matrix} */
  #values = [];
  #shape = "";
  #digits = 2;

  /**
   * @param {Lesson} lesson
   * @param {MatrixName} name
   * @param {() => {values: Matrix, looks: Looks}} read what to show, asked whenever it may differ
   * @param {{editable?: boolean, digits?: number}} [how]
   */
  constructor(lesson, name, read, { editable = false, digits = 2 } = {}) {
    this.lesson = lesson;
    this.name = name;
    this.read = read;
    this.editable = editable;
    this.#digits = digits;
    this.table = make("table", { class: "ls-matrix", role: "grid", "data-matrix": name });
    this.element = make("div", { class: "ls-matrix-frame" }, this.table);
    this.#listen();
    lesson.live(() => this.#update());
    lesson.store.on(["head"], () => this.#update(), lesson.ended);
    lesson.store.on(["cell"], () => this.#mark(), lesson.ended);
  }

  #update() {
    const { values, looks } = this.read();
    this.#values = values;
    const shape = JSON.stringify([values.length, values[0].length, looks.rows, looks.columns]);
    if (shape !== this.#shape) {
      this.#shape = shape;
      this.#build(values, looks);
    }
    this.table.className = `ls-matrix ls-of-${looks.family}`;
    this.table.classList.toggle("ls-crowded", values[0].length >= CROWDED);
    if (looks.description) {
      this.table.setAttribute("aria-label", looks.description);
    }
    const largest = Math.max(...values.map((row) => Math.max(...row.map(Math.abs)))) || 1;
    this.#cells.forEach((cells, row) =>
      cells.forEach((cell, column) => this.#fill(cell, row, column, largest, looks)),
    );
    looks.sums?.forEach((sum, row) => {
      const cell = this.table.rows[row + 1].lastElementChild;
      if (cell) {
        cell.textContent = shown(sum, 2);
        cell.setAttribute("data-sum", String(sum));
      }
    });
    this.#mark();
  }

  /**
   * @param {Matrix} values
   * @param {Looks} looks
   */
  #build(values, looks) {
    const header = (/** @type {string} */ text, /** @type {"row" | "col"} */ scope) => {
      const frames = scope === "row" ? looks.rowsAreFrames : looks.columnsAreFrames;
      return make("th", { scope, class: frames ? `ls-frame ls-${scope}` : `ls-${scope}` }, text);
    };
    const { cell } = this.lesson.state;
    const at = cell?.matrix === this.name ? cell : { row: 0, column: 0 };
    this.#cells = values.map((row, i) =>
      row.map((_, j) => this.#cell(i, j, i === at.row && j === at.column)),
    );
    const sums = looks.sums ? [make("th", { scope: "col", class: "ls-sum" }, "Σ")] : [];
    this.table.replaceChildren(
      make(
        "tr",
        {},
        make("td", { class: "ls-corner" }),
        ...looks.columns.map((name) => header(name, "col")),
        ...sums,
      ),
      ...this.#cells.map((cells, i) =>
        make(
          "tr",
          {},
          header(looks.rows[i], "row"),
          ...cells,
          ...(looks.sums ? [make("td", { class: "ls-sum" })] : []),
        ),
      ),
    );
  }

  /**
   * @param {number} row
   * @param {number} column
   * @param {boolean} reachable whether the tabulator key leads here
   */
  #cell(row, column, reachable) {
    const place = { "data-row": String(row), "data-column": String(column) };
    const tabindex = reachable ? "0" : "-1";
    if (!this.editable) {
      return make("td", { role: "gridcell", class: "ls-cell", tabindex, ...place });
    }
    const input = make("input", {
      type: "text",
      inputmode: "text",
      autocomplete: "off",
      tabindex,
      "aria-label": this.lesson.say("cell_name", { row: row + 1, column: column + 1 }),
    });
    return make("td", { role: "gridcell", class: "ls-cell ls-editable", ...place }, input);
  }

  /**
   * @param {HTMLElement} cell
   * @param {number} row
   * @param {number} column
   * @param {number} largest
   * @param {Looks} looks
   */
  #fill(cell, row, column, largest, looks) {
    const value = this.#values[row][column];
    const [first, stop] = looks.bright ?? [0, Infinity];
    cell.dataset.value = String(value);
    cell.classList.toggle("ls-negative", value < 0);
    cell.classList.toggle("ls-hidden", looks.visible?.[row][column] === false);
    cell.classList.toggle("ls-other-head", column < first || column >= stop);
    cell.style.setProperty("--tint", String(Math.abs(value) / largest));
    const text = fitted(value, this.#digits);
    const input = cell.querySelector("input");
    if (!input) {
      cell.textContent = text;
    } else if (input !== document.activeElement) {
      input.value = text;
    }
  }

  /** Show which cell is explained, and which numbers it is made of. */
  #mark() {
    const { cell } = this.lesson.state;
    const { rows, columns } = sourceIn(this.lesson, this.name);
    this.#cells.forEach((cells, i) =>
      cells.forEach((element, j) => {
        const isCell = cell?.matrix === this.name && cell.row === i && cell.column === j;
        element.classList.toggle("ls-picked", isCell);
        element.classList.toggle("ls-source", !isCell && rows(i) && columns(j));
      }),
    );
  }

  #listen() {
    const { table } = this;
    table.addEventListener("pointerover", (event) => this.#pick(event));
    table.addEventListener("focusin", (event) => {
      this.#pick(event);
      const at = this.#placeOf(event);
      if (at && event.target instanceof HTMLInputElement) {
        event.target.value = String(this.#values[at.row][at.column]);
        event.target.select();
      }
    });
    table.addEventListener("focusout", (event) => this.#leave(event));
    table.addEventListener("keydown", (event) => this.#press(event));
  }

  /**
   * @param {Event} event
   * @returns {{row: number, column: number} | null}
   */
  #placeOf(event) {
    const cell = event.target instanceof Element ? event.target.closest("[data-row]") : null;
    return cell instanceof HTMLElement
      ? { row: Number(cell.dataset.row), column: Number(cell.dataset.column) }
      : null;
  }

  /** @param {Event} event */
  #pick(event) {
    const at = this.#placeOf(event);
    if (!at) {
      return;
    }
    const { width } = this.lesson.numbers;
    const head = this.name === "output" ? Math.floor(at.column / width) : this.lesson.state.head;
    this.lesson.store.set({ cell: { matrix: this.name, ...at }, head });
    if (event.type === "focusin") {
      this.#cells.forEach((cells, i) =>
        cells.forEach((cell, j) => {
          this.#focusable(cell).tabIndex = i === at.row && j === at.column ? 0 : -1;
        }),
      );
      this.#cells[at.row][at.column].scrollIntoView({ block: "nearest", inline: "nearest" });
    }
  }

  /** @param {HTMLElement} cell */
  #focusable(cell) {
    return cell.querySelector("input") ?? cell;
  }

  /** @param {KeyboardEvent} event */
  #press(event) {
    const at = this.#placeOf(event);
    if (!at) {
      return;
    }
    const input = event.target instanceof HTMLInputElement ? event.target : null;
    if (input && event.key === "Enter") {
      this.#commit(input, at);
      this.#go(at.row + 1, at.column);
    } else if (event.key === "Escape") {
      this.#giveUp(input, String(this.#values[at.row][at.column]));
    } else if (event.key in ARROWS && !(input && moveInText(input, event.key))) {
      const [down, right] = ARROWS[event.key];
      this.#go(at.row + down, at.column + right);
      event.preventDefault();
    }
  }

  /**
   * Forget what is being typed; if nothing is, close the explanation.
   *
   * @param {HTMLInputElement | null} input
   * @param {string} value
   */
  #giveUp(input, value) {
    if (!input || input.value === value) {
      this.lesson.store.set({ cell: null });
    } else {
      input.value = value;
      input.select();
    }
  }

  /**
   * @param {number} row
   * @param {number} column
   */
  #go(row, column) {
    const cell = this.#cells[row]?.[column];
    if (cell) {
      this.#focusable(cell).focus();
    }
  }

  /** @param {FocusEvent} event */
  #leave(event) {
    const at = this.#placeOf(event);
    if (at && event.target instanceof HTMLInputElement) {
      this.#commit(event.target, at);
      event.target.value = fitted(this.#values[at.row][at.column], this.#digits);
      event.target.removeAttribute("aria-invalid");
      event.target.setCustomValidity("");
    }
  }

  /**
   * Take over what was typed, if it is a number that fits.
   *
   * @param {HTMLInputElement} input
   * @param {{row: number, column: number}} at
   */
  #commit(input, { row, column }) {
    const value = typed(input.value);
    if (value !== null && Math.abs(value) <= LIMIT) {
      this.lesson.store.edit(/** @type {Editable} */ (this.name), row, column, value);
      return;
    }
    input.setAttribute("aria-invalid", "true");
    this.lesson.store.set({ cell: { matrix: this.name, row, column } });
    this.element.dispatchEvent(new CustomEvent("ls-refused", { bubbles: true }));
  }
}

/**
 * Return whether an arrow key still has somewhere to go within what is typed.
 *
 * @param {HTMLInputElement} input
 * @param {string} key
 */
function moveInText(input, key) {
  const { selectionStart: start, selectionEnd: end, value } = input;
  if (key === "ArrowUp" || key === "ArrowDown" || (start === 0 && end === value.length)) {
    return false;
  }
  return key === "ArrowLeft" ? end !== 0 : start !== value.length;
}

/**
 * Return which rows and columns of a matrix the explained cell is made of.
 *
 * @param {Lesson} lesson
 * @param {MatrixName} name
 * @returns {{rows: (row: number) => boolean, columns: (column: number) => boolean}}
 */
function sourceIn(lesson, name) {
  const none = { rows: () => false, columns: () => false };
  const { cell } = lesson.state;
  if (!cell) {
    return none;
  }
  const { heads, width } = lesson.numbers;
  const { first, stop } = heads[lesson.state.head];
  const all = () => true;
  const only = (/** @type {number} */ place) => (/** @type {number} */ other) => other === place;
  const ofHead = (/** @type {number} */ column) => column >= first && column < stop;
  const row = { rows: only(cell.row), columns: all };
  switch (`${name} of ${cell.matrix}`) {
    case "x of input":
      return { rows: only(cell.row), columns: only(cell.column) };
    case "input of q":
    case "input of k":
    case "input of v":
    case "scaled of weights":
      return row;
    case "wq of q":
    case "wk of k":
    case "wv of v":
      return { rows: all, columns: only(cell.column) };
    case "q of scores":
      return { rows: only(cell.row), columns: ofHead };
    case "k of scores":
      return { rows: only(cell.column), columns: ofHead };
    case "scores of scaled":
      return { rows: only(cell.row), columns: only(cell.column) };
    case "weights of output":
      return Math.floor(cell.column / width) === lesson.state.head ? row : none;
    case "v of output":
      return { rows: all, columns: only(cell.column) };
    default:
      return none;
  }
}
