/** The help: what pointing and each key does. */

import { button } from "./controls.js";
import { data, make } from "./dom.js";

/**
 * Return the dialog; it is filled when it is opened.
 *
 * @param {import("./page.js").Page} page
 * @param {() => import("./keys.js").Shortcut[]} table
 */
export function helpDialog(page, table) {
  const { words } = page;
  const dialog = make("dialog", { class: "hm-help" });
  words.name(dialog, "help");
  const open = () => {
    const keys = make("dl", { class: "hm-keys" });
    for (const { shown, word } of table()) {
      keys.append(
        make("dt", {}, data("kbd", shown)),
        words.put(make("dd"), word),
      );
    }
    const points = make("ul", {});
    for (const word of /** @type {const} */ ([
      "help_drag",
      "help_click",
      "help_brush",
      "help_colours",
      "help_approximate",
    ])) {
      points.append(words.put(make("li"), word));
    }
    const close = button(page, "close", "close", () => dialog.close());
    dialog.replaceChildren(
      make("div", { class: "hm-panel-head" }, words.put(make("h2"), "help"), close),
      points,
      keys,
    );
    dialog.showModal();
  };
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) {
      dialog.close();
    }
  });
  return { element: dialog, open };
}
