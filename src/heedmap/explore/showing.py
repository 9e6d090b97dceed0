"""Showing a scene: in the browser until Ctrl-C, beside a program, or in the cell of a notebook."""

import os
import sys
import webbrowser
from collections.abc import Callable
from typing import Any

from heedmap.explore.explorer import Explorer
from heedmap.explore.running import Running, serve
from heedmap.explore.scene import Scene


def explore(
    scene: Scene,
    *,
    host: str,
    port: int,
    exposed: bool,
    browser: bool,
    announce: Callable[[str], None],
) -> None:
    """Serve a scene until Ctrl-C.

    Args:
        scene: What is shown.
        host: The address to listen at.
        port: The port to listen on; any free one for 0.
        exposed: Whether others in the network may reach it.
        browser: Whether to open it in the browser, where there is one.
        announce: Called with the address to open, once it can be opened.

    Raises:
        ArgumentError: for a host or a port that cannot be had.
        MissingExtraError: if a package of the extra explore is missing.
    """

    def announced(url: str) -> None:
        announce(url)
        if browser:
            open_in_browser(url)

    serve(Explorer(scene), host=host, port=port, allow_other_hosts=exposed, announce=announced)


def show(scene: Scene) -> Any:
    """Return what shows a scene: a widget in a notebook, else a running server, opened.

    Where no browser can be opened, the address is printed.

    Raises:
        MissingExtraError: if a package of the extra explore, or notebook, is missing.
    """
    if _in_notebook():
        from heedmap.explore.widget import make_widget

        return make_widget(Explorer(scene))
    running = Running(Explorer(scene))
    if not open_in_browser(running.url):
        print(f"The live map: {running.url}", flush=True)
    return running


def open_in_browser(url: str) -> bool:
    """Open an address in a browser with windows, and return whether there is one.

    One in the terminal would take it over.
    """
    has_windows = {"DISPLAY", "WAYLAND_DISPLAY"} & {*os.environ}
    return bool(sys.platform in ("darwin", "win32") or has_windows) and webbrowser.open(url)


def _in_notebook() -> bool:
    """Return whether a notebook asks, which IPython says by the name of its shell."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"
