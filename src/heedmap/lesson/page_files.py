"""The files of the lesson's page, with those of the live map that it shares."""

from pathlib import Path

from heedmap.explore.page_files import PageFile
from heedmap.explore.page_files import page_files as files_in

PAGE = Path(__file__).parent / "page"


def page_files() -> dict[str, PageFile]:
    """Return every file that the lesson's page may ask for, by its path below ``/page/``.

    The modules of the lesson import those of the live map as if they lay in one folder.
    """
    own, shared = files_in(PAGE), files_in()
    clashing = (own.keys() & shared.keys()) - {"index.html"}
    assert not clashing, f"files of the lesson have names of the live map: {clashing}"
    return shared | own
