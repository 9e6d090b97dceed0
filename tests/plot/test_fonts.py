import pytest

from heedmap.errors import MissingExtraError
from heedmap.plot import Fonts, find_fonts, plot_heatmap

CHINESE = "他说他今天不能来"


def test_chinese_is_covered_by_an_installed_font():
    fonts = find_fonts([CHINESE])
    assert fonts.uncovered == "", (
        f"no installed font has {fonts.uncovered}; the checks need one: "
        "apt-get install fonts-wqy-microhei"
    )


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
    import torch

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
