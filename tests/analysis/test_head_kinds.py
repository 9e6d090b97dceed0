"""Names of heads: the same as those of a look, and on what number they rest."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from heedmap import AttentionMap, Axis, Causal, Sequence
from heedmap.analysis import RULES, HeadKind, head_kinds
from heedmap.errors import ArgumentError, DTypeError, ShapeError
from heedmap.look import look
from heedmap.media import Sound

from ..conftest import ForbidDense
from .conftest import factors, tokens

SIZE = 12


def one_hot(key_of: Callable[[int], int]) -> Tensor:
    weights = torch.zeros(SIZE, SIZE)
    for query in range(SIZE):
        weights[query, key_of(query) % SIZE] = 1
    return weights


HEADS = {
    "self": one_hot(lambda i: i),
    "previous": one_hot(lambda i: i - 1),
    "next": one_hot(lambda i: i + 1),
    "first": one_hot(lambda i: 0),
    "even": torch.full((SIZE, SIZE), 1 / SIZE),
    "far": one_hot(lambda i: i + 5),
}
NAMES = [
    "self",
    "previous position",
    "next position",
    "first position (sink)",
    "broad",
    "mixed",
]


def test_without_an_axis() -> None:
    kinds = head_kinds(torch.stack(list(HEADS.values())))
    assert [kind.name for kind in kinds] == NAMES
    assert [kind.figure for kind in kinds] == [
        "on_self",
        "on_previous",
        "on_next",
        "on_first",
        "evenness",
        None,
    ]
    assert [kind.value for kind in kinds] == pytest.approx([1, 1, 1, 1, 1, None])
    assert all(isinstance(kind, HeadKind) for kind in kinds)
    assert (str(kinds[0]), str(kinds[5])) == ("self (on_self 1.00)", "mixed")
    assert repr(kinds[3]) == "HeadKind(name='first position (sink)', figure='on_first', value=1.0)"
    assert kinds[5].figures.mean_distance > 5


def test_one_list_for_each_layer() -> None:
    heads = list(HEADS.values())
    layers = [torch.stack(heads[:2])[None], torch.stack(heads[2:])[None]]
    kinds = head_kinds(layers)
    assert [[kind.name for kind in layer] for layer in kinds] == [NAMES[:2], NAMES[2:]]
    assert [(kind.figures.layer, kind.figures.head) for kind in kinds[1]] == [
        (1, 0),
        (1, 1),
        (1, 2),
        (1, 3),
    ]


def test_tokens() -> None:
    words = ["<s>", "a", "b", "c", "d", "a", "b", "c", "d", "e", "f", "</s>"]
    special = one_hot(lambda i: 11 if i % 2 else 0)
    repeats = one_hot(lambda i: i + 4 if 1 <= i <= 4 else i - 4 if 5 <= i <= 8 else i * 7)
    kinds = head_kinds(torch.stack([HEADS["previous"], special, repeats]), tokens(words))
    assert [kind.name for kind in kinds] == [
        "previous token",
        "special tokens (sink)",
        "repeated word",
    ]
    assert kinds[2].figure == "repeats_beyond_distance"
    assert kinds[2].value == kinds[2].figures.repeats_beyond_distance


def timed(voices: Tensor) -> Sequence:
    axis = Axis.of_seconds((i / 2, (i + 1) / 2) for i in range(len(voices)))
    return Sequence(torch.eye(3)[voices], axis)


def test_sound_with_and_without_features() -> None:
    voices = torch.tensor([0] * 8 + [1] * 8 + [0] * 8)
    features = timed(voices)
    alike = (voices[:, None] == voices).float()
    near = torch.ones(24, 24).tril(1).triu(-1)
    weights = torch.stack([part / part.sum(1, keepdim=True) for part in (alike, near)])
    plain = head_kinds(weights, features.axis)
    assert [kind.name for kind in plain] == ["mixed", "nearby (within 1 s)"]
    assert plain[1].figure == "far"
    assert plain[1].value == 0
    known = head_kinds(weights, features.axis, features=features)
    assert known[0].name in ("same segment", "similar sound")
    assert known[0].figures.prefers_alike is not None
    silent = head_kinds(
        weights, features.axis, features=features, sounding=torch.zeros(24, dtype=torch.bool)
    )
    assert silent[0].figures.prefers_alike is None


def test_the_same_as_in_a_look_at_a_text() -> None:
    seen = look("to be or not to be", model="none")
    kinds = head_kinds([layer.weights for layer in seen.layers], seen.axis)
    assert tuple(tuple(kind.name for kind in layer) for layer in kinds) == seen.labels
    assert tuple(kind.figures for layer in kinds for kind in layer) == seen.heads


def test_the_same_as_in_a_look_at_a_sound() -> None:
    seconds = torch.arange(16_000 * 4) / 16_000
    pitch = torch.where((seconds // 1 % 2).bool(), 1200.0, 300.0)
    sound = Sound(torch.sin(2 * torch.pi * pitch * seconds), 16_000, "tones")
    seen = look(sound, model="none")
    kinds = head_kinds(
        [layer.weights for layer in seen.layers], seen.axis, features=sound.sequence()
    )
    assert tuple(tuple(kind.name for kind in layer) for layer in kinds) == seen.labels


def test_names_are_among_the_rules() -> None:
    for name in ("self", "repeated word", "first position (sink)", "broad", "mixed"):
        assert f"“{name}”" in RULES


def test_a_map_that_needs_a_gradient() -> None:
    query, key = (part.requires_grad_() for part in factors(2, 6, 4))
    (first, _) = head_kinds(AttentionMap.from_factors(query, key))
    assert isinstance(first.figures.on_self, float)


def test_nothing_of_all_pairs_is_made(forbid_dense: ForbidDense) -> None:
    size = 3000
    query, key = factors(1, size, 4)
    words = tokens([f"w{i}" for i in range(size)])
    features = Sequence(torch.randn(size, 3), Axis.of_seconds((i, i + 1) for i in range(size)))
    with forbid_dense(size * size):
        weights = AttentionMap.from_factors(query, key, mask=Causal())
        head_kinds(weights)
        head_kinds([weights], words)
        head_kinds(weights, features.axis, features=features)


MAPS = torch.full((1, 3, 3), 1 / 3)
SECONDS = Axis.of_seconds((i, i + 1) for i in range(3))
FEATURES = Sequence(torch.ones(3, 2), SECONDS)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("maps", "options", "error", "message"),
    [
        ([], {}, ArgumentError, "maps must be a sequence"),
        (
            torch.ones(3, 3),
            {},
            ShapeError,
            r"each of maps must be \[batch, heads, query, key\] or \[heads, query, key\]",
        ),
        (MAPS.expand(2, 1, 3, 3), {}, ShapeError, "one sample; got a batch of 2"),
        (
            torch.ones(1, 2, 3),
            {},
            ShapeError,
            r"maps must have as many queries as keys; got \[1, 2, 3\]",
        ),
        (torch.ones(1, 0, 0), {}, ShapeError, "at least one position"),
        (MAPS.bool(), {}, DTypeError, "floating-point"),
        (MAPS * torch.nan, {}, ArgumentError, "finite weights; got NaN in layer 0, head 0"),
        (MAPS, {"axis": Axis.of_positions(4)}, ShapeError, "each of 3 keys; got 4"),
        (MAPS, {"axis": Axis("token", ("a", "b", "c"))}, ArgumentError, "axis must have spans"),
        (
            MAPS,
            {"features": FEATURES},
            ArgumentError,
            "sound or film that axis has the times of; got audio for no axis",
        ),
        (
            MAPS,
            {"axis": Axis.of_positions(3), "features": FEATURES},
            ArgumentError,
            "got audio for position",
        ),
        (
            MAPS,
            {"axis": SECONDS, "sounding": torch.ones(3).bool()},
            ShapeError,
            "sounding must be one for each position of features; got 3 for no features",
        ),
        (
            MAPS,
            {"axis": SECONDS, "features": FEATURES, "sounding": torch.ones(2).bool()},
            ShapeError,
            "got 2 for 3 of them",
        ),
    ],
)
def test_bad_input(
    maps: Tensor, options: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        head_kinds(maps, **options)  # pyright: ignore
