"""The lesson in the browser, until Ctrl-C."""

from collections.abc import Callable
from functools import partial

from heedmap.explore.running import serve
from heedmap.explore.showing import open_in_browser
from heedmap.lesson.app import make_app
from heedmap.lesson.examples import Examples
from heedmap.lesson.page_files import Language


def serve_lesson(
    *,
    language: Language | None = None,
    port: int = 0,
    browser: bool = True,
    announce: Callable[[str], None],
) -> None:
    """Serve the lesson until somebody presses Ctrl-C.

    Args:
        language: The language to begin with; that of the browser without it.
        port: The port to listen on; any free one for 0.
        browser: Whether to open it in the browser, where there is one.
        announce: Called with the address to open, once it can be opened.

    Raises:
        ArgumentError: for a port that cannot be had.
        MissingExtraError: if a package of the extra explore is missing.
    """

    def announced(url: str) -> None:
        announce(url)
        if browser:
            open_in_browser(url)

    serve(Examples(), port=port, announce=announced, make=partial(make_app, language=language))
