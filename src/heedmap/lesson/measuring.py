"""``heedmap lesson measure``: every claim of the lesson, measured on this machine."""

import json
import platform
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from heedmap.lesson.claims.curves import Curves
from heedmap.lesson.claims.pace import measure_pace
from heedmap.lesson.claims.pictures import draw_pictures
from heedmap.lesson.claims.reach import measure_reach, measure_steps
from heedmap.lesson.claims.recall import measure_recall
from heedmap.lesson.claims.scale import measure_scale, measure_sharpness
from heedmap.lesson.claims.tables import table_of
from heedmap.look.folder import check_free, filled_at_once
from heedmap.plot.figures import require_matplotlib

Tell = Callable[[str], None]

SUMMARY = "measured.json"
OURS = re.compile(r"measured\.json|table\.md|(recall|reach|pace|scale)\.png")
SEEDS = 5


def measure(
    folder: Path,
    *,
    force: bool = False,
    progress: Tell = lambda _: None,
    results: Callable[[Tell], dict[str, Curves]] | None = None,
) -> str:
    """Return the table of all results, and write it with pictures and numbers into a folder.

    Args:
        folder: Where they go; it appears whole.
        force: Whether to replace the results of an earlier measurement there.
        progress: Called with a line of text as it goes on.
        results: What measures; all of it unless given.

    Raises:
        InputError: for a folder that cannot be used.
        MissingExtraError: if matplotlib is not installed.

    Cost: some minutes on one thread.
    """
    check_free(folder, force=force, ours=OURS)
    require_matplotlib()
    begin = time.process_time()
    found = (results or measure_all)(progress)
    seconds = time.process_time() - begin
    table = table_of(found)
    with filled_at_once(folder, force=force, ours=OURS, summary=SUMMARY) as temporary:
        draw_pictures(found, temporary)
        (temporary / "table.md").write_text(table, encoding="utf-8")
        (temporary / SUMMARY).write_text(json.dumps(as_json(found, seconds)), encoding="utf-8")
    progress(f"Measured in {seconds:.0f} s of processor time.")
    progress(f"The pictures, the table and the numbers are in {folder}.")
    return table


def measure_all(tell: Tell) -> dict[str, Curves]:
    """Return every result by its name."""
    recall = measure_recall(SEEDS, tell)
    reach = measure_reach(SEEDS, tell)
    learning = measure_pace(tell, learning=True)
    reading = measure_pace(tell, learning=False)
    return {
        "recall": recall,
        "steps": measure_steps(),
        "reach": reach,
        "learning": learning,
        "reading": reading,
        "sharpness_by_width": measure_sharpness(SEEDS),
        **measure_scale(SEEDS, tell),
    }


def as_json(results: dict[str, Curves], seconds: float) -> dict[str, Any]:
    """Return the results as the page of the lesson reads them.

    Args:
        results: Every result by its name.
        seconds: How much processor time they took.
    """
    return {
        "schema": 1,
        "seeds": SEEDS,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "seconds": round(seconds),
        "results": {name: curves.as_json() for name, curves in results.items()},
    }
