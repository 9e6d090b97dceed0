/** What the positions of one side are called: tokens, moments, frames, or bare numbers. */

/** The names and times of one axis; before they have come, positions are numbers. */
export class Places {
  /** @type {import("./protocol.js").Axis | null} */
  axis = null;
  /** Whether moments follow one another, so that times can stand along the side. */
  timed = false;
  #decimals = 2;

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
    }
    if (this.kind === "token" && /[\ud800-\udbff]/.test(axis.text)) {
      axis.spans = inUnitsOfStrings(axis.text, axis.spans);
    }
  }

  /**
   * Return a short name for one position: its token, or its time.
   *
   * @param {number} position
   */
  name(position) {
    if (this.axis && this.unit === "second" && this.axis.spans[position]) {
      const [start, end] = this.axis.spans[position];
      const begin = writeTime(start, this.#decimals);
      return `${end < 60 ? begin.replace(" s", "") : begin}–${writeTime(end, this.#decimals)}`;
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
    return span ? writeTime(span[0], this.#decimals) : String(position);
  }

  /**
   * Return the label of one position, with what cannot be seen made visible.
   *
   * @param {number} position
   */
  label(position) {
    const label = this.axis?.labels[position] ?? String(position);
    return label.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ +$/, "␣") || "∅";
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
 */
export function writeTime(seconds, decimals) {
  const scaled = 10 ** decimals;
  const whole = Math.round(seconds * scaled);
  const rest = ((whole % (60 * scaled)) / scaled).toFixed(decimals);
  const minutes = Math.floor(whole / (60 * scaled));
  if (minutes === 0) {
    return `${rest} s`;
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
