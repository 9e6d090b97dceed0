/** @typedef {object} Measured */
export {};
