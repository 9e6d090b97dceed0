"""A plain name for what a head does, by rules on its figures."""

from dataclasses import dataclass, field

from heedmap.analysis.figures import HeadFigures
from heedmap.axes import Kind

MOST = 0.5
"""A share of more than half is more than everything else together."""

CLEAR_EXCESS = 0.15
"""What related keys get beyond their distance. Over a dozen texts, heads that follow repeats have
0.15 to 0.45 and all others less than 0.1."""

SOME_FAR = 1 / 3
"""A head that gives less to moments more than a second away is about what is near."""

CLEARLY_ALIKE = 2 / 3
"""Two comparisons of three won by what is alike; one of two would be no preference."""

NEARLY_EVEN = 0.9
"""Entropy as a share of the largest possible, above which no key stands out much."""

FIRST = "first position (sink)"
SPECIAL = "special tokens (sink)"
REPEATED = "repeated word"
SAME_SEGMENT = "same segment"
SIMILAR: dict[Kind, str] = {"audio": "similar sound", "video": "similar picture"}
NEAR = "nearby (within 1 s)"
BROAD = "broad"
MIXED = "mixed"
UNITS: dict[Kind, str] = {
    "position": "position",
    "token": "token",
    "audio": "moment",
    "video": "frame",
}

RULES = (
    f"The first that holds: “self”, “previous …”, “next …” if it gets more than {MOST:g} of the "
    f"weight; “{REPEATED}” if repeats of a token get at least {CLEAR_EXCESS:g} more than other "
    f"keys at the same distances; “{FIRST}” and “{SPECIAL}” if they get more than {MOST:g}; "
    f"“{SAME_SEGMENT}” if a moment's own segment gets more than {MOST:g}, and at least "
    f"{CLEAR_EXCESS:g} more than other segments at the same distances; “similar sound” or "
    f"“similar picture” if at least {SOME_FAR:.2g} goes further than a second, and there the third "
    "that is most alike by plain features gets more than the third that is least in at least "
    f"{CLEARLY_ALIKE:.2g} of comparisons; “{BROAD}” if the entropy is more than {NEARLY_EVEN:g} "
    f"of the largest possible; “{NEAR}” if what is at most a second away gets more than {MOST:g}; "
    f"else “{MIXED}”."
)


@dataclass(frozen=True)
class HeadKind:
    """What a head does, in words, and the number that this rests on.

    Attributes:
        name: The name by `RULES`, such as “previous token” or “first position (sink)”.
        figure: Which of the figures made the rule hold; None for “mixed”, where none did.
        value: That figure.
        figures: All figures of the head.
    """

    name: str
    figure: str | None
    value: float | None
    figures: HeadFigures = field(repr=False)

    def __str__(self) -> str:
        """Return the name and the number: ``previous token (on_previous 0.93)``."""
        return self.name if self.value is None else f"{self.name} ({self.figure} {self.value:.2f})"


def kind_of(figures: HeadFigures, kind: Kind) -> HeadKind:
    """Return what a head does; `RULES` says how it is found.

    Args:
        figures: What was measured of the head.
        kind: What the positions are, as their axis says.
    """
    checks = (
        ("self", "on_self", figures.on_self > MOST),
        (f"previous {UNITS[kind]}", "on_previous", figures.on_previous > MOST),
        (f"next {UNITS[kind]}", "on_next", figures.on_next > MOST),
        (
            REPEATED,
            "repeats_beyond_distance",
            _at_least(figures.repeats_beyond_distance, CLEAR_EXCESS),
        ),
        (FIRST, "on_first", figures.on_first > MOST),
        (SPECIAL, "on_special", _at_least(figures.on_special, MOST)),
        (SAME_SEGMENT, "on_own_segment", _follows_segments(figures)),
        (SIMILAR.get(kind, ""), "prefers_alike", is_far_and_alike(figures)),
        (BROAD, "evenness", figures.evenness > NEARLY_EVEN),
        (NEAR, "far", figures.far is not None and figures.far < 1 - MOST),
    )
    for name, figure, holds in checks:
        if holds:
            return HeadKind(name, figure, getattr(figures, figure), figures)
    return HeadKind(MIXED, None, None, figures)


def label_of(figures: HeadFigures, kind: Kind) -> str:
    """Return the name alone."""
    return kind_of(figures, kind).name


def is_far_and_alike(figures: HeadFigures) -> bool:
    """Return whether a head prefers what is alike, among what is far away in time."""
    return _at_least(figures.far, SOME_FAR) and _at_least(figures.prefers_alike, CLEARLY_ALIKE)


def _follows_segments(figures: HeadFigures) -> bool:
    return _at_least(figures.on_own_segment, MOST) and _at_least(
        figures.own_segment_beyond_distance, CLEAR_EXCESS
    )


def _at_least(figure: float | None, least: float) -> bool:
    return figure is not None and figure >= least
