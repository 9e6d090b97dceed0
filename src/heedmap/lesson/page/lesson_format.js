/** Numbers and words as they stand on the page. */

import { make } from "./dom.js";

/**
 * Return a number with so many digits behind the point; what is exactly 0 is a bare 0, so that it
 * can be told from what is merely small.
 *
 * @param {number} value
 * @param {number} digits
 */
export function shown(value, digits) {
  if (value === 0) {
    return "0";
  }
  const text = Math.abs(value) >= 1e5 ? value.toExponential(1) : value.toFixed(digits);
  return text.replace("e+", "e").replaceAll("-", "−");
}

/**
 * Return a number as there is room for it in a cell: the more digits stand before its point, the
 * fewer behind it.
 *
 * @param {number} value
 * @param {number} digits behind the point, if one stands before it
 */
export function fitted(value, digits) {
  const before = Math.abs(value).toFixed(digits).split(".")[0].length;
  return shown(value, Math.max(0, digits + 1 - before));
}

/**
 * Return a share as a percentage.
 *
 * @param {number} share
 */
export function percent(share) {
  return share === 0 ? "0" : (100 * share).toFixed(1);
}

/**
 * Return the number that somebody typed, in digits of either width, or null if it is none.
 *
 * @param {string} text
 */
export function typed(text) {
  const plain = text.normalize("NFKC").trim().replace("−", "-").replace(",", ".");
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(plain) ? Number(plain) : null;
}

/**
 * Return the share that somebody typed, as a number or a percentage, or null if it is none.
 *
 * @param {string} text
 */
export function typedShare(text) {
  const plain = text.normalize("NFKC").trim();
  const hundredths = plain.endsWith("%") ? typed(plain.slice(0, -1)) : null;
  return hundredths === null ? typed(plain) : hundredths / 100;
}

/**
 * Return the nodes of a text in which **words** are strong, ~code~ is code, and `formulas` have their
 * indices below and above the line.
 *
 * @param {string} text
 * @returns {(Node | string)[]}
 */
export function rich(text) {
  return text.split(/(\*\*.+?\*\*|`.+?`|~.+?~)/).map((piece) => {
    if (piece.startsWith("~")) {
      return make("code", {}, piece.slice(1, -1));
    }
    if (piece.startsWith("**")) {
      return make("strong", {}, ...rich(piece.slice(2, -2)));
    }
    return piece.startsWith("`") ? formula(piece.slice(1, -1)) : piece;
  });
}

/**
 * Return a formula: `W_Q` and `x_{2,3}` have an index, `2^x` an exponent.
 *
 * @param {string} text
 */
export function formula(text) {
  const pieces = text.split(/([_^](?:\{[^}]*\}|[^\s{}]))/).filter(Boolean);
  return make(
    "span",
    { class: "ls-math" },
    ...pieces.map((piece) => {
      const tag = piece.length > 1 && { _: "sub", "^": "sup" }[piece[0]];
      return tag
        ? make(/** @type {"sub" | "sup"} */ (tag), {}, piece.slice(1).replace(/^\{|\}$/g, ""))
        : piece;
    }),
  );
}
