"""A look in words, for the terminal."""

from collections import Counter

from heedmap.analysis.kind_rules import UNITS
from heedmap.look.looking import Look
from heedmap.look.table import Row
from heedmap.plot.labels import in_line

MOST_LINES = 40
MOST_LETTERS = 60


def report(seen: Look) -> str:
    """Return what a person reads after a look: what was seen, the table, and the notes."""
    parts = [_what(seen), _heads(seen)]
    if seen.kind == "video":
        parts.append(_shots(seen))
    parts.append(_table(seen))
    if seen.notes:
        parts.append("\n".join(f"note: {note}" for note in seen.notes))
    if seen.folder is not None:
        parts.append(f"pictures and summary.json are in {seen.folder}")
    if seen.recording is not None:
        parts.append(f"heedmap.open opens the recording in {seen.recording}")
    return "\n\n".join(parts) + "\n"


def _what(seen: Look) -> str:
    layers, heads, count = len(seen.layers), seen.layers[0].weights.shape[0], len(seen.axis)
    model = (
        "no model, attention over plain features"
        if seen.model == "none"
        else f"{seen.model}, {layers} layers × {heads} heads"
    )
    name = seen.name
    if seen.kind == "text" and name == "the text":
        words = " ".join(seen.axis.text.split())
        name = f"“{words}”" if len(words) <= MOST_LETTERS else f"“{words[:MOST_LETTERS]}…”"
    unit = UNITS[seen.axis.kind] + "s" * (count != 1)
    return f"{in_line(name)}: {seen.kind}, {count} {unit}; {model}"


def _heads(seen: Look) -> str:
    counts = Counter(label for row in seen.labels for label in row).most_common()
    chosen = f"layer {seen.chosen.layer}, head {seen.chosen.head}: {seen.label}"
    if sum(count for _, count in counts) == 1:
        return f"what it does: {seen.label}"
    named = ", ".join(f"{label} {count}" for label, count in counts)
    return f"heads: {named}\nshown: {chosen}\n       ({seen.chosen.reason})"


def _shots(seen: Look) -> str:
    cuts = [f"{start:.2f}" for start, _ in seen.segments[1:]]
    return f"cuts at {', '.join(cuts)} s" if cuts else "no cuts"


def _table(seen: Look) -> str:
    if seen.question is not None:
        row = seen.rows[0]
        places = ", ".join(f"@{i}" for i in row.positions)
        return f"{in_line(seen.question)} ({in_line(row.text)}, {places}) looks at\n{_keys(row)}"
    lines = [_line(row) for row in seen.rows[:MOST_LINES]]
    if left := len(seen.rows) - len(lines):
        lines.append(f"… and {left} more, all in summary.json")
    what = "each token and what it looks at most" if seen.kind == "text" else "some moments"
    return "\n".join([f"{what}:", *lines])


def _keys(row: Row) -> str:
    return "\n".join(
        f"  {key.weight:6.1%}  @{key.position:<5} {in_line(key.text)}{_remark(key.remark)}"
        for key in row.keys
    )


def _line(row: Row) -> str:
    looked_at = "; ".join(
        f"{key.weight:.1%} {in_line(key.text)}{_remark(key.remark)}" for key in row.keys
    )
    return f"  @{row.positions[0]:<5} {in_line(row.text)} → {looked_at}"


def _remark(remark: str) -> str:
    return f" ({remark})" if remark else ""
