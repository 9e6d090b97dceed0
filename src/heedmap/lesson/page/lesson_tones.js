/**
 * The sound whose features X are: in each frame four tones, and a feature says how strong its tone
 * is. 0 is the middle strength, and each 1 more doubles the amplitude.
 */

/** @typedef {import("./lesson_algebra.js").Matrix} Matrix */

export const RATE_HZ = 24_000;
export const FRAME_SECONDS = 0.4;

/** C, E, G and C of the next octave, nearly: whole waves fit into a frame, so each begins at 0. */
export const TONES_HZ = [262.5, 330, 392.5, 522.5];

const FRAME_SAMPLES = Math.round(RATE_HZ * FRAME_SECONDS);

/** One frame of each tone, which is the same in every frame. */
const WAVES = TONES_HZ.map((hertz) =>
  Float64Array.from({ length: FRAME_SAMPLES }, (_, at) => Math.sin((2 * Math.PI * hertz * at) / RATE_HZ)),
);

/** How high the highest wave of a sound is, of 1. */
const LOUDNESS = 0.6;

/**
 * Return the samples of the sound that has these features, and the amplitude of a feature of 0.
 *
 * @param {Matrix} features
 */
export function synthesised(features) {
  const samples = new Float32Array(features.length * FRAME_SAMPLES);
  const sums = features.map((frame) => frame.reduce((sum, feature) => sum + 2 ** feature, 0));
  const middle = LOUDNESS / Math.max(...sums);
  features.forEach((frame, number) => {
    const amplitudes = frame.map((feature) => middle * 2 ** feature);
    for (let at = 0; at < FRAME_SAMPLES; at++) {
      let sum = 0;
      for (let tone = 0; tone < WAVES.length; tone++) {
        sum += amplitudes[tone] * WAVES[tone][at];
      }
      samples[number * FRAME_SAMPLES + at] = sum;
    }
  });
  return { samples, middle };
}

/**
 * Return the features of a sound: how much of each tone is in each frame, found by multiplying
 * with that tone and adding up.
 *
 * @param {Float32Array} samples
 * @param {number} middle the amplitude that counts as 0
 * @returns {Matrix}
 */
export function measured(samples, middle) {
  return Array.from({ length: samples.length / FRAME_SAMPLES }, (_, number) =>
    WAVES.map((wave) => {
      let sum = 0;
      for (let at = 0; at < FRAME_SAMPLES; at++) {
        sum += samples[number * FRAME_SAMPLES + at] * wave[at];
      }
      return Math.log2((2 * sum) / FRAME_SAMPLES / middle);
    }),
  );
}
