"""The lesson as one file that opens without a program and without a network."""

import json
import re
from base64 import b64encode
from pathlib import Path

from heedmap.explore.offline import check_free, write_whole
from heedmap.explore.page_files import FONT, PageFile
from heedmap.explore.page_modules import linked
from heedmap.explore.small_font import font_style
from heedmap.lesson.page_files import DATA, Language, page_files

_PAGE = """\
<!doctype html>
<html lang="zh">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data:; \
font-src data:; base-uri 'none'; form-action 'none'">
<title>heedmap</title>
<style>%(style)s</style>
</head>
<body class="heedmap-alone">
<main id="heedmap"%(language)s></main>
<script id="heedmap-data" type="application/json">%(data)s</script>
<script type="module">
%(modules)s
const { mountAlone } = await import(places.get("lesson_alone.js"));
const data = JSON.parse(document.getElementById("heedmap-data").textContent);
mountAlone(document.getElementById("heedmap"), data, null);
</script>
</body>
</html>
"""


def write_lesson(file: Path, *, language: Language | None = None, force: bool = False) -> None:
    """Write the lesson as one HTML file, which appears whole.

    Args:
        file: Where; it must not exist yet.
        language: The language to begin with; that of the browser without it.
        force: Whether to replace a file that is there.

    Raises:
        InputError: for a file that exists or cannot be written.
    """
    check_free(file, force=force)
    write_whole(file, lesson_page(language), force=force)


def lesson_page(language: Language | None = None) -> str:
    """Return the whole page as a text.

    >>> len(lesson_page()) < 5_000_000
    True
    """
    files = page_files()
    read = {name: json.loads(files[f"{name}.json"].content) for name in DATA}
    # Within a page, no text may end its script.
    data = json.dumps(read, ensure_ascii=False).replace("</", "<\\/")
    return _PAGE % {
        "style": _styles(files, font_style(files, data) or _whole_font(files)),
        "language": f' data-language="{language}"' if language else "",
        "data": data,
        "modules": linked("lesson_alone.js", files=files),
    }


def _whole_font(files: dict[str, PageFile]) -> str:
    """Return the style sheet of the font for Chinese with all of the font in it."""
    font = "data:font/otf;base64," + b64encode(files[FONT].content).decode()
    return files["fonts.css"].content.decode().replace(FONT, font)


def _styles(files: dict[str, PageFile], fonts: str) -> str:
    """Return the style sheets of the page as one."""
    names = re.findall(r'href="/page/(\w+\.css)"', files["index.html"].content.decode())
    return "".join(fonts if name == "fonts.css" else files[name].content.decode() for name in names)
