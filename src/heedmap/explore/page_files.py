"""The files of the page, read once, so that no request ever reaches the file system."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent / "page"
FONTS = Path(__file__).parents[1] / "fonts"
FONT = "HeedmapSansSC-Regular.otf"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".otf": "font/otf",
}
"""Not the operating system's tables: some of them call JavaScript plain text."""


@dataclass(frozen=True)
class PageFile:
    """One file of the page.

    Attributes:
        content: What is in it.
        content_type: Its type for browsers.
        etag: What tells this content from any other.
    """

    content: bytes
    content_type: str
    etag: str


def page_files(folder: Path = PAGE) -> dict[str, PageFile]:
    """Return every file in a folder and the folders in it, by its path from there.

    Example:
        >>> page_files(Path("nowhere"))
        {}
    """
    return {
        path.relative_to(folder).as_posix(): page_file(path.name, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def font_files() -> dict[str, PageFile]:
    """Return the font for Chinese and the style sheet that names it, which pages share.

    Example:
        >>> sorted(font_files())
        ['HeedmapSansSC-Regular.otf', 'fonts.css']
    """
    return {name: page_file(name, (FONTS / name).read_bytes()) for name in (FONT, "fonts.css")}


def page_file(name: str, content: bytes) -> PageFile:
    """Return a file of the page.

    Args:
        name: Its name, whose ending says of what type it is.
        content: What is in it.

    Example:
        >>> page_file("index.html", b"").content_type
        'text/html; charset=utf-8'
    """
    return PageFile(
        content,
        _TYPES.get(Path(name).suffix, "application/octet-stream"),
        f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    )


def is_known(etag: str, if_none_match: str) -> bool:
    """Return whether a client has a file already.

    Args:
        etag: That of the file.
        if_none_match: What the client says that it has.

    Example:
        >>> is_known('"a"', 'W/"a", "b"'), is_known('"a"', '"b"')
        (True, False)
    """
    known = [entry.strip().removeprefix("W/") for entry in if_none_match.split(",")]
    return etag in known or "*" in known
