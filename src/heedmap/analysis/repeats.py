"""Which tokens of a text say again what another says."""

import unicodedata

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from heedmap.axes import Axis


class Repeats:
    """Which tokens repeat which, by their characters alone.

    Two tokens repeat each other if they are the same but for upper and lower case. Chinese
    characters are written without blanks, so that a tokenizer may join one with its neighbour:
    there, a token also repeats one that holds it whole (他 and 他说). Tokens without a letter or
    digit, and those that stand for no character, repeat nothing.
    """

    def __init__(self, axis: Axis) -> None:
        """Compare the labels of the tokens."""
        numbers: dict[str, int] = {}
        ids = [
            numbers.setdefault(label.casefold(), len(numbers)) if _is_word(label, span) else -1
            for label, span in zip(axis.labels, axis.spans, strict=True)
        ]
        self._ids: Int[Tensor, " positions"] = torch.tensor(ids)
        self._parts = _parts(list(numbers))
        self.has_repeat: Bool[Tensor, " positions"] = torch.cat(
            [self.tile(range(i, i + 1)).any(1) for i in range(len(ids))]
        )

    def tile(self, rows: range) -> Bool[Tensor, "rows positions"]:
        """Return for these positions which others repeat them; none repeats itself."""
        ids = self._ids[rows.start : rows.stop]
        alike = (ids[:, None] == self._ids) & (ids >= 0)[:, None]
        for row, number in enumerate(ids.tolist()):
            if number in self._parts:
                alike[row] |= torch.isin(self._ids, self._parts[number])
        places = torch.arange(len(rows))
        alike[places, places + rows.start] = False
        return alike


def _is_word(label: str, span: tuple[float, float]) -> bool:
    return span[1] > span[0] and any(map(str.isalnum, label))


def _parts(words: list[str]) -> dict[int, Int[Tensor, " others"]]:
    """Return which words hold which, in both directions, where the shorter one is Chinese."""
    related: dict[int, list[int]] = {}
    chinese = [(number, word) for number, word in enumerate(words) if _is_chinese(word)]
    for number, word in chinese:
        for other, longer in enumerate(words):
            if len(longer) > len(word) and word in longer:
                related.setdefault(number, []).append(other)
                related.setdefault(other, []).append(number)
    return {number: torch.tensor(others) for number, others in related.items()}


def _is_chinese(word: str) -> bool:
    return all(unicodedata.name(character, "").startswith("CJK UNIFIED") for character in word)
