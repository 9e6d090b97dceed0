/** The font for Chinese in a page that no server brings style sheets to. */

import { TransportError } from "./transport.js";

/**
 * Bring the font over the transport, unless the reader's machine has one for Chinese, or the
 * document has been given it before.
 *
 * @param {import("./transport.js").Transport} transport
 */
export async function bringFont(transport) {
  try {
    await bring(transport);
  } catch (error) {
    // What keeps the font away keeps the map away, too, and that is told there.
    if (!(error instanceof TransportError)) {
      throw error;
    }
  }
}

/** @param {import("./transport.js").Transport} transport */
async function bring(transport) {
  const sheet = new TextDecoder().decode(await transport.bytes("page/fonts.css"));
  const found = (/** @type {RegExp} */ pattern) => sheet.match(pattern)?.[1] ?? "";
  const family = found(/@font-face \{\s*font-family: "([^"]+)"/);
  if ([...document.fonts].some((face) => face.family.replaceAll('"', "") === family)) {
    return;
  }
  const how = { unicodeRange: found(/unicode-range: ([^;]+);/) };
  const installed = (sheet.match(/local\("[^"]+"\)/g) ?? []).join(", ");
  const face = await new FontFace(family, installed, how)
    .load()
    .catch(async () => {
      const file = await transport.bytes(`page/${found(/url\("([^"]+)"\)/)}`);
      return new FontFace(family, file, how);
    });
  document.fonts.add(face);
  // A face that is loaded already is added in silence.
  document.fonts.dispatchEvent(new Event("loadingdone"));
}
