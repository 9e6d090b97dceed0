"""Which fonts are needed to draw a text, and what none of them can draw.

Matplotlib draws each glyph with the first family of a list that has it. This module makes that
list: the families that the settings name come first, then as few more as cover the rest. What no
font covers is drawn as its code, such as U+4E00, so that no picture has empty boxes and matplotlib
has nothing to warn about; the caller learns the missing characters and can say what to install.

heedmap brings a font of its own for simplified Chinese, which is used where no installed one of the
usual families has the characters.

Right-to-left words and joined letters are laid out by matplotlib itself (3.11 and later, through
HarfBuzz), each label by itself; labels always follow each other from left to right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from heedmap.plot.figures import require_matplotlib
from heedmap.plot.labels import code, readable

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

SHIPPED = Path(__file__).parents[1] / "fonts" / "HeedmapSansSC-Regular.otf"
SHIPPED_FAMILY = "Heedmap Sans SC"

# Tried before all others: upright sans-serif fonts of wide coverage, simplified Chinese first where
# a family exists for several regions.
PREFERRED = (
    "Noto Sans",
    "Noto Sans CJK SC",
    "Source Han Sans SC",
    "Microsoft YaHei",
    "PingFang SC",
    "Hiragino Sans GB",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "SimHei",
    SHIPPED_FAMILY,
    "Noto Sans Arabic",
    "Noto Sans Devanagari",
    "Nirmala UI",
    "Arial Unicode MS",
    "Symbola",
    "Segoe UI Symbol",
)
# Fonts whose glyphs are not what their character codes say: last resort boxes, and the pieces of
# formulas that matplotlib brings along.
UNUSABLE = re.compile(r"Last ?Resort|cm(b|ex|mi|r|ss|sy|tt)10$|STIX(NonUnicode|Size)")


@dataclass(frozen=True)
class Fonts:
    """The families to draw a text with.

    Attributes:
        families: Names for matplotlib's `fontfamily`, in the order in which they are asked.
        uncovered: The characters that no installed font has, each once, in order of code.
    """

    families: tuple[str, ...]
    uncovered: str

    def drawable(self, label: str, most_characters: int = 24) -> str:
        """Return `label`, made readable, with codes in place of what no font has.

        A run of several such characters is its first code and “…”.
        """
        shown = readable(label, most_characters)
        if not self.uncovered:
            return shown
        run = f"[{re.escape(self.uncovered)}]+"
        return re.sub(run, lambda m: code(m[0][0]) + ("…" if len(m[0]) > 1 else ""), shown)


def find_fonts(labels: Iterable[str]) -> Fonts:
    """Return the fonts that draw these labels, and the characters that no font here covers.

    Args:
        labels: Texts as they are; they are made readable before they are looked at.

    Raises:
        MissingExtraError: if matplotlib is not installed.

    Cost:
        One look at a few fonts, as long as these are enough; else every installed font is opened
        once in the life of the process.

    Example:
        >>> find_fonts(["plain words"]).uncovered
        ''
    """
    require_matplotlib()
    families = _families_of_the_settings()
    missing = {character for label in labels for character in readable(label, len(label) + 1)}
    for family in families:
        missing -= _covered_by(family, missing)
    for family in _other_families():
        if not missing:
            break
        if (found := _covered_by(family, missing)) and family not in families:
            families.append(family)
            missing -= found
    return Fonts(tuple(families), "".join(sorted(missing)))


def _families_of_the_settings() -> list[str]:
    import matplotlib
    from matplotlib.font_manager import font_family_aliases

    named = [str(name) for name in matplotlib.rcParams["font.family"]]
    # Matplotlib writes a line to the log for each text in a family that is not there.
    known = [name for name in named if name in font_family_aliases or name in _first_faces()]
    return known or ["DejaVu Sans"]


def _other_families() -> Iterable[str]:
    installed = set(_first_faces())
    yield from (name for name in PREFERRED if name in installed)
    yield from sorted(installed - set(PREFERRED))


@lru_cache(maxsize=1)
def _first_faces() -> dict[str, tuple[str, int]]:
    """Return the file and face of the most regular font of each usable family, ours included."""
    from matplotlib.font_manager import fontManager

    if SHIPPED_FAMILY not in {entry.name for entry in fontManager.ttflist}:
        fontManager.addfont(SHIPPED)
    regular_first = sorted(
        (entry for entry in fontManager.ttflist if not UNUSABLE.match(entry.name)),
        key=lambda entry: (entry.style != "normal", entry.weight not in (400, "normal", "regular")),
    )
    faces: dict[str, tuple[str, int]] = {}
    for entry in regular_first:
        faces.setdefault(entry.name, (entry.fname, entry.index))
    return faces


def _covered_by(family: str, characters: set[str]) -> set[str]:
    face = _face_of(family)
    if face is None:
        return set()
    return {c for c in characters if face.get_char_index(ord(c))}


@cache
def _face_of(family: str) -> FT2Font | None:
    """Return the open font of a family, or None where it cannot be drawn with."""
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FaceFlags, FT2Font

    if family in _first_faces():
        path, index = _first_faces()[family]
    else:
        found = findfont(FontProperties(family=[family]))
        path, index = str(found), getattr(found, "face_index", 0)
    try:
        face = FT2Font(path, face_index=index)
    except (OSError, RuntimeError):
        return None
    # Bitmap fonts of coloured emoji cannot be scaled, and matplotlib cannot draw them.
    return face if FaceFlags.SCALABLE in face.face_flags else None
