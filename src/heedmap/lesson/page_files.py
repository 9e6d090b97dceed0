"""The files of the lesson's page, with those of the live map that it shares."""

from pathlib import Path
from typing import Literal

from heedmap.explore.page_files import PageFile, font_files, page_file
from heedmap.explore.page_files import page_files as files_in

PAGE = Path(__file__).parent / "page"

Language = Literal["zh", "en"]

DATA = ("start_numbers", "sentences", "measured")
"""The files of numbers, without their ending, that every page begins with."""


def page_files(language: Language | None = None) -> dict[str, PageFile]:
    """Return every file that the lesson's page may ask for, by its path below ``/page/``.

    The modules of the lesson import those of the live map as if they lay in one folder.

    Args:
        language: The language to begin with; that of the browser without it.
    """
    own, shared = files_in(PAGE), files_in()
    clashing = (own.keys() & shared.keys()) - {"index.html"}
    assert not clashing, f"files of the lesson have names of the live map: {clashing}"
    if language is not None:
        place = b'<main id="heedmap"'
        told = place + f' data-language="{language}"'.encode()
        own["index.html"] = page_file("index.html", own["index.html"].content.replace(place, told))
    return shared | own | font_files()
