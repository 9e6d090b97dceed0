/** A canvas that is as sharp as the screen, measured in CSS pixels. */

/** How many device pixels a CSS pixel has. */
export function pixelRatio() {
  return Math.max(1, window.devicePixelRatio || 1);
}

/**
 * Return the context of an empty canvas of this size; where it draws, a unit is a CSS pixel.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
export function cleared(canvas, width, height) {
  const ratio = pixelRatio();
  const across = Math.max(1, Math.round(width * ratio));
  const down = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.reset();
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/**
 * Return the colours of the theme, for canvases.
 *
 * @param {HTMLElement} root
 */
export function inksOf(root) {
  const style = getComputedStyle(root);
  const ink = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: ink("text"),
    faint: ink("faint"),
    line: ink("line"),
    ground: ink("ground"),
    query: ink("query"),
    key: ink("key"),
    onAccent: ink("on-accent"),
    font: style.fontFamily,
  };
}

/** @typedef {ReturnType<typeof inksOf>} Inks */

/**
 * Return a text that is at most so wide, with “…” where something was left out.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 */
export function fitted(context, text, width) {
  if (context.measureText(text).width <= width) {
    return text;
  }
  let kept = Math.min(text.length, 60);
  while (kept > 1 && context.measureText(`${text.slice(0, kept)}…`).width > width) {
    kept -= 1;
  }
  return `${text.slice(0, kept)}…`;
}
