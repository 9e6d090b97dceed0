"""The font for Chinese with the characters of one page alone, for pages that are one file."""

import io
import re
from base64 import b64encode
from collections.abc import Mapping

from heedmap.explore.page_files import FONT, FONTS, PageFile

_FIRST_CHINESE = "\u2e80"
"""What comes before it is Latin and the like, which every machine has fonts for."""

_NAMES = [*range(15)]
"""Copyright and licence among them, which must stay."""


def font_style(files: Mapping[str, PageFile], text: str) -> str | None:
    """Return the style sheet of the font, with what a page needs of it within it.

    Args:
        files: The files of the page, whose modules hold its own words.
        text: What else it may show.

    Returns:
        The sheet; None without fontTools, which comes along with matplotlib.

    Cost: about a fifth of a second.
    """
    try:
        from fontTools import subset
        from fontTools.ttLib import TTFont
    except ImportError:
        return None
    # A time of its own would make two files of the same page differ.
    font = TTFont(FONTS / FONT, recalcTimestamp=False)
    options = subset.Options(
        layout_features=[], hinting=False, notdef_outline=True, name_IDs=_NAMES
    )
    cutter = subset.Subsetter(options)
    words = [file.content.decode() for name, file in files.items() if name.endswith(".js")]
    shown = set(text).union(*words)
    cutter.populate(text="".join(sorted(one for one in shown if one >= _FIRST_CHINESE)))
    cutter.subset(font)
    font.flavor = "woff"
    small = io.BytesIO()
    font.save(small)
    sheet = (FONTS / "fonts.css").read_text(encoding="utf-8")
    source = f'url("data:font/woff;base64,{b64encode(small.getvalue()).decode()}") format("woff")'
    return re.sub(r'url\("[^"]+"\) format\("[^"]+"\)', source, sheet)
