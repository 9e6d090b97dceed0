"""The results as tables in Markdown, mean ± standard deviation over the seeds."""

from heedmap.lesson.claims.curves import Curves

HEADINGS = {
    "recall": "Accuracy, answer D steps back",
    "steps": "Operations between two positions D steps apart",
    "reach": "Share of the gradient that arrives D steps back, untrained",
    "learning": "Milliseconds for one pass forward and back over T positions",
    "reading": "Milliseconds for one pass forward over T positions",
    "sharpness_by_width": "Largest weight of a row over d",
    "loss": "Loss over batches",
    "gradient": "Length of the gradient of W_Q and W_K over batches",
    "sharpness": "Largest weight of the last position over batches",
}
MOST_COLUMNS = 11


def table_of(results: dict[str, Curves]) -> str:
    """Return all results as text.

    >>> print(table_of({"steps": Curves((1, 2), {"lstm": [[2.0], [3.0]]})}), end="")
    ## Operations between two positions D steps apart
    <BLANKLINE>
    | | 1 | 2 |
    |---|---|---|
    | lstm | 2 | 3 |
    """
    return "\n".join(_table(HEADINGS[name], curves) for name, curves in results.items())


def _table(heading: str, curves: Curves) -> str:
    step = -(-len(curves.x) // MOST_COLUMNS)
    chosen = range(0, len(curves.x), step)
    lines = [f"## {heading}", ""]
    sizes = curves.facts.get("sizes", {})
    if sizes:
        said = ", ".join(f"{name} {size['parameters']}" for name, size in sizes.items())
        lines += [f"Parameters: {said}. Chance: {curves.facts['chance']:g}.", ""]
    lines += ["| | " + " | ".join(f"{curves.x[at]:g}" for at in chosen) + " |"]
    lines += ["|---" * (len(chosen) + 1) + "|"]
    for name, line in curves.as_json()["series"].items():
        cells = (_cell(line["mean"][at], line["spread"][at]) for at in chosen)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(mean: float, spread: float) -> str:
    return f"{mean:.3g} ± {spread:.2g}" if spread else f"{mean:.3g}"
