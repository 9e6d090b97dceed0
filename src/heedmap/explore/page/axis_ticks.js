/** What stands along a side of the map: times, tokens or numbers, as many as there is room for. */

import { niceStep } from "./scale.js";
import { writeTime } from "./places.js";

/** @typedef {{at: number, text: string}} Tick a text, and where it stands in cells */

const TIME_STEPS = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
];
const ROOM_FOR_A_TOKEN = 13;

/**
 * Return the ticks of the stretch that is seen.
 *
 * @param {import("./places.js").Places} places
 * @param {[number, number]} seen from, and to before
 * @param {number} pixelsPerCell
 * @param {number} room pixels that one text needs
 * @returns {Tick[]}
 */
export function ticksOf(places, seen, pixelsPerCell, room) {
  if (places.timed) {
    return times(places, seen, pixelsPerCell, room);
  }
  const [first, stop] = seen;
  const named = areNamed(places, pixelsPerCell);
  const step = named ? 1 : Math.max(1, niceStep(room / pixelsPerCell));
  const ticks = [];
  for (let position = Math.ceil(first / step) * step; position < stop; position += step) {
    ticks.push({ at: position + 0.5, text: named ? places.label(position) : grouped(position) });
  }
  return ticks;
}

/** @param {number} position */
function grouped(position) {
  return position.toLocaleString("en");
}

/**
 * Say whether there is room for the name of every token.
 *
 * @param {import("./places.js").Places} places
 * @param {number} pixelsPerCell
 */
export function areNamed(places, pixelsPerCell) {
  return places.axis !== null && places.kind === "token" && pixelsPerCell >= ROOM_FOR_A_TOKEN;
}

/**
 * @param {import("./places.js").Places} places
 * @param {[number, number]} seen
 * @param {number} pixelsPerCell
 * @param {number} room
 */
function times(places, [first, stop], pixelsPerCell, room) {
  const begin = places.timeAt(first);
  const end = places.timeAt(stop);
  const pixels = Math.max(1, (stop - first) * pixelsPerCell);
  const least = ((end - begin) / pixels) * room;
  const step = TIME_STEPS.find((candidate) => candidate >= least) ?? 3600 * niceStep(least / 3600);
  const decimals = step < 0.1 ? 2 : step < 1 ? 1 : 0;
  const ticks = [];
  for (let count = Math.ceil(begin / step - 1e-6); count * step <= end + 1e-9; count += 1) {
    ticks.push({ at: places.cellOf(count * step), text: writeTime(count * step, decimals, places.second) });
  }
  return ticks;
}
