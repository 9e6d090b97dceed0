/** The page by itself: the whole window, over HTTP. */

import { mount } from "./main.js";
import { httpTransport } from "./transport_http.js";

const element = document.getElementById("heedmap");
if (element) {
  mount(element, httpTransport(), { alone: true });
}
