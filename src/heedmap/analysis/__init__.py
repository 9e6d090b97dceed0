"""Questions about the maps of a model that are asked often, each in a function."""

from heedmap.analysis.head_kinds import head_kinds
from heedmap.analysis.kind_rules import RULES, HeadKind
from heedmap.analysis.received import received
from heedmap.analysis.rollout import rollout
from heedmap.analysis.value_weighted import value_norms, value_weighted
from heedmap.analysis.word_times import Word, word_times

__all__ = [
    "RULES",
    "HeadKind",
    "Word",
    "head_kinds",
    "received",
    "rollout",
    "value_norms",
    "value_weighted",
    "word_times",
]
