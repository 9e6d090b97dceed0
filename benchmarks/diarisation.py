"""How well `heedmap hear` tells who speaks when: `python -m benchmarks.diarisation [PART …]`.

Parts: `mixtures` (error by number of speakers and overlap, and over the threshold, for cosine
clustering, identity attention and learned attention), `kinds` (speech, music and overlap with music
behind them), `recordings` (real ones, scored with what was chosen without them). All if none is
named. Written are `benchmarks/diarisation.json`, `diarisation.md` and `docs/hear-threshold.png`;
parts that do not run stay as they were. `--keep FOLDER` keeps what was heard, for another run.

Thresholds are chosen by conversations of other voices with other seeds: for each of the three the
middle of the thresholds whose error is within a tenth of a point of its best.
"""

import argparse
import json
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.diarisation_report import tables, threshold_picture
from benchmarks.mixtures import HeardMixture, development, heard, reported, with_music
from benchmarks.recordings import Recording, recordings
from heedmap.speech.assigning import turns_of
from heedmap.speech.linking import LEARNED_THRESHOLD, TEMPERATURE, THRESHOLD, Linked, link
from heedmap.speech.listening import Listened, listen
from heedmap.speech.projections import Projections
from heedmap.speech.scoring import COLLARS_SECONDS, DiarizationScore, score, score_turns
from heedmap.speech.turns import Turn, speakers_of, spoken_spans

HERE = Path(__file__).parent
JSON, TABLES = HERE / "diarisation.json", HERE / "diarisation.md"
PICTURE = HERE.parent / "docs" / "hear-threshold.png"
SHIPPED = {"identity attention": THRESHOLD, "learned attention": LEARNED_THRESHOLD}
THRESHOLDS = sorted({round(0.05 * step, 2) for step in range(2, 21)} | set(SHIPPED.values()))
TOLERATED = 0.001
DRAWS = 10_000
PARTS = ("mixtures", "kinds", "recordings")

System = dict[str, Any]
"""What `link` is given beside voices and threshold."""


def systems(projections: Path | None) -> dict[str, System]:
    """Return the three ways of linking, by name; learned attention only where there is one."""
    made: dict[str, System] = {
        # So sharp that each voice looks at itself alone: what is clustered are the embeddings.
        "cosine clustering": {"temperature": 1e-5},
        "identity attention": {},
    }
    if projections is not None:
        made["learned attention"] = {"projections": Projections.load(projections)}
    return made


@dataclass(frozen=True)
class Outcome:
    """How one conversation was done by one system at one threshold.

    Attributes:
        score: At collar 0.
        tolerant: At a collar of 0.25 s on each side.
        found_speakers: How many were found.
    """

    score: DiarizationScore
    tolerant: DiarizationScore
    found_speakers: int


Sweep = dict[float, list[Outcome]]
"""For each threshold an outcome of each conversation."""


def sweep(mixtures: Sequence[HeardMixture], system: System) -> Sweep:
    done: Sweep = {threshold: [] for threshold in THRESHOLDS}
    for mixture in mixtures:
        known: dict[bytes, Outcome] = {}
        voices = mixture.heard.voices
        for threshold in THRESHOLDS:
            linked = link(voices, threshold=threshold, **system)
            links = linked.cluster.numpy().tobytes()
            if links not in known:
                known[links] = _outcome(mixture, linked)
            done[threshold].append(known[links])
    return done


def _outcome(mixture: HeardMixture, linked: Linked) -> Outcome:
    activity = mixture.heard.activity
    turns = turns_of(activity, mixture.heard.voices, linked).turns
    whole = [(0.0, activity.duration_seconds)]
    exact, tolerant = (
        score_turns(mixture.truth.turns, turns, whole, collar) for collar in COLLARS_SECONDS
    )
    return Outcome(exact, tolerant, len(speakers_of(turns)))


def pooled(outcomes: Sequence[Outcome]) -> float:
    total = sum((o.score for o in outcomes), DiarizationScore(0.0, 0.0, 0.0, 0.0))
    return total.error_seconds / total.total_seconds


