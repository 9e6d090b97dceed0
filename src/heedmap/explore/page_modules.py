"""The page without a server: its modules as one text, for a notebook or a file."""

import json
import re
from collections.abc import Mapping

from heedmap.explore.page_files import PageFile, page_files

_IMPORT = re.compile(r'(\bfrom\s+")\./([\w.]+)(")')

_LINK = """\
const places = new Map();
for (const [name, source] of %s) {
  const linked = source.replace(/(\\bfrom\\s+")\\.\\/([\\w.]+)(")/g,
    (_, before, wanted, after) => before + places.get(wanted) + after);
  const blob = new Blob([linked], { type: "text/javascript" });
  places.set(name, URL.createObjectURL(blob));
}
"""


def linked(*entries: str, files: Mapping[str, PageFile] | None = None) -> str:
    """Return JavaScript that makes `places`, the addresses of the modules, of nothing but itself.

    Each module becomes a blob, behind those that it imports, whose addresses it then names.

    Args:
        entries: The modules that will be imported; what they import comes along.
        files: Where they are found; those of the live map unless given.
    """
    files = page_files() if files is None else files
    sources = {name: file.content.decode() for name, file in files.items() if name.endswith(".js")}
    ordered = [[name, sources[name]] for name in in_order(sources, entries)]
    # Within a page, no text may end its script.
    return _LINK % json.dumps(ordered).replace("</", "<\\/")


def in_order(sources: Mapping[str, str], entries: tuple[str, ...]) -> list[str]:
    """Return the modules that these need, each behind all that it imports.

    >>> in_order({"a.js": 'import { b } from "./b.js";', "b.js": "", "c.js": ""}, ("a.js",))
    ['b.js', 'a.js']
    """
    found: list[str] = []
    above: list[str] = []

    def visit(name: str) -> None:
        if name in found:
            return
        assert name not in above, f"modules import one another: {[*above, name]}"
        above.append(name)
        for _, wanted, _ in _IMPORT.findall(sources[name]):
            visit(wanted)
        above.pop()
        found.append(name)

    for entry in entries:
        visit(entry)
    return found


def style() -> str:
    """Return the style sheet of the page."""
    return page_files()["style.css"].content.decode()
