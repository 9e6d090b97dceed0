"""The numbers that the lesson begins with: those of ``torch.manual_seed(42)``.

`page/start_numbers.json` holds them, so that the page needs no PyTorch. It is written by::

    python -m heedmap.lesson.numbers > src/heedmap/lesson/page/start_numbers.json
"""

import json
from typing import Any

import torch

from heedmap.nn import SelfAttention

SEED = 42
FRAMES, FEATURES, ATTENTION_DIM = 5, 4, 8
VALID = ((1, 1, 1, 1, 1), (1, 1, 1, 0, 0))
"""Which frames of the two sounds are no padding."""

LONGEST = 32
"""How many frames the longest sequence of the page has."""

MORE_SEED = 43
"""Of the frames behind the first five, which the seed of the lesson does not give."""


def start_numbers() -> dict[str, Any]:
    """Return the numbers of the lesson, all float32, as plain values.

    Returns:
        ``sounds``, two sequences of five frames; ``valid``, which of their frames are no padding;
        ``w_q``, ``w_k`` and ``w_v``, so that Q = X · W_Q; ``more``, frames for longer sequences.

    Example:
        >>> numbers = start_numbers()
        >>> [round(number, 4) for number in numbers["sounds"][0][0]]
        [1.9269, 1.4873, 0.9007, -2.1055]
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        sounds = torch.randn(len(VALID), FRAMES, FEATURES)
        layer = SelfAttention(FEATURES, ATTENTION_DIM)
        torch.manual_seed(MORE_SEED)
        more = torch.randn(LONGEST - FRAMES, FEATURES)
    return {
        "schema": 1,
        "seed": SEED,
        "sounds": sounds.tolist(),
        "valid": [list(valid) for valid in VALID],
        "w_q": layer.w_q.weight.T.tolist(),
        "w_k": layer.w_k.weight.T.tolist(),
        "w_v": layer.w_v.weight.T.tolist(),
        "more": more.tolist(),
    }


if __name__ == "__main__":
    print(json.dumps(start_numbers(), separators=(",", ":")))