def chosen_threshold(done: Sweep) -> float:
    """Return the middle of the thresholds that are as good as the best one."""
    errors = {threshold: pooled(outcomes) for threshold, outcomes in done.items()}
    best = min(errors.values())
    good = [threshold for threshold, error in errors.items() if error <= best + TOLERATED]
    return statistics.median_low(good)


def measure_mixtures(keep: Path | None, ways: Mapping[str, System]) -> dict[str, Any]:
    """Return errors by speakers and overlap and by threshold, for each way of linking."""
    others, mixtures = heard(development(), keep), heard(reported(), keep)
    found: dict[str, Any] = {"temperature": TEMPERATURE, "shipped": SHIPPED}
    for name, system in ways.items():
        print(f"Linking: {name} …", flush=True)
        chosen_by, done = sweep(others, system), sweep(mixtures, system)
        threshold = chosen_threshold(chosen_by)
        found[name] = {
            "threshold": threshold,
            "development": _curve(chosen_by),
            "reported": _curve(done),
            "conversations": [
                _row(mixture, outcome)
                for mixture, outcome in zip(mixtures, done[threshold], strict=True)
            ],
        }
    # What is wrong still when all voices are linked as they should be.
    limits = [_outcome(m, by_truth(m.heard, m.truth.turns)) for m in mixtures]
    found["voices linked by the truth"] = {
        "conversations": [_row(m, o) for m, o in zip(mixtures, limits, strict=True)]
    }
    return found


def _curve(done: Sweep) -> list[dict[str, float]]:
    return [
        {"threshold": threshold, "error_rate": pooled(outcomes)}
        for threshold, outcomes in done.items()
    ]


def _row(mixture: HeardMixture, outcome: Outcome) -> dict[str, Any]:
    return {
        "voices": list(mixture.mixture.voices),
        "overlap": mixture.mixture.overlap,
        "seed": mixture.mixture.seed,
        "found_speakers": outcome.found_speakers,
        **outcome.score.summary(),
        "tolerant": outcome.tolerant.summary(),
    }


def by_truth(found: Listened, turns: Sequence[Turn]) -> Linked:
    """Return links that give each voice to the true speaker whom it shares most time with.

    Even two of one window, where the segmentation took one person for two. A voice that shares no
    time with anybody true stays, as a speaker of its own: it is a false alarm.
    """
    activity, voices = found.activity, found.voices
    names = speakers_of(turns)
    true = torch.zeros(activity.frames + activity.active.shape[1], len(names) + 1)
    true[:, -1] = 1e-3
    for turn in turns:
        first, last = (
            max(0, round((seconds - activity.first_frame_seconds) / activity.frame_seconds))
            for seconds in (turn.start_seconds, turn.end_seconds)
        )
        true[first:last, names.index(turn.speaker)] = 1
    cluster = torch.zeros(len(voices.window), dtype=torch.long)
    for voice, (window, local) in enumerate(
        zip(voices.window.tolist(), voices.local.tolist(), strict=True)
    ):
        start = int(activity.start_frames[window])
        said = activity.active[window, :, local].float()
        cluster[voice] = (said @ true[start : start + len(said)]).argmax()
    linked = link(voices, speakers=1)
    return replace(linked, cluster=cluster, similarity=torch.zeros(len(cluster), len(names) + 1))


def measure_kinds(keep: Path | None) -> list[dict[str, Any]]:
    """Return hits and errors in frames of 20 ms, by level of the music and kind."""
    counts: dict[tuple[float, str], dict[str, int]] = {}
    for mixture in heard(with_music(), keep):
        kinds = mixture.heard.kinds
        truth = {
            "speech": spoken_spans(mixture.truth.turns),
            "music": mixture.truth.music_spans,
            "overlap": spoken_spans(mixture.truth.turns, 2),
        }
        for kind, spans in truth.items():
            said = getattr(kinds, kind)
            middles = (torch.arange(len(said), dtype=torch.float64) + 0.5) * kinds.frame_seconds
            true = torch.zeros_like(said)
            for start, end in spans:
                true |= (middles >= start) & (middles < end)
            level = mixture.mixture.music_db or 0.0
            row = counts.setdefault((level, kind), {"hits": 0, "false": 0, "missed": 0})
            row["hits"] += int((said & true).sum())
            row["false"] += int((said & ~true).sum())
            row["missed"] += int((true & ~said).sum())
    return [
        {"music_db": level, "kind": kind, **row, "f1": _f1(**row)}
        for (level, kind), row in counts.items()
    ]


