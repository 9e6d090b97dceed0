"""The font for Chinese in pages that are one file."""

import base64
import io
import re
import sys
from pathlib import Path

import pytest
import torch
from fontTools.ttLib import TTFont

from heedmap import AttentionMap, Axis
from heedmap.explore.offline import write_page
from heedmap.explore.opening import scene_of_map
from heedmap.explore.page_files import FONT, font_files, page_file, page_files
from heedmap.explore.scene import Scene
from heedmap.explore.small_font import font_style

WORDS = "骉犇他"
"""None of the first two is in a word of the page."""


def scene() -> Scene:
    axis = Axis.of_tokens(WORDS, list(WORDS), [(i, i + 1) for i in range(3)])
    return scene_of_map(AttentionMap.from_weights(torch.eye(3)), axis=axis)


def font_in(sheet: str) -> TTFont:
    found = re.search(r'url\("data:font/woff;base64,([^"]+)"\) format\("woff"\)', sheet)
    assert found
    return TTFont(io.BytesIO(base64.b64decode(found[1])))


def test_it_has_the_characters_of_the_page_and_no_others() -> None:
    files = {"words.js": page_file("words.js", "键 query".encode())}
    sheet = font_style(files, "犇ab")
    assert sheet is not None
    assert set(map(chr, font_in(sheet).getBestCmap())) == {"键", "犇"}
    assert "unicode-range: U+2E80" in sheet
    assert sheet == font_style(files, "ba犇犇")


def test_its_makers_stay_named() -> None:
    sheet = font_style({}, "他")
    assert sheet is not None
    names, whole = font_in(sheet)["name"], TTFont(io.BytesIO(font_files()[FONT].content))["name"]
    for number in (0, 1, 13, 14):
        assert names.getDebugName(number) == whole.getDebugName(number) is not None


def test_a_file_brings_the_characters_of_its_text_and_of_its_own_words(tmp_path: Path) -> None:
    write_page(scene(), tmp_path / "map.html")
    characters = set(map(chr, font_in((tmp_path / "map.html").read_text("utf-8")).getBestCmap()))
    own = page_files()["strings_zh.js"].content.decode()
    assert set(re.findall(r"[\u4e00-\u9fff]", own + WORDS)) <= characters
    assert (tmp_path / "map.html").stat().st_size < 600_000


def test_without_font_tools_a_file_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fontTools", None)
    assert font_style(page_files(), WORDS) is None
    write_page(scene(), tmp_path / "map.html")
    assert "@font-face" not in (tmp_path / "map.html").read_text("utf-8")
