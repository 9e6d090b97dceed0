/** @typedef {object} Program */
export {};
