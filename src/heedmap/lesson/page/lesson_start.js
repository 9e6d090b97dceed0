/** The lesson by itself, served by the program. */

import { mountAlone } from "./lesson_alone.js";
import { httpProgram } from "./lesson_program.js";

const names = ["start_numbers", "sentences", "measured"];
const [start_numbers, sentences, measured] = await Promise.all(
  names.map(async (name) => (await fetch(`/page/${name}.json`)).json()),
);
mountAlone(document.getElementById("heedmap"), { start_numbers, sentences, measured }, httpProgram());
