"""What people see of tokens: the characters they stand for, not a tokenizer's own spelling."""

from collections.abc import Iterable
from itertools import groupby

from heedmap.axes import Axis

_VISIBLE_BLANKS = str.maketrans({" ": "␣", "\n": "⏎", "\r": "⏎", "\t": "⇥"})


def token_axis(text: str, names: Iterable[str], spans: Iterable[tuple[int, int]]) -> Axis:
    """Return the axis of the tokens of a text, labelled with the text's own characters.

    A blank before a word does not belong to the word. Where several tokens share a character (the
    bytes of 🌍, or a ligature that was taken apart), each says which of them it is. A token that
    covers no character keeps its name.

    Args:
        text: The text that was cut into tokens.
        names: The tokenizer's own name of each token.
        spans: First and one-past-last character of each token.

    Example:
        >>> names, spans = ["<s>", "Ġhi", "ĠðŁĮ", "į"], [(0, 0), (0, 3), (3, 5), (4, 5)]
        >>> token_axis(" hi 🌍", names, spans).labels
        ('<s>', 'hi', '🌍·1/2', '🌍·2/2')
    """
    trimmed = [_without_blanks(text, start, end) for start, end in spans]
    shown = [
        text[start:end].translate(_VISIBLE_BLANKS) if end > start else name
        for name, (start, end) in zip(names, trimmed, strict=True)
    ]
    labels: list[str] = []
    for (start, end), group in groupby(range(len(shown)), key=trimmed.__getitem__):
        same = list(group)
        shared = end > start and len(same) > 1
        labels += [
            f"{shown[i]}·{rank}/{len(same)}" if shared else shown[i]
            for rank, i in enumerate(same, start=1)
        ]
    return Axis.of_tokens(text, labels, trimmed)


def _without_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without the blanks at its ends, or as it is when it holds nothing else."""
    piece = text[start:end]
    if not piece.strip():
        return start, end
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())
