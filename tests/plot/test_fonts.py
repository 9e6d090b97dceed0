from pathlib import Path

import pytest
import torch

from heedmap.errors import MissingExtraError
from heedmap.plot import Fonts, find_fonts, plot_arcs, plot_heatmap, save_figure
from heedmap.plot.fonts import SHIPPED, SHIPPED_FAMILY, _face_of, _first_faces

CHINESE = "他说他今天不能来"


@pytest.fixture
def bare_machine(monkeypatch):
    """A machine that has no fonts but those which matplotlib brings along."""
    from matplotlib import get_data_path
    from matplotlib.font_manager import fontManager

    def forget():
        _first_faces.cache_clear()
        _face_of.cache_clear()

    own = [entry for entry in fontManager.ttflist if entry.fname.startswith(get_data_path())]
    assert any(entry.name == "DejaVu Sans" for entry in own)
    monkeypatch.setattr(fontManager, "ttflist", own)
    forget()
    yield
    forget()


@pytest.mark.usefixtures("bare_machine")
def test_chinese_is_drawn_where_no_font_for_it_is_installed(sentence, drawn):
    fonts = find_fonts([CHINESE])
    assert fonts == Fonts(("sans-serif", SHIPPED_FAMILY), "")
    # A glyph that is missing is a warning of matplotlib, and a warning fails the test.
    texts = [text for text, _ in drawn(plot_arcs(torch.eye(7), sentence))]
    assert {"他说", "今天", "不能", "来"} <= set(texts)


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_our_font_reaches_files_of_each_kind(ending, sentence, tmp_path):
    path = save_figure(plot_arcs(torch.eye(7), sentence), tmp_path / f"arcs.{ending}")
    assert path.stat().st_size > 5000


@pytest.mark.usefixtures("bare_machine")
def test_our_font_has_every_character_of_gb_2312():
    cells = (bytes([row, cell]) for row in range(0xA1, 0xF8) for cell in range(0xA1, 0xFF))
    characters = "".join(pair.decode("gb2312", errors="ignore") for pair in cells)
    assert len(characters) == 7445
    assert find_fonts([characters]).uncovered == ""


@pytest.mark.usefixtures("bare_machine")
def test_our_font_has_what_our_own_chinese_texts_are_written_in():
    root = Path(__file__).parents[2]
    files = [*root.glob("*.zh.md"), *root.glob("docs/zh/**/*.md")]
    files += root.glob("src/heedmap/**/*_zh.js")
    assert files
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert find_fonts(sorted(set(text) - set("\n\t"))).uncovered == ""


def test_our_font_keeps_its_licence_beside_it_and_a_name_of_its_own():
    from matplotlib.ft2font import FT2Font

    face = FT2Font(str(SHIPPED))
    assert face.family_name == SHIPPED_FAMILY
    assert face.postscript_name == "HeedmapSansSC-Regular"
    notices = [name.decode("utf-16-be", errors="replace") for name in face.get_sfnt().values()]
    assert any("SIL Open Font License" in notice for notice in notices)
    licence = (SHIPPED.parent / "OFL.txt").read_text(encoding="utf-8")
    assert "2014-2021 Adobe" in licence
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence
    assert SHIPPED.name in licence


def test_the_stylesheet_names_the_file_and_no_other():
    import re

    sheet = (SHIPPED.parent / "fonts.css").read_text(encoding="utf-8")
    assert re.findall(r'url\("(.*?)"\)', sheet) == [SHIPPED.name]
    assert f'font-family: "{SHIPPED_FAMILY}";' in sheet


def test_latin_needs_no_family_besides_those_of_the_settings():
    import matplotlib

    assert list(find_fonts(["plain"]).families) == matplotlib.rcParams["font.family"]


def test_a_family_is_added_only_for_what_the_others_lack():
    families = find_fonts(["plain", CHINESE]).families
    assert len(families) == len(find_fonts(["plain"]).families) + 1


def test_families_that_are_not_installed_are_passed_over(caplog):
    import matplotlib

    with matplotlib.rc_context({"font.family": ["No Such Family"]}):
        assert find_fonts(["plain"]) == Fonts(("DejaVu Sans",), "")
    assert caplog.text == ""


def test_what_no_font_has_is_reported_once_and_in_order():
    assert find_fonts(["\U0010fffd", "\U000ffffd\U0010fffd"]).uncovered == "\U000ffffd\U0010fffd"


def test_what_no_font_has_is_drawn_as_its_code():
    fonts = Fonts(("sans-serif",), "一二")
    assert fonts.drawable("x一y") == "xU+4E00y"
    assert fonts.drawable("二一") == "U+4E8C…"


def test_the_boxes_of_the_last_resort_font_do_not_count():
    assert not any("Resort" in family for family in find_fonts(["\U0010fffd"]).families)


@pytest.mark.parametrize(
    "label",
    [
        "مرحبا",
        "می‌خواهم",
        "שלום",
        "हिन्दी",
        "สวัสดี",
        "👍🏽",
        "👨‍👩‍👧",
        "\U0010fffd",
        "e\u0301",
        "\u0301",
    ],
)
def test_any_script_is_drawn_without_a_warning(label, drawn):
    from heedmap.axes import Axis

    axis = Axis.of_tokens(label, [label, label], [(0, 1), (0, 1)])
    ax = plot_heatmap(torch.eye(2), query_axis=axis, key_axis=axis, title=label)
    assert len(drawn(ax)) >= 5


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"heedmap\[plot\]"):
        find_fonts(["x"])


def test_importing_the_package_loads_no_matplotlib():
    import subprocess
    import sys

    program = "import sys, heedmap.plot; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
