/** Light or dark: as the system has it, until somebody chooses; on paper light. */

/**
 * Keep the theme of the page what the state and the system say.
 *
 * @param {HTMLElement} root
 * @param {{state: {theme: string}, on: (names: ["theme"], listener: () => void) => void}} store
 * @param {AbortSignal} ended
 * @param {(onPaper: boolean) => void} onChange called after the theme was set
 */
export function keepTheme(root, store, ended, onChange) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let onPaper = false;
  const apply = () => {
    const { theme } = store.state;
    const dark = theme === "auto" ? system.matches : theme === "dark";
    root.dataset.theme = dark && !onPaper ? "dark" : "light";
    onChange(onPaper);
  };
  for (const name of ["beforeprint", "afterprint"]) {
    const turn = () => {
      onPaper = name === "beforeprint";
      apply();
    };
    window.addEventListener(name, turn, { signal: ended });
  }
  system.addEventListener("change", apply, { signal: ended });
  store.on(["theme"], apply);
  apply();
}
