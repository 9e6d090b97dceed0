"""What `benchmarks.diarisation` found, as tables in Markdown and as a picture."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

WITHIN = 0.01
"""Thresholds are said to be as good as the best one where the error is at most a point larger."""

LINKED = ("cosine clustering", "identity attention", "learned attention")
LIMIT = "voices linked by the truth"
COLOURS = ("#888888", "#1f6fb4", "#d1495b")


def tables(found: Mapping[str, Any]) -> str:
    """Return all that was found, a section for each part."""
    parts = []
    if "mixtures" in found:
        parts += [_mixtures(found["mixtures"]), _tolerance(found["mixtures"])]
    if "kinds" in found:
        parts.append(_kinds(found["kinds"]))
    if "recordings" in found:
        parts += [_recordings(found["recordings"]), _lines(found["recordings"])]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], named_columns: int = 1) -> str:
    aligned = ["---"] * named_columns + ["---:"] * (len(head) - named_columns)
    lines = [head, aligned, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _percent(share: float | None, decimals: int = 1) -> str:
    return "–" if share is None else f"{100 * share:.{decimals}f}"


def _mixtures(found: Mapping[str, Any]) -> str:
    names = [name for name in (*LINKED, LIMIT) if name in found]
    cells = sorted(
        {(len(row["voices"]), row["overlap"]) for row in found[names[0]]["conversations"]}
    )
    rows = [
        (
            str(speakers),
            f"{100 * overlap:.0f} %",
            *(
                _spread(
                    [
                        row
                        for row in found[name]["conversations"]
                        if (len(row["voices"]), row["overlap"]) == (speakers, overlap)
                    ]
                )
                for name in names
            ),
        )
        for speakers, overlap in cells
    ]
    pooled = ("all", "", *(_pooled(found[name]["conversations"]) for name in names))
    tolerant = (
        "all",
        "collar 0.25 s each side",
        *(
            _percent(_rate([row["tolerant"] for row in found[name]["conversations"]]))
            for name in names
        ),
    )
    right = ("right number", "", *(_right(found[name]["conversations"]) for name in names))
    return (
        "Error rate in % of conversations of acted voices, by number of speakers and overlap; "
        "three seeds pooled, in brackets each. All together: error = missed + false alarm + "
        "confusion.\n\n"
        + _table(("speakers", "overlap", *names), [*rows, pooled, tolerant, right], named_columns=2)
    )


def _rate(rows: Sequence[Mapping[str, Any]]) -> float:
    return sum(row["error_seconds"] for row in rows) / sum(row["total_seconds"] for row in rows)


def _spread(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"{_percent(_rate(rows))} ({', '.join(_percent(_rate([row])) for row in rows)})"


def _pooled(rows: Sequence[Mapping[str, Any]]) -> str:
    total = sum(row["total_seconds"] for row in rows)
    parts = [
        _percent(sum(row[f"{part}_seconds"] for row in rows) / total)
        for part in ("missed", "false_alarm", "confusion")
    ]
    return f"**{_percent(_rate(rows))}** = {' + '.join(parts)}"


def _right(rows: Sequence[Mapping[str, Any]]) -> str:
    right = sum(row["found_speakers"] == len(row["voices"]) for row in rows)
    return f"{right} of {len(rows)}"


def _tolerance(found: Mapping[str, Any]) -> str:
    rows = []
    for name in LINKED:
        if name not in found:
            continue
        curve = {p["threshold"]: p["error_rate"] for p in found[name]["reported"]}
        best = min(curve.values())
        good = [threshold for threshold, error in curve.items() if error <= best + WITHIN]
        shipped = found["shipped"].get(name)
        rows.append(
            (
                name,
                f"{found[name]['threshold']:.2f}",
                _percent(curve[found[name]["threshold"]]),
                "–" if shipped is None else f"{shipped:g}",
                "–" if shipped is None else _percent(curve[shipped]),
                _percent(best),
                f"{min(good):.2f} to {max(good):.2f}",
            )
        )
    return (
        "Thresholds and the errors of the reported conversations, in %. The last column: from "
        "where to where the error is at most a point above its best.\n\n"
        + _table(
            ("", "chosen", "error there", "shipped", "error there", "best error", "as good"), rows
        )
    )


def _kinds(found: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"{row['music_db']:g} dB",
            row["kind"],
            _percent(row["f1"]),
            _percent(row["hits"] / max(1, row["hits"] + row["false"])),
            _percent(row["hits"] / max(1, row["hits"] + row["missed"])),
        )
        for row in found
    ]
    return "Frames of 20 ms, %; speech is so much louder than the music.\n\n" + _table(
        ("speech over music", "", "F1", "precision", "recall"), rows, named_columns=2
    )


def _recordings(found: Mapping[str, Any]) -> str:
    shipped, limit = found["lines"]["as shipped"], found["lines"][LIMIT]
    rows = [
        (file["file"], f"{file['found_speakers']} / {file['speakers']}", *_cells(file), _at(best))
        for file, best in zip(shipped["files"], limit["files"], strict=True)
    ]
    pooled = shipped["pooled"]
    right = pooled["files_with_right_number_of_speakers"]
    rows.append(
        (
            "pooled",
            f"right in {right} of {len(shipped['files'])}",
            *_cells(pooled),
            _at(limit["pooled"]),
        )
    )
    low, high = (_percent(found["interval"][end]) for end in ("low", "high"))
    return (
        "Real recordings, with the settings as shipped; % of the speech of the reference.\n\n"
        + _table(
            (
                "file",
                "speakers found / true",
                "speech, s",
                "missed",
                "false alarm",
                "confusion",
                "error, collar 0",
                "error, collar 0.25 s each side",
                f"error, {LIMIT}",
            ),
            rows,
        )
        + f"\nDrawing {len(shipped['files'])} files again and again, the pooled error lies between "
        f"{low} and {high} % in 95 of 100 draws.\n"
    )


def _cells(row: Mapping[str, Any]) -> list[str]:
    exact, tolerant = row["scores"][:2]
    return [
        f"{exact['total_seconds']:.1f}",
        *(_percent(exact[f"{part}_rate"]) for part in ("missed", "false_alarm", "confusion")),
        _percent(exact["error_rate"]),
        _percent(tolerant["error_rate"]),
    ]


def _at(row: Mapping[str, Any]) -> str:
    return _percent(row["scores"][0]["error_rate"])


def _lines(found: Mapping[str, Any]) -> str:
    rows = []
    for name, line in found["lines"].items():
        sample = next(file for file in line["files"] if file["file"] == "sample")
        difference = found["differences"].get(name)
        ours = "–" if difference is None else _points(difference)
        rows.append((name, _at(sample), *_cells(line["pooled"])[1:], ours))
    return "The same recordings, pooled, line by line.\n\n" + _table(
        (
            "",
            "sample",
            "missed",
            "false alarm",
            "confusion",
            "error, collar 0",
            "error, collar 0.25 s each side",
            "as shipped minus this, points (95 of 100 draws of files)",
        ),
        rows,
    )


def _points(difference: Mapping[str, float]) -> str:
    rate, low, high = (100 * difference[name] for name in ("rate", "low", "high"))
    return f"{rate:+.1f} ({low:+.1f} to {high:+.1f})"


def threshold_picture(found: Mapping[str, Any], path: Path) -> None:
    """Draw the error over the threshold, for each way of linking."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained", dpi=150)
    axes = figure.subplots()
    for name, colour in zip(LINKED, COLOURS, strict=True):
        if name not in found:
            continue
        for part, style in (("reported", "-"), ("development", ":")):
            curve = found[name][part]
            axes.plot(
                [point["threshold"] for point in curve],
                [100 * point["error_rate"] for point in curve],
                style,
                color=colour,
                label=name if part == "reported" else None,
            )
        chosen = next(
            p for p in found[name]["reported"] if p["threshold"] == found[name]["threshold"]
        )
        axes.plot(chosen["threshold"], 100 * chosen["error_rate"], "o", color=colour)
    axes.plot([], [], ":", color="black", label="the voices that chose the thresholds")
    axes.set_xlabel("threshold: cosine distance above which voices are not joined")
    axes.set_ylabel("diarisation error rate, %")
    axes.set_ylim(0, 60)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path)
