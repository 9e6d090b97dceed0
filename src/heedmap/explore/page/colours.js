/**
 * Colour maps: from a number between 0 and 1 to a colour.
 *
 * Viridis and cividis rise evenly in lightness, so that equal steps look equal and people who tell
 * no red from green still tell them apart; cividis is made for them. The tables are 33 samples of
 * each published map (CC0), between which is interpolated.
 */

/** @typedef {[red: number, green: number, blue: number]} Colour */

/**
 * @typedef {object} Colours
 * @property {Colour[]} steps `STEPS` colours, from the least to the most
 * @property {Colour} zero of a weight of exactly 0, as hidden ones are: no colour of the map
 * @property {Colour} missing of what is not a number
 */

/** How many colours a map has. */
export const STEPS = 1024;

/** The names of the maps, the default first. */
export const COLOUR_MAPS = ["viridis", "cividis", "magma", "grey"];

/** @type {Record<string, string>} */
const SAMPLES = {
  viridis:
    "440154470d6048186a482374472d7b4537814240863e49893b528b375b8d33638d2f6b8e2c728e297a8e26828e" +
    "23898e21918c1f988b1fa08822a78528ae8032b67a3fbc734ec36b5ec96270cf5784d44b98d83eaddc30c2df23" +
    "d8e219ece51bfde725",
  cividis:
    "00224e00285b002e6a0533711a386f273e6e32436d3b496c434e6c4b546c535a6d5a5f6e61656f686a716f7073" +
    "7676767d7c788482798c8878938e789b9476a39a74aba072b4a76fbcae6cc4b468cdbb63d5c25edec958e7d150" +
    "f0d846f9e03afee838",
  magma:
    "0000040303120a0822130d341d114729115a36106b440f7651127c5d177f6a1c81762181832681902a819c2e7f" +
    "aa337db73779c43c75d0416fdc4869e75263ef5d5ef56b5cf9795dfc8961fd9869fea772feb67cfec488fed395" +
    "fde2a3fcf0b2fcfdbf",
  grey: "0a0a0afafafa",
};

/** @type {Record<string, Colour>} */
const MISSING = {
  viridis: [255, 92, 205],
  cividis: [255, 92, 205],
  magma: [64, 224, 255],
  grey: [255, 120, 40],
};

/** @type {Record<"light" | "dark", Colour>} */
const ZERO = { light: [220, 220, 220], dark: [58, 60, 66] };

/** In the grey map, zero cannot be grey. */
/** @type {Record<"light" | "dark", Colour>} */
const ZERO_BESIDE_GREY = { light: [196, 214, 240], dark: [38, 56, 92] };

/**
 * Return the colours of a map.
 *
 * @param {string} name
 * @param {"light" | "dark"} theme
 * @returns {Colours}
 */
export function coloursOf(name, theme) {
  const samples = (SAMPLES[name].match(/.{6}/g) ?? []).map(parseColour);
  const steps = Array.from({ length: STEPS }, (_, step) => {
    const place = (step / (STEPS - 1)) * (samples.length - 1);
    const before = Math.min(Math.floor(place), samples.length - 2);
    return mixed(samples[before], samples[before + 1], place - before);
  });
  const zero = name === "grey" ? ZERO_BESIDE_GREY : ZERO;
  return { steps, zero: zero[theme], missing: MISSING[name] };
}

/**
 * Return the colour of a weight.
 *
 * @param {Colours} colours
 * @param {number} value
 * @param {number} part where on the scale it lies, 0 to 1
 * @returns {Colour}
 */
export function colourOf(colours, value, part) {
  if (Number.isNaN(value)) {
    return colours.missing;
  }
  return value === 0 ? colours.zero : colours.steps[Math.round(part * (STEPS - 1))];
}

/** @param {Colour} colour */
export function css([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`;
}

/**
 * Return black or white, whichever can be read on a colour.
 *
 * @param {Colour} colour
 */
export function readableOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000" : "#fff";
}

/**
 * @param {string} hex
 * @returns {Colour}
 */
function parseColour(hex) {
  const number = parseInt(hex, 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

/**
 * @param {Colour} one
 * @param {Colour} other
 * @param {number} part
 * @returns {Colour}
 */
function mixed(one, other, part) {
  const at = (/** @type {number} */ channel) =>
    Math.round(one[channel] + (other[channel] - one[channel]) * part);
  return [at(0), at(1), at(2)];
}
