/** A PNG of what is seen: the map with its sides, its strips, a title and the legend. */

import { drawLegend } from "./legend.js";
import { make } from "./dom.js";
import { fitted, pixelRatio } from "./surface.js";

const MARGIN = 16;
const TITLE = 48;
const LEGEND = 56;

/**
 * Draw what is seen into a canvas.
 *
 * @param {import("./page.js").Page} page
 */
export function pictureOfPage(page) {
  const { stage, words, state, description, layer } = page;
  const ratio = pixelRatio();
  const around = stage.element.getBoundingClientRect();
  const width = around.width + 2 * MARGIN;
  const height = around.height + TITLE + LEGEND + 2 * MARGIN;
  const canvas = make("canvas");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(ratio, ratio);
  const { inks } = stage;
  context.fillStyle = inks.ground;
  context.fillRect(0, 0, width, height);
  context.textBaseline = "top";
  context.fillStyle = inks.text;
  context.font = `600 16px ${inks.font}`;
  const title = [description.name, description.model].map((name) => words.given(name)).filter(Boolean).join(" · ");
  context.fillText(fitted(context, title, around.width), MARGIN, MARGIN);
  context.fillStyle = inks.faint;
  context.font = `12px ${inks.font}`;
  const kind = words.headKind(layer.labels[state.head] ?? "");
  const subtitle = [
    words.say("says_head", { layer: `${state.layer} (${words.given(layer.name)})`, head: layer.heads[state.head] }),
    kind,
    words.say(state.statistic),
    words.say(state.scale),
  ];
  context.fillText(
    fitted(context, subtitle.filter(Boolean).join(" · "), around.width),
    MARGIN,
    MARGIN + 24,
  );
  for (const part of stage.element.querySelectorAll("canvas")) {
    const box = part.getBoundingClientRect();
    context.drawImage(
      part,
      MARGIN + box.left - around.left,
      MARGIN + TITLE + box.top - around.top,
      box.width,
      box.height,
    );
  }
  context.save();
  context.translate(MARGIN, MARGIN + TITLE + around.height + 12);
  drawLegend(context, page, Math.min(480, around.width), inks);
  context.restore();
  return canvas;
}

/**
 * Give the picture to the browser as a file to keep.
 *
 * @param {import("./page.js").Page} page
 */
export async function savePicture(page) {
  const canvas = pictureOfPage(page);
  /** @type {Blob | null} */
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  if (blob) {
    const address = URL.createObjectURL(blob);
    const { layer, head } = page.state;
    const name = page.description.name.replace(/[^\p{L}\p{N}._-]+/gu, "_") || "heedmap";
    make("a", { href: address, download: `${name}-${layer}-${head}.png` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    page.announce(page.words.say("picture_saved"));
  }
}
