/** Pointing at the map: drag, wheel, pinch, click, and marking a block. */

const STILL_PIXELS = 4;
const LEVELS_PER_WHEEL_PIXEL = 1 / 240;

/**
 * @typedef {object} Gestures what pointing means; places are pixels from the map's corner
 * @property {(left: number, top: number) => void} onHover
 * @property {() => void} onLeave
 * @property {(left: number, top: number) => void} onClick
 * @property {(from: [number, number], to: [number, number], done: boolean) => void} onBrush
 */

/**
 * Let people move, zoom and point at the map of a page.
 *
 * @param {import("./page.js").Page} page
 * @param {Gestures} told
 */
export function listenToPointers(page, told) {
  const { stage } = page;
  const { map } = stage;
  /** @type {Map<number, [number, number]>} */
  const pointers = new Map();
  /** @type {{start: [number, number], brushing: boolean, moved: boolean} | null} */
  let drag = null;

  /** @param {MouseEvent} event @returns {[number, number]} */
  const placeOf = (event) => {
    const box = map.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  map.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) {
      return;
    }
    map.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, placeOf(event));
    if (pointers.size > 1) {
      drag = null;
      return;
    }
    const brushing = event.shiftKey || page.state.brushing;
    drag = { start: placeOf(event), brushing, moved: false };
    map.classList.toggle("hm-grabbed", !brushing);
  });

  map.addEventListener("pointermove", (event) => {
    const place = placeOf(event);
    const before = pointers.get(event.pointerId);
    if (event.pointerType === "mouse") {
      told.onHover(...place);
    }
    if (!before) {
      return;
    }
    if (pointers.size === 2) {
      pinch(stage, pointers, event.pointerId, place);
    } else if (drag) {
      const [left, top] = drag.start;
      drag.moved ||= Math.hypot(place[0] - left, place[1] - top) > STILL_PIXELS;
      if (drag.moved && drag.brushing) {
        told.onBrush(drag.start, place, false);
      } else if (drag.moved) {
        stage.moveTo(stage.frame.movedBy(place[0] - before[0], place[1] - before[1]));
      }
    }
    if (drag?.moved || pointers.size > 1) {
      pointers.set(event.pointerId, place);
    }
  });

  /** @param {PointerEvent} event */
  const lift = (event) => {
    if (!pointers.delete(event.pointerId)) {
      return;
    }
    map.classList.remove("hm-grabbed");
    if (drag && event.type === "pointerup") {
      if (drag.moved && drag.brushing) {
        told.onBrush(drag.start, placeOf(event), true);
      } else if (!drag.moved) {
        told.onClick(...drag.start);
      }
    }
    drag = null;
  };
  map.addEventListener("pointerup", lift);
  map.addEventListener("pointercancel", lift);
  map.addEventListener("pointerleave", () => told.onLeave());

  map.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const [left, top] = placeOf(event);
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      // Browsers say that two fingers pinch by a wheel with Ctrl, in much smaller steps.
      const strength = event.ctrlKey ? 5 : 1;
      const levels = -event.deltaY * lines * strength * LEVELS_PER_WHEEL_PIXEL;
      const { frame } = stage;
      stage.moveTo(frame.zoomedTo(frame.zoom + Math.max(-1, Math.min(1, levels)), left, top));
    },
    { passive: false },
  );

  map.addEventListener("dblclick", (event) => {
    stage.zoomBy(event.shiftKey ? -1 : 1, ...placeOf(event));
  });
}

/**
 * Zoom by how far two fingers went apart, and move with the middle between them.
 *
 * @param {import("./stage.js").Stage} stage
 * @param {Map<number, [number, number]>} pointers
 * @param {number} moved
 * @param {[number, number]} place
 */
function pinch(stage, pointers, moved, place) {
  const before = /** @type {[number, number]} */ (pointers.get(moved));
  const [other] = [...pointers].filter(([id]) => id !== moved).map(([, at]) => at);
  const wide = Math.hypot(before[0] - other[0], before[1] - other[1]);
  const wider = Math.hypot(place[0] - other[0], place[1] - other[1]);
  const shifted = stage.frame.movedBy((place[0] - before[0]) / 2, (place[1] - before[1]) / 2);
  stage.moveTo(shifted);
  const { frame } = stage;
  const levels = Math.log2(Math.max(wider, 1) / Math.max(wide, 1));
  stage.moveTo(
    frame.zoomedTo(frame.zoom + levels, (place[0] + other[0]) / 2, (place[1] + other[1]) / 2),
  );
}
