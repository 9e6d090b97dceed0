/** Small drawings for buttons, so that no font has to have them. */

import { draw } from "./dom.js";

/** @type {Record<string, string>} */
const PATHS = {
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  whole: "M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4",
  brush: "M2 2h3M7 2h2M11 2h3v3M14 7v2M14 11v3h-3M9 14H7M5 14H2v-3M2 9V7M2 5V2M6 6h4v4H6z",
  previous: "M10 3 5 8l5 5",
  next: "M6 3l5 5-5 5",
  link: "M7 9a3 3 0 0 0 4.2 0l2-2A3 3 0 0 0 9 2.800l-.8.8M9 7a3 3 0 0 0-4.200 0l-2 2A3 3 0 0 0 7 13.200l.8-.8",
  picture: "M2 3h12v10H2zM2 11l4-4 3 3 2-2 3 3M10.500 6h.01",
  theme: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  help: "M6 6a2 2 0 1 1 3 1.700c-.7.4-1 .9-1 1.800M8 12h.01",
  play: "M5 3l8 5-8 5z",
  close: "M4 4l8 8M12 4l-8 8",
};

/**
 * Return a new drawing.
 *
 * @param {keyof typeof PATHS & string} name
 */
export function icon(name) {
  const path = draw("path", { d: PATHS[name] });
  return draw(
    "svg",
    { viewBox: "0 0 16 16", class: "hm-icon", "aria-hidden": "true", focusable: "false" },
    path,
  );
}
