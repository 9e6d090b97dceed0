/** The lesson by itself, served by the program. */

import { mountLesson } from "./lesson.js";

const element = document.getElementById("heedmap");
const answer = await fetch("/page/start_numbers.json");
if (element) {
  const wanted = new URLSearchParams(location.search).get("language");
  const languages = [wanted ?? "", ...navigator.languages.map((name) => name.split("-")[0])];
  const language = languages.find((name) => name === "zh" || name === "en") ?? "zh";
  const numbers = await answer.json();
  mountLesson(element, { numbers, measured: null, sentence: {}, program: null }, language);
}
