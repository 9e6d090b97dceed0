/** What the positions of one side are called: tokens, moments, frames, or bare numbers. */

/** From when on the ends of a moment make its name too long for a list. */
const LONG_SECONDS = 600;

/** The names and times of one axis; before they have come, positions are numbers. */
export class Places {
  /** @type {import("./protocol.js").Axis | null} */
  axis = null;
  /** Whether moments follow one another, so that times can stand along the side. */
  timed = false;
  /** The sign of a second in the language of the page. */
  second = "s";
  #decimals = 2;
  /** Whether moments have names of their own, such as who speaks, beside their times. */
  #named = false;

  /** @param {import("./protocol.js").AxisSummary} summary */
  constructor(summary) {
    this.kind = summary.kind;
    this.unit = summary.unit;
    this.size = summary.size;
  }

  /** @param {import("./protocol.js").Axis} axis */
  learn(axis) {
    this.axis = axis;
    if (this.unit === "second" && axis.spans.length > 0) {
      this.timed = axis.spans.every(
        ([start], place) => place === 0 || start >= axis.spans[place - 1][0],
      );
      const [start, end] = axis.spans[0];
      this.#decimals = end - start < 0.095 ? 2 : 1;
      this.#named = axis.labels.some((label) => !/^\d+\.\d\ds$/.test(label));
    }
    if (this.kind === "token" && /[\ud800-\udbff]/.test(axis.text)) {
      axis.spans = inUnitsOfStrings(axis.text, axis.spans);
    }
  }

  /**
   * Return a short name for one position: its token, or its time behind its own name.
   *
   * @param {number} position
   */
  name(position) {
    if (this.axis && this.unit === "second" && this.axis.spans[position]) {
      const [start, end] = this.axis.spans[position];
      const begin = writeTime(start, this.#decimals, end < 60 ? "" : this.second);
      return this.#behindName(position, `${begin}–${writeTime(end, this.#decimals, this.second)}`);
    }
    if (this.axis && this.kind === "token") {
      return `“${this.label(position)}” ${position}`;
    }
    return String(position);
  }

  /**
   * Return a name that needs less room: the token, the time at which a moment begins, the number.
   *
   * @param {number} position
   */
  shortName(position) {
    if (this.kind === "token") {
      return this.label(position);
    }
    const span = this.span(position);
    return span ? writeTime(span[0], this.#decimals, this.second) : String(position);
  }

  /**
   * Return a name for lists: the token, a moment; of a long recording, or behind its own name, the
   * time at which it begins.
   *
   * @param {number} position
   */
  listName(position) {
    const last = this.axis?.spans.at(-1);
    const long = this.unit === "second" && last && last[1] >= LONG_SECONDS;
    const span = this.span(position);
    if (this.#named && span) {
      return this.#behindName(position, writeTime(span[0], this.#decimals, ""));
    }
    return long ? this.shortName(position) : this.name(position);
  }

  /**
   * Return a time with the name that a moment has before it.
   *
   * @param {number} position
   * @param {string} time
   */
  #behindName(position, time) {
    return this.#named ? `${this.label(position)}, ${time}` : time;
  }

  /** A text as wide as any that stands along the side. */
  get widest() {
    if (this.kind === "token" && this.axis) {
      const { labels } = this.axis;
      const longest = labels.reduce((at, label, place) => (label.length > labels[at].length ? place : at), 0);
      return this.size > 0 ? this.label(longest) : "";
    }
    const span = this.span(this.size - 1);
    // “59.99 s” is wider than “9:59.99”.
    const last = span && (span[1] < LONG_SECONDS ? Math.min(span[1], 59) : span[1]);
    const text = last !== null ? writeTime(last, 2, this.second) : this.size.toLocaleString("en");
    return text.replace(/\d/g, "8");
  }

  /**
   * Return the label of one position, with what cannot be seen made visible.
   *
   * @param {number} position
   */
  label(position) {
    const label = this.axis?.labels[position] ?? String(position);
    return label.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^[ ▁]+$/, "␣") || "∅";
  }

  /**
   * Return where a position begins and ends, in seconds; null where it has no time.
   *
   * @param {number | null} position
   * @returns {[number, number] | null}
   */
  span(position) {
    const timed = position !== null && this.unit === "second";
    return timed ? (this.axis?.spans[position] ?? null) : null;
  }

  /**
   * Return the position that holds a time or a character, or the last that begins before it.
   *
   * @param {number} place in the unit of the axis
   */
  at(place) {
    const spans = this.axis?.spans ?? [];
    let low = 0;
    let high = spans.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (spans[middle][0] <= place) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  /**
   * Return where on the side a time lies, in cells with a fraction.
   *
   * @param {number} seconds
   */
  cellOf(seconds) {
    const spans = this.axis?.spans ?? [];
    const position = this.at(seconds);
    const start = spans[position]?.[0] ?? 0;
    const next = spans[position + 1]?.[0] ?? spans[position]?.[1] ?? start;
    return position + Math.min(1, Math.max(0, (seconds - start) / (next - start || 1)));
  }

  /**
   * Return the time at a place on the side; the other way round of `cellOf`.
   *
   * @param {number} cell
   */
  timeAt(cell) {
    const spans = this.axis?.spans ?? [];
    const position = Math.min(Math.max(0, Math.floor(cell)), spans.length - 1);
    const start = spans[position]?.[0] ?? 0;
    const next = spans[position + 1]?.[0] ?? spans[position]?.[1] ?? start;
    return start + (cell - position) * (next - start);
  }
}

/**
 * Write a time: “12.50 s”, and from a minute on “1:02.50”.
 *
 * @param {number} seconds
 * @param {number} decimals
 * @param {string} second the sign of a second; none for a bare number
 */
export function writeTime(seconds, decimals, second) {
  const scaled = 10 ** decimals;
  const whole = Math.round(seconds * scaled);
  const rest = ((whole % (60 * scaled)) / scaled).toFixed(decimals);
  const minutes = Math.floor(whole / (60 * scaled));
  if (minutes === 0) {
    return second ? `${rest} ${second}` : rest;
  }
  const padded = rest.padStart(decimals ? decimals + 3 : 2, "0");
  const hours = Math.floor(minutes / 60);
  return hours
    ? `${hours}:${String(minutes % 60).padStart(2, "0")}:${padded}`
    : `${minutes}:${padded}`;
}

/**
 * Return spans that count the units of JavaScript's strings instead of characters.
 *
 * @param {string} text
 * @param {[number, number][]} spans
 * @returns {[number, number][]}
 */
function inUnitsOfStrings(text, spans) {
  /** @type {number[]} */
  const starts = [];
  let at = 0;
  for (const character of text) {
    starts.push(at);
    at += character.length;
  }
  starts.push(at);
  return spans.map(([start, end]) => [starts[start] ?? at, starts[end] ?? at]);
}
