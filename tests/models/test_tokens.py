"""Labels that people can read, from what tokenizers say."""

import pytest

from heedmap.models.tokens import token_axis


@pytest.mark.parametrize(
    ("text", "spans", "labels", "kept"),
    [
        ("a b", [(0, 1), (1, 3)], ("a", "b"), ((0, 1), (2, 3))),
        ("a\n", [(0, 1), (1, 2)], ("a", "⏎"), ((0, 1), (1, 2))),
        ("ﷺ", [(0, 1), (0, 1)], ("ﷺ·1/2", "ﷺ·2/2"), ((0, 1), (0, 1))),
        ("a", [(0, 0), (0, 1)], ("#0", "a"), ((0, 0), (0, 1))),
        ("a", [(0, 0), (0, 0)], ("#0", "#1"), ((0, 0), (0, 0))),
        (
            "你好 🌍",
            [(0, 2), (2, 4), (3, 4)],
            ("你好", "🌍·1/2", "🌍·2/2"),
            ((0, 2), (3, 4), (3, 4)),
        ),
        ("aa", [(0, 1), (1, 2)], ("a", "a"), ((0, 1), (1, 2))),
    ],
)
def test_labels_and_spans(
    text: str,
    spans: list[tuple[int, int]],
    labels: tuple[str, ...],
    kept: tuple[tuple[int, int], ...],
):
    axis = token_axis(text, [f"#{i}" for i in range(len(spans))], spans)
    assert axis.labels == labels
    assert axis.spans == kept
    assert axis.text == text
