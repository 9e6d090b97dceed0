"""A map that ranks share, as a recording that one process opens."""

from pathlib import Path

from heedmap.attention_map import AttentionMap
from heedmap.axes import Axis
from heedmap.layers import Layer
from heedmap.seen import Seen


def save(
    weights: AttentionMap, folder: str | Path, *, axis: Axis | None = None, force: bool = False
) -> None:
    """Write a map as a recording of one layer, which `heedmap.open` opens on one process.

    Every rank writes a file with its own part, and the first one, when all are on the disk, what
    they are parts of; so nothing is gathered, and what is there is whole. It is a collective. Maps
    of `share` are written by their own ``seen.save(folder)``, in the same way.

    Args:
        weights: The map, or a selection of it.
        folder: Where; all ranks must see it. It must not exist yet.
        axis: What the positions are, to be kept with the map.
        force: Whether to replace a recording that is there, once the new one is written.

    Raises:
        UnsupportedError: for a map that was computed with, or whose mask is a function.
        InputError: for a folder that exists, cannot be written, or is not the same for all ranks.
        MissingExtraError: if safetensors is missing.
        RankError: if it is another rank that cannot go on.

    Cost: disk for this rank's part, O(positions / ranks). Who opens it joins query and key in
    memory.
    """
    layer = Layer("attention", "self", 0, 1, weights, door="heedmap.parallel")
    Seen(lambda: (layer,)).save(folder, axis=axis, force=force)
