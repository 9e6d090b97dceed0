"""The tokenizer: pieces as the scores have it, and where in the text they came from."""

import pytest

from heedmap.models.unigram import UnigramTokenizer

PIECES = {"▁": -2.0, "▁the": -3.0, "the": -4.0, "fi": -3.0, "▁fi": -3.5, "n": -5.0, "e": -5.0}
PIECES |= {"ne": -6.0, "他": -4.0, "他说": -5.0, "1": -4.0, "12": -5.0, "r": -5.0, "u": -5.0}


@pytest.fixture
def tokenizer() -> UnigramTokenizer:
    names = ["<s>", "<pad>", "</s>", "<unk>", *PIECES]
    return UnigramTokenizer(
        ids={name: i for i, name in enumerate(names) if name in PIECES},
        scores=[0.0] * 4 + list(PIECES.values()),
        normalizer={
            "\n": " ",
            "\t": " ",
            "ﬁ": "fi",
            "①": "1",
            "②": "2",
            "\u200d": "",
            "㍿": "他说",
        },
        begin=(0, "<s>"),
        end=(2, "</s>"),
        unknown=(3, "<unk>"),
        longest_piece=4,
    )


def covered(tokenizer: UnigramTokenizer, text: str) -> list[tuple[str, str]]:
    """The inner tokens, each with the characters it covers."""
    tokens = tokenizer.encode(text)
    assert (tokens[0].piece, tokens[-1].piece) == ("<s>", "</s>")
    assert (tokens[0].start, tokens[0].end) == (0, 0)
    assert (tokens[-1].start, tokens[-1].end) == (len(text), len(text))
    return [(token.piece, text[token.start : token.end]) for token in tokens[1:-1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the", [("▁the", "the")]),
        ("他说他", [("▁", ""), ("他说", "他说"), ("他", "他")]),
        # The best sum wins, not the longest piece: −5 −5 against −6 for "ne".
        ("ne", [("▁", ""), ("ne", "ne")]),
        ("ﬁne", [("▁fi", "ﬁ"), ("ne", "ne")]),
        ("①②", [("▁", ""), ("12", "①②")]),
        ("\u200dthe\u200d", [("▁the", "the")]),
        ("  the \n\t the  ", [("▁the", "the"), ("▁the", "the")]),
        ("the ①", [("▁the", "the"), ("▁", ""), ("1", "①")]),
        ("㍿", [("▁", ""), ("他说", "㍿")]),
        ("他xyz他", [("▁", ""), ("他", "他"), ("<unk>", "xyz"), ("他", "他")]),
        ("x y", [("▁", ""), ("<unk>", "x"), ("▁", ""), ("<unk>", "y")]),
        ("<s>", [("▁", ""), ("<unk>", "<s>")]),
        ("𓀀", [("▁", ""), ("<unk>", "𓀀")]),
        ("", []),
        (" \n\t ", []),
        ("\u200d", []),
    ],
)
def test_pieces_and_their_characters(
    tokenizer: UnigramTokenizer, text: str, expected: list[tuple[str, str]]
):
    assert covered(tokenizer, text) == expected


def test_the_cut_has_the_best_sum_of_all(tokenizer: UnigramTokenizer):
    def best(characters: str) -> float:
        if not characters:
            return 0.0
        sums = [
            score + best(characters[len(piece) :])
            for piece, score in PIECES.items()
            if characters.startswith(piece)
        ]
        return max(sums, default=float("-inf"))

    for text in ("thefine", "fi the ne", "runfine", "the12他说"):
        tokens = tokenizer.encode(text)[1:-1]
        expected = best("▁" + text.replace(" ", "▁"))
        assert sum(PIECES[token.piece] for token in tokens) == pytest.approx(expected)


def test_spans_go_forward(tokenizer: UnigramTokenizer):
    tokens = tokenizer.encode("the ﬁ①② x㍿y\u200d  他")
    ends = [place for token in tokens for place in (token.start, token.end)]
    assert ends == sorted(ends)
