"""A sentence, and which of its words look at which, in a model that was really trained.

`page/sentences.json` holds one for each language, so that the page has them without a model. It is
written by::

    python -m heedmap.lesson.sentences > src/heedmap/lesson/page/sentences.json
"""

import json
import sys
from collections import Counter
from typing import Any

from heedmap.errors import InputError
from heedmap.explore.inputs import scene_of_run
from heedmap.explore.scene import Scene
from heedmap.look.running import Progress, Run, run
from heedmap.media import Text

FIRST = {"zh": "他说他今天不能来", "en": "The dog chased the other dog around the house"}
"""The sentence that each language begins with."""

MAX_CHARACTERS = 120
DIGITS = 6
EVEN = "broad"
"""The kind of head whose clearest example is the most even one."""


def look_at(text: str, progress: Progress = lambda _: None) -> tuple[dict[str, Any], Scene]:
    """Return which words of a sentence look at which, and the scene of all heads.

    Args:
        text: The sentence.
        progress: Called with a line of text before something slow begins.

    Returns:
        The sentence as plain values: its tokens, how many heads do what, and of each kind the
        clearest head, that which is shown first before the others.

    Raises:
        InputError: for a sentence that is empty or too long.
        FetchError: if the model cannot be fetched.
        MissingExtraError: if transformers is not installed.
    """
    text = " ".join(text.split())
    if not 0 < len(text) <= MAX_CHARACTERS:
        raise InputError(
            f"sentence must have 1 to {MAX_CHARACTERS} characters; got {len(text)}. Take one "
            "sentence at a time."
        )
    made = run(Text.of(text), model=None, start_seconds=0.0, progress=progress)
    scene = scene_of_run(made, None, progress=progress)
    return _described(made, scene), scene


def _described(made: Run, scene: Scene) -> dict[str, Any]:
    axis = made.axis
    shown = _clearest(scene)
    return {
        "text": axis.text,
        "model": made.model,
        "tokens": [
            {"text": label, "start": int(start), "stop": int(stop)}
            for label, (start, stop) in zip(axis.labels, axis.spans, strict=True)
        ],
        "kinds": dict(Counter(kind for layer in scene.layers for kind in layer.labels)),
        "heads": [
            {
                "layer": layer,
                "head": head,
                "kind": scene.layers[layer].labels[head],
                "weights": [
                    [round(weight, DIGITS) for weight in row]
                    for row in scene.layers[layer].weights[head].to_dense().tolist()
                ],
            }
            for layer, head in shown
        ],
    }


def _clearest(scene: Scene) -> list[tuple[int, int]]:
    """Return the chosen head, and of every other kind the one that shares its weight least."""
    chosen = scene.chosen
    best: dict[str, tuple[float, tuple[int, int]]] = {}
    for number, layer in enumerate(scene.layers):
        entropies = layer.weights.entropy().mean(-1).tolist()
        for head, (kind, entropy) in enumerate(zip(layer.labels, entropies, strict=True)):
            spread = -entropy if kind == EVEN else entropy
            best[kind] = min(best.get(kind, (spread, (number, head))), (spread, (number, head)))
    best.pop(scene.layers[chosen[0]].labels[chosen[1]], None)
    return [chosen, *(place for _, place in sorted(best.values()))]


def first_sentences() -> dict[str, Any]:
    """Return the sentences that the page begins with, by language."""
    return {language: look_at(text)[0] for language, text in FIRST.items()}


if __name__ == "__main__":
    json.dump(first_sentences(), sys.stdout, ensure_ascii=False, separators=(",", ":"))
