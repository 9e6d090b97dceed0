"""A unigram tokenizer that keeps hold of the characters its tokens came from.

The text goes through a map of single characters (compatibility forms, blanks), runs of blanks
become one, blanks at the ends go, and every blank, with one more in front of the text, turns into
`▁`. Of all ways to cut the result into known pieces, the one with the highest sum of scores is
taken (Viterbi). Characters that no piece holds become unknown tokens; neighbours fuse into one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

BLANK = " "
BLANK_MARK = "▁"

# As SentencePiece has it: an unknown character costs this much more than the rarest piece.
_UNKNOWN_PENALTY = 10.0


class Token(NamedTuple):
    """A token: its number, its piece, and the characters of the original text that it covers."""

    id: int
    piece: str
    start: int
    end: int


class _Symbol(NamedTuple):
    """One character after normalisation, and the characters of the text that it stands for."""

    character: str
    start: int
    end: int


@dataclass(frozen=True)
class UnigramTokenizer:
    """Cuts text into the pieces of a unigram vocabulary.

    Attributes:
        ids: The number of each piece that text can be cut into.
        scores: The logarithm of each piece's probability, by number.
        normalizer: What single characters turn into, where they do not stay as they are.
        begin: Number and name of the token put in front.
        end: Number and name of the token put at the end.
        unknown: Number and name of the token for characters that no piece holds.
        longest_piece: Characters in the longest piece.
    """

    ids: Mapping[str, int]
    scores: Sequence[float]
    normalizer: Mapping[str, str]
    begin: tuple[int, str]
    end: tuple[int, str]
    unknown: tuple[int, str]
    longest_piece: int

    @cached_property
    def _unknown_score(self) -> float:
        return min(self.scores) - _UNKNOWN_PENALTY

    def encode(self, text: str) -> list[Token]:
        """Return the tokens of `text`, with the token in front and the one at the end.

        Args:
            text: Any text.

        Returns:
            Tokens in order. A `▁` alone covers no characters, nor do the tokens in front and at the
            end. Text without anything but blanks gives these two only.

        Cost:
            One look-up for each character and piece length (at most 16 in the packaged model).

        Example:
            >>> tokenizer = UnigramTokenizer(
            ...     ids={"▁": 3, "▁no": 4, "o": 5},
            ...     scores=(0.0, 0.0, 0.0, -1.0, -2.0, -3.0),
            ...     normalizer={},
            ...     begin=(0, "<s>"),
            ...     end=(1, "</s>"),
            ...     unknown=(2, "<unk>"),
            ...     longest_piece=3,
            ... )
            >>> tokens = tokenizer.encode("noo xyz")
            >>> [token.piece for token in tokens]
            ['<s>', '▁no', 'o', '▁', '<unk>', '</s>']
            >>> [(token.start, token.end) for token in tokens]
            [(0, 0), (0, 2), (2, 3), (4, 4), (4, 7), (7, 7)]
        """
        symbols = self._normalize(text)
        tokens = [Token(*self.begin, 0, 0)]
        for first, last, number in self._cut("".join(symbol.character for symbol in symbols)):
            start, end = _cover(symbols[first:last])
            if number != self.unknown[0]:
                piece = "".join(symbol.character for symbol in symbols[first:last])
                tokens.append(Token(number, piece, start, end))
            elif tokens[-1].id == number:
                tokens[-1] = tokens[-1]._replace(end=end)
            else:
                tokens.append(Token(*self.unknown, start, end))
        tokens.append(Token(*self.end, len(text), len(text)))
        return tokens

    def _normalize(self, text: str) -> list[_Symbol]:
        """Return the normalised characters, a `▁` in front; none if the text is only blanks."""
        symbols: list[_Symbol] = []
        for position, original in enumerate(text):
            for character in self.normalizer.get(original, original):
                if character != BLANK:
                    symbols.append(_Symbol(character, position, position + 1))
                elif not symbols:
                    continue
                elif symbols[-1].character == BLANK_MARK:
                    symbols[-1] = symbols[-1]._replace(end=position + 1)
                else:
                    symbols.append(_Symbol(BLANK_MARK, position, position + 1))
        if symbols and symbols[-1].character == BLANK_MARK:
            symbols.pop()
        if symbols:
            symbols.insert(0, _Symbol(BLANK_MARK, symbols[0].start, symbols[0].start))
        return symbols

    def _cut(self, characters: str) -> list[tuple[int, int, int]]:
        """Return the best cut: first character, one past the last, and number of each piece."""
        size = len(characters)
        best = [0.0] + [float("-inf")] * size
        came_from = [(0, 0)] * (size + 1)
        for start in range(size):
            so_far = best[start]
            if so_far + self._unknown_score > best[start + 1]:
                best[start + 1] = so_far + self._unknown_score
                came_from[start + 1] = (start, self.unknown[0])
            for end in range(start + 1, min(start + self.longest_piece, size) + 1):
                number = self.ids.get(characters[start:end])
                if number is not None and so_far + self.scores[number] > best[end]:
                    best[end] = so_far + self.scores[number]
                    came_from[end] = (start, number)
        cut = []
        end = size
        while end > 0:
            start, number = came_from[end]
            cut.append((start, end, number))
            end = start
        return cut[::-1]


def _cover(symbols: list[_Symbol]) -> tuple[int, int]:
    """Return the first and one-past-last character of the word, without the blank before it."""
    if len(symbols) == 1 and symbols[0].character == BLANK_MARK:
        return symbols[0].end, symbols[0].end
    first = symbols[1] if symbols[0].character == BLANK_MARK else symbols[0]
    return first.start, symbols[-1].end
