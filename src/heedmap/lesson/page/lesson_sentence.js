/** @typedef {object} Sentence */
export {};
