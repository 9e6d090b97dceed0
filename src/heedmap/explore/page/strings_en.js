/** The words of the page in English; `strings_zh.js` has the same keys. */

export const strings = {
  // The bar.
  layer: "Layer",
  head: "Head",
  previous_head: "Previous head",
  next_head: "Next head",
  statistic: "Of each pixel",
  mean: "mean",
  max: "largest",
  sum: "sum",
  colours: "Colours",
  viridis: "viridis",
  cividis: "cividis",
  magma: "magma",
  grey: "greys",
  scale: "Scale",
  linear: "linear",
  second: "s",
  log: "logarithmic",
  language: "Language",
  copy_link: "Copy a link to this view",
  link_copied: "Link copied",
  link_in_address: "The link is in the address bar",
  save_picture: "Save a picture (PNG)",
  picture_saved: "Picture saved",
  switch_theme: "Light or dark",
  help: "Help",
  close: "Close",

  // The map.
  map: "Attention map. Arrow keys move it, + and − zoom, Shift with arrow keys chooses a weight; press ? for help.",
  query: "query",
  key: "key",
  weight: "weight",
  mean_of_block: "mean of {rows} × {columns} weights: {mean}",
  zoom_in: "Zoom in",
  zoom_out: "Zoom out",
  zoom_whole: "The whole map",
  mark_block: "Mark a block",
  approximate: "Approximate; exact picture {percent} %",
  coarse: "This file holds blocks of {side} × {side} weights",
  no_positions: "There are no positions: nothing looks at anything.",
  legend: "What the colours mean",
  zero: "exactly 0",
  not_a_number: "not a number",
  fix_scale: "Fix the scale",
  fix_scale_long: "Keep this scale instead of fitting it to what is visible",
  hint_row: "Click a row: what does this query look at?",
  hint_column: "Click a column: who looks at this key?",
  of_queries_together: "largest of a block of {lines} queries",
  of_keys_together: "largest of a block of {lines} keys",

  // Panels.
  chosen: "Chosen",
  clear_choice: "Choose nothing",
  says_weight: "Query {query} gives key {key} the weight {weight}",
  says_mean: "Around query {query} and key {key}: {weight}",
  strongest_keys: "It looks most at",
  strongest_queries: "Looked at most by",
  gives_in_all: "It gives {sum} in all.",
  receives_in_all: "It receives {sum} in all.",
  so_far: "Of some of the queries so far; the others are being computed.",
  block: "Block",
  clear_block: "Remove the block",
  share: "share of these queries",
  choose_largest: "Choose its largest weight",
  no_sums: "This file holds blocks of {side} × {side} weights, not single ones, so there are no sums.",
  says_block: "Block: sum {sum}, mean {mean}",
  whole_map: "Whole map",
  all_heads: "All heads",
  says_head: "Layer {layer}, head {head}",
  notes: "Notes",

  // Text, sound and film.
  arcs: "Arcs",
  hint_arcs: "Click a token to see what it looks at.",
  text: "Text",
  hear_query: "Play the query’s moment",
  hear_key: "Play the key’s moment",
  follow: "Playing moves the row",
  frame_of_key: "The frame of the key",
  cannot_play: "This browser cannot play it.",
  media_changed: "The file has changed since the map was opened. Start heedmap anew.",
  media_lost: "The file is no longer there. Put it back and start heedmap anew.",

  // Help.
  help_drag: "Drag to move, turn the wheel or pinch to zoom, double-click to go nearer.",
  help_click: "Click a cell to choose its query (row) and its key (column).",
  help_brush: "Drag with Shift, or after “Mark a block”, for the sums of a block.",
  help_colours: "A pixel stands for several weights until you are near enough; then it is one weight.",
  help_approximate: "Slanted lines mark what is still approximate.",
  key_pan: "Move the map",
  key_choose: "Choose the next query or key",
  key_statistic: "Next statistic",
  key_colours: "Next colours",
  key_scale: "Linear or logarithmic",
  key_block: "Begin a block at the chosen weight, or end it",
  key_play: "Play or pause",
  key_clear: "Remove the block, then the choice",

  // What can go wrong.
  trouble_gone: "heedmap does not answer. Is it still running? Trying again …",
  trouble_unauthorised: "This address is no longer valid. Open the one that heedmap printed.",
  trouble_busy: "heedmap has much to do. Trying again …",
  trouble_refused: "heedmap could not answer.",
  trouble_tiles: "Parts of the map could not be computed; heedmap’s terminal may say why.",
  trouble_schema: "This page and heedmap have different versions. Load the page again.",
};

/** What the library calls the kinds of heads, in the words of this language. */
/** @type {Record<string, string>} */
export const headKinds = {};

/** What the library calls inputs, layers and models that have no name, in the words of this language. */
/** @type {Record<string, string>} */
export const given = {
  none: "no model",
};
