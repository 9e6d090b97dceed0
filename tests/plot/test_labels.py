import pytest

from heedmap.plot.labels import readable, width_in_letters


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("word", "word"),
        (" word", "word"),
        ("", "∅"),
        (" ", "␣"),
        ("\n\n", "↵↵"),
        ("a\tb", "a⇥b"),
        ("\r", "U+000D"),
        ("a\u200bb", "aU+200Bb"),
        ("\u202e", "U+202E"),
        ("\ud800", "U+D800"),
        ("☃\ufe0f", "☃"),
        ("\ufe0f", "∅"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\u200d", "U+200D"),
        ("$a_b$", "$a_b$"),
    ],
)
def test_every_character_can_be_seen(label, shown):
    assert readable(label) == shown


def test_long_labels_are_cut():
    assert readable("x" * 100) == "x" * 23 + "…"


def test_combining_marks_have_no_width():
    assert width_in_letters("e\u0301") == 1.0
