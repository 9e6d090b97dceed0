/** The text that the tokens are from, with the chosen ones marked; a click chooses a token. */

import { make } from "./dom.js";

/** @typedef {import("./page.js").Page} Page */
/** @typedef {{start: number, end: number, kind: string, share: number}} Mark */

/** How many characters are laid out at once; of a longer text, those around the chosen token. */
const LAID_OUT = 12_000;

/** How many are seen again after going on. */
const OVERLAP = 1_000;

/**
 * Return the text of one side.
 *
 * The text is one node between marks: a click is found by its character.
 *
 * @param {Page} page
 * @param {"query" | "key" | "both"} side whose tokens the text has
 * @param {import("./strongest.js").Strongest} strongest
 * @param {AbortSignal} ended when it is no longer shown
 */
export function reader(page, side, strongest, ended) {
  const { words, store } = page;
  const box = make("div", { class: "hm-reader", tabindex: "0", "data-content": "" });
  words.name(box, "text");
  const places = side === "key" ? page.keys : page.queries;
  const which = side === "key" ? "key" : "query";
  /** @type {Map<Node, number>} where in the text each node begins */
  const starts = new Map();
  let first = 0;

  /** Bring the chosen token in, if it is not among what is laid out. */
  const follow = () => {
    const span = places.axis?.spans[page.state[which] ?? -1];
    if (span && (span[0] < first || span[1] > first + LAID_OUT)) {
      first = Math.max(0, Math.round(span[0] - LAID_OUT / 2));
    }
    show();
    reveal(box, which);
  };

  const show = () => {
    const { axis } = places;
    if (!axis) {
      return;
    }
    starts.clear();
    box.replaceChildren();
    const last = Math.min(axis.text.length, first + LAID_OUT);
    let at = first;
    const add = (/** @type {number} */ end, /** @type {HTMLElement | null} */ mark) => {
      const node = document.createTextNode(axis.text.slice(at, end));
      starts.set(node, at);
      (mark ?? box).append(node);
      if (mark) {
        box.append(mark);
      }
      at = end;
    };
    for (const { start, end, kind, share } of marksOf(page, side, strongest)) {
      if (start >= at && end > start && end <= last) {
        add(start, null);
        const mark = make("mark", { class: `hm-mark-${kind}` });
        mark.style.setProperty("--share", String(share));
        add(end, mark);
      }
    }
    add(last, null);
  };

  box.addEventListener("scroll", () => {
    const { length } = places.axis?.text ?? "";
    const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 2;
    const step = LAID_OUT - OVERLAP;
    if (atEnd && first + LAID_OUT < length) {
      first += step;
      show();
      box.scrollTop = 2;
    } else if (box.scrollTop === 0 && first > 0) {
      first = Math.max(0, first - step);
      show();
      box.scrollTop = box.scrollHeight - box.clientHeight - 3;
    }
  });

  box.addEventListener("click", (event) => {
    const place = characterAt(event, starts);
    if (place !== null) {
      page.choose({ [which]: places.at(place) });
    }
  });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      page.choose({ [which]: (page.state[which] ?? -step) + step });
    }
  });
  store.on(["query", "key", "layer"], follow, ended);
  strongest.onChange(show, ended);
  follow();
  return {
    element: make("section", { class: "hm-panel" }, words.put(make("h2"), "text"), box),
    show: follow,
  };
}

/**
 * Return what is marked, in order of the text; where tokens overlap, the chosen ones come first.
 *
 * @param {Page} page
 * @param {"query" | "key" | "both"} side
 * @param {import("./strongest.js").Strongest} strongest
 * @returns {Mark[]}
 */
function marksOf(page, side, strongest) {
  const { query, key } = page.state;
  /** @type {Map<number, {kind: string, share: number}>} */
  const kinds = new Map();
  if (side !== "query" && strongest.top && query !== null) {
    const { positions, weights } = strongest.top;
    const largest = Math.max(weights[0] ?? 0, 0) || 1;
    positions.forEach((position, place) => {
      kinds.set(position, { kind: "strong", share: (weights[place] ?? 0) / largest });
    });
  }
  if (side !== "query" && key !== null) {
    kinds.set(key, { kind: "key", share: kinds.get(key)?.share ?? 0 });
  }
  if (side !== "key" && query !== null) {
    kinds.set(query, { kind: "query", share: 1 });
  }
  const { axis } = side === "key" ? page.keys : page.queries;
  const rank = (/** @type {Mark} */ mark) => (mark.kind === "strong" ? 1 : 0);
  return [...kinds]
    .filter(([position]) => axis?.spans[position])
    .map(([position, mark]) => {
      const [start, end] = /** @type {[number, number]} */ (axis?.spans[position]);
      return { start, end, ...mark };
    })
    .sort((one, other) => one.start - other.start || rank(one) - rank(other));
}

/**
 * Scroll the chosen mark into the box, and nothing else.
 *
 * @param {HTMLElement} box
 * @param {string} which
 */
function reveal(box, which) {
  const mark = box.querySelector(`.hm-mark-${which}`);
  if (mark instanceof HTMLElement) {
    const top = mark.offsetTop;
    if (top < box.scrollTop || top + mark.offsetHeight > box.scrollTop + box.clientHeight) {
      box.scrollTop = top - box.clientHeight / 2;
    }
  }
}

/**
 * Return which character of the text was pointed at.
 *
 * @param {MouseEvent} event
 * @param {Map<Node, number>} starts
 */
function characterAt({ clientX, clientY }, starts) {
  const found = document.caretPositionFromPoint?.(clientX, clientY);
  // Safari has only the older function.
  const range = found ? null : document.caretRangeFromPoint?.(clientX, clientY);
  const node = found?.offsetNode ?? range?.startContainer;
  const offset = found?.offset ?? range?.startOffset ?? 0;
  const start = node && starts.get(node);
  if (node === undefined || node === null || start === undefined) {
    return null;
  }
  // The caret stands after a character whose right half was pointed at.
  const before = document.createRange();
  before.setStart(node, Math.max(0, offset - 1));
  before.setEnd(node, offset);
  const box = before.getBoundingClientRect();
  const onIt = offset > 0 && clientX < box.right && clientY >= box.top && clientY <= box.bottom;
  return start + (onIt ? offset - 1 : offset);
}