def _f1(hits: int, false: int, missed: int) -> float:
    return 2 * hits / max(1, 2 * hits + false + missed)


def measure_recordings(
    ways: Mapping[str, System], thresholds: Mapping[str, float]
) -> dict[str, Any]:
    """Return the scores of real recordings, and what limits them."""
    files = recordings()
    found = {file.name: listen(file.path) for file in files}
    limit = {f.name: _turns(found[f.name], by_truth(found[f.name], f.turns)) for f in files}
    perfect = {f.name: _as_one_speaker(f.turns) for f in files}
    lines = {
        name: {
            f.name: _turns(found[f.name], link(found[f.name].voices, threshold=value, **ways[name]))
            for f in files
        }
        for name, value in thresholds.items()
    }
    lines["as shipped"] = {f.name: _turns(found[f.name], link(found[f.name].voices)) for f in files}
    lines |= {"voices linked by the truth": limit, "one speaker, perfect detector": perfect}
    scores = {name: _scored(files, turns) for name, turns in lines.items()}
    return {"lines": scores, **intervals(scores)}


def intervals(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return in what range chance alone puts the error, and its difference to each other line."""
    shipped = [_error(row) for row in scores["as shipped"]["files"]]
    differences = {}
    for name, line in scores.items():
        others = [_error(row) for row in line["files"]]
        differences[name] = interval(
            [
                (ours - theirs, total)
                for (ours, total), (theirs, _) in zip(shipped, others, strict=True)
            ]
        )
    del differences["as shipped"]
    return {"interval": interval(shipped), "differences": differences}


def _turns(found: Listened, linked: Linked) -> tuple[Turn, ...]:
    return turns_of(found.activity, found.voices, linked).turns


def _as_one_speaker(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    return tuple(Turn(start, end, "one") for start, end in spoken_spans(turns))


def _scored(files: list[Recording], turns: Mapping[str, Sequence[Turn]]) -> dict[str, Any]:
    return score(
        {file.name: file.turns for file in files},
        turns,
        uem={file.name: file.spans for file in files},
        collars_seconds=COLLARS_SECONDS,
    ).summary()


def _error(row: Mapping[str, Any]) -> tuple[float, float]:
    at_once = row["scores"][0]
    return at_once["error_seconds"], at_once["total_seconds"]


def interval(errors: list[tuple[float, float]]) -> dict[str, float]:
    """Return the pooled rate, and where it lies in 95 of 100 draws of as many files."""
    generator = random.Random(0)
    draws = sorted(_rate(generator.choices(errors, k=len(errors))) for _ in range(DRAWS))
    low, high = draws[round(0.025 * DRAWS)], draws[round(0.975 * DRAWS)]
    return {"rate": _rate(errors), "low": low, "high": high}


def _rate(errors: list[tuple[float, float]]) -> float:
    return sum(error for error, _ in errors) / sum(total for _, total in errors)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "all"], default="all", metavar="PART")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--projections", type=Path, metavar="FILE", help="of heedmap train hear")
    options = parser.parse_args()
    parts = PARTS if "all" in options.parts else options.parts
    ways = systems(options.projections)
    found = json.loads(JSON.read_text("utf-8")) if JSON.exists() else {}
    if "mixtures" in parts:
        found["mixtures"] = measure_mixtures(options.keep, ways)
    if "kinds" in parts:
        found["kinds"] = measure_kinds(options.keep)
    if "recordings" in parts:
        thresholds = {name: found["mixtures"][name]["threshold"] for name in ways}
        found["recordings"] = measure_recordings(ways, thresholds)
    JSON.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    TABLES.write_text(tables(found), "utf-8")
    print(tables(found))
    if "mixtures" in parts:
        threshold_picture(found["mixtures"], PICTURE)


if __name__ == "__main__":
    main()
