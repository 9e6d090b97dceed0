"""The files of what was heard, and its picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedmap.look.folder import as_json, filled_at_once
from heedmap.look.folder import check_free as check_folder_free
from heedmap.plot import plot_speakers, save_figure
from heedmap.plot.figures import require_matplotlib
from heedmap.speech.captions import as_vtt
from heedmap.speech.kinds import KindName
from heedmap.speech.rttm import as_rttm
from heedmap.speech.summary import summary_of

if TYPE_CHECKING:
    from heedmap.speech.hearing import Heard

SUMMARY = "speakers.json"
RTTM = "speakers.rttm"
CAPTIONS = "speakers.vtt"
PICTURE = "speakers.png"
FILES = (PICTURE, RTTM, CAPTIONS, SUMMARY)
OURS = re.compile("|".join(map(re.escape, FILES)))

SHOWN_KINDS: tuple[KindName, ...] = ("speech", "music", "overlap")
"""What is drawn; background is where neither speech nor music is."""

SHOWN_TURNS = 3
"""Of so many turns, the least sure, the picture shows what they looked at."""

SHOWN_LOOKS = 2
SURE_MARGIN = 0.5
"""From this margin on a turn has its full colour."""


def check_free(folder: Path, *, force: bool) -> None:
    """Refuse a folder that cannot take the files, before anything is heard.

    Raises:
        InputError: if it is no folder, or holds such files and `force` is not given.
        MissingExtraError: if matplotlib or webvtt-py is not installed.
    """
    require_matplotlib()
    as_vtt(())
    check_folder_free(folder, force=force, ours=OURS)


def write(heard: Heard, folder: Path, *, force: bool) -> None:
    """Write picture, RTTM, WebVTT and JSON into a folder, all of them or none.

    Raises:
        InputError: for a folder that cannot be written, or that holds such files unless `force`.
        MissingExtraError: if an optional package is not installed.
    """
    with filled_at_once(folder, force=force, ours=OURS, summary=SUMMARY) as temporary:
        save_figure(plot(heard), temporary / PICTURE)
        texts = {
            RTTM: as_rttm({Path(heard.name).stem: heard.turns}),
            CAPTIONS: as_vtt(heard.turns, heard.words),
            SUMMARY: as_json(summary_of(heard)),
        }
        for name, text in texts.items():
            # A file may have a name that is no UTF-8, which is that of the recording then.
            (temporary / name).write_text(text, encoding="utf-8", errors="backslashreplace")


def plot(heard: Heard, ax: Any = None) -> Any:
    """Return axes with who speaks when; of the least sure turns also what they looked at."""
    places = {turn: place for place, turn in enumerate(heard.turns)}
    margins = [found.margin for found in heard.evidence]
    unsure = sorted((m, place) for place, m in enumerate(margins) if m is not None)[:SHOWN_TURNS]
    looks = []
    for _, place in unsure:
        found = heard.evidence[place]
        strongest = sorted((*found.earlier, *found.later), key=lambda look: -look.weight)
        looks += [
            (place, places[look.turn], min(look.weight, 1.0)) for look in strongest[:SHOWN_LOOKS]
        ]
    return plot_speakers(
        [(turn.start_seconds, turn.end_seconds, turn.speaker) for turn in heard.turns],
        duration_seconds=heard.duration_seconds,
        kinds={kind: heard.spans(kind) for kind in SHOWN_KINDS},
        looks=looks,
        sure=[1.0 if m is None else min(max(m / SURE_MARGIN, 0.0), 1.0) for m in margins],
        ax=ax,
    )
