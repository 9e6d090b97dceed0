"""The live map as one file that opens without a program and without a network.

It holds the page and what fits: the map to begin with in small blocks, the others in larger ones,
the strongest keys and queries of the first, the axes, and the text, sound or film itself if there
is room for it.
"""

import gzip
import json
import os
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from heedmap.axes import Axis
from heedmap.errors import InputError, UnsupportedError
from heedmap.explore.explorer import Explorer
from heedmap.explore.packing import Pack
from heedmap.explore.page_files import page_files
from heedmap.explore.page_modules import linked, style
from heedmap.explore.rasters import Raster, raster, side_within
from heedmap.explore.scene import Media, Scene, describe_axis
from heedmap.explore.small_font import font_style

MOST_BYTES = 5_000_000
"""How large a file may become."""

FIRST_PIXELS = 2**18
OTHER_PIXELS = 150_000
STRONGEST = 8
STRONGEST_BYTES = 400_000
ENTRY_BYTES = 8
"""A position and a weight."""

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src blob: data:; \
font-src data:; media-src blob:; connect-src data:; base-uri 'none'; form-action 'none'">
<title>heedmap</title>
<style>%(style)s</style>
</head>
<body class="heedmap-alone">
<main id="heedmap"></main>
<script id="heedmap-data" type="text/plain">%(data)s</script>
<script type="module">
%(modules)s
const { mount } = await import(places.get("main.js"));
const { offlineTransport } = await import(places.get("transport_offline.js"));
const packed = document.getElementById("heedmap-data").textContent;
mount(document.getElementById("heedmap"), await offlineTransport(packed), { alone: true });
</script>
</body>
</html>
"""

Progress = Callable[[str], None]


def write_page(
    scene: Scene, file: Path, *, force: bool = False, progress: Progress = lambda _: None
) -> None:
    """Write a scene as one HTML file of at most 5 MB, which appears whole.

    Args:
        scene: What is shown.
        file: Where; it must not exist yet.
        force: Whether to replace a file that is there.
        progress: Called with a line of text before something slow begins, and while it lasts.

    Raises:
        InputError: for a file that exists or cannot be written.
        UnsupportedError: if not even the names of the positions and maps fit.

    Cost: a pass over each map.
    """
    check_free(file, force=force)
    progress(f"Packing {file.name} …")
    with Explorer(scene) as explorer:
        text = _fitting(explorer, progress)
    write_whole(file, text, force=force)


def write_whole(file: Path, text: str, *, force: bool) -> None:
    """Write a page at once, so that nobody ever finds a part of it.

    Raises:
        InputError: for a file that exists or cannot be written.
    """
    temporary = file.with_name(f".heedmap-{os.getpid()}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        check_free(file, force=force)
        temporary.replace(file)
    except OSError as error:
        raise _cannot_be_written(file, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def check_free(file: Path, *, force: bool) -> None:
    """Refuse a place that is taken, or in no folder, before anything is computed.

    Raises:
        InputError: for such a place.
    """
    try:
        # What is moved to the place of a device would take that from everybody.
        is_other = file.exists() and not file.is_file()
        has_folder, is_taken = file.parent.is_dir(), os.path.lexists(file)
    except OSError as error:
        raise _cannot_be_written(file, error) from error
    if is_other or not has_folder:
        raise InputError(f"the page must be a file in a folder that exists; got {file}.")
    if is_taken and not force:
        raise InputError(f"the page must not be there yet; got {file}. Replace it with --force.")


def _cannot_be_written(file: Path, error: OSError) -> InputError:
    return InputError(
        f"the page must be written where there is leave and room; got {file}: {error.strerror}."
    )


def _fitting(explorer: Explorer, progress: Progress) -> str:
    """Return the page, with the richest content that fits."""
    pack, notes = Pack(), list(explorer.scene.notes)
    _add_maps(pack, notes, explorer, progress)
    modules = linked("main.js", "transport_offline.js")
    styles = (font_style(page_files(), _writing(explorer.scene)) or "") + style()
    for media, names in ((True, True), (False, True), (False, False)):
        completed = _completed(pack, notes, explorer.scene, media=media, names=names)
        text = _page(completed, styles, modules)
        if len(text.encode()) <= MOST_BYTES:
            return text
    raise UnsupportedError(
        f"a page must fit into {MOST_BYTES} bytes; got {len(explorer.scene.layers)} layers, which "
        "take more. Watch fewer of them."
    )


def _add_maps(pack: Pack, notes: list[str], explorer: Explorer, progress: Progress) -> None:
    """Add every map in blocks, and the strongest weights of the one to begin with."""
    scene = explorer.scene
    count = sum(layer.weights.shape[0] for layer in scene.layers)
    maps, sides = {}, set()
    for number, layer in enumerate(scene.layers):
        heads, queries, keys = layer.weights.shape
        for head in range(heads):
            first = (number, head) == scene.chosen
            side = side_within(queries, keys, FIRST_PIXELS if first else OTHER_PIXELS // count)
            made = raster(explorer, number, head, side, _waiting(layer.name, head, progress))
            maps[f"{number}/{head}"] = found = {"side": side} | _blocks(pack, made)
            if first:
                found |= _strongest(pack, layer.weights[head])
            sides.add((first, side))
    pack.index["maps"] = maps
    notes += [
        f"this file holds {'the map to begin with' if first else 'other maps'} in blocks of "
        f"{side} × {side} weights; heedmap explore shows all"
        for first, side in sorted(sides, reverse=True)
        if side > 1
    ]


def _blocks(pack: Pack, made: Raster) -> dict[str, Any]:
    if made.side == 1:
        return dict.fromkeys(("mean", "max"), pack.add_weights(made.mean))
    return {"mean": pack.add_blocks(made.mean), "max": pack.add_blocks(made.max)}


def _waiting(name: str, head: int, progress: Progress) -> Callable[[float], None]:
    told = -1

    def tell(done: float) -> None:
        nonlocal told
        if (tenth := int(10 * done)) != told:
            told = tenth
            progress(f"{name}, head {head}: {10 * tenth} %")

    return tell


def _strongest(pack: Pack, weights: Tensor) -> dict[str, Any]:
    """Add the strongest keys of each query and queries of each key, as many as fit."""
    found = {}
    for side, lines in (("rows", weights), ("columns", weights.mT)):
        size, width = lines.shape
        count = min(STRONGEST, width, STRONGEST_BYTES // (ENTRY_BYTES * max(1, size)))
        if count:
            values, positions = lines.topk(count)
            found[side] = pack.add_strongest(values, positions, lines.sum(-1))
    return found


def _completed(pack: Pack, notes: list[str], scene: Scene, *, media: bool, names: bool) -> Pack:
    """Return the pack with the description, the axes and, if asked, the text, sound or film."""
    pack, notes = pack.copy(), list(notes)
    described = scene.description()
    _tell_deepest(described["layers"], pack.index["maps"])
    unnamed = describe_axis(Axis.of_positions(0))
    pack.index["axes"] = [
        describe_axis(axis) if names else {**unnamed, "kind": "position"} for axis in scene.axes
    ]
    if not names:
        notes.append("the names of the positions do not fit into this file")
    pack.index["media"] = []
    if media:
        for medium in scene.media:
            place = pack.add(_content(medium))
            pack.index["media"].append({**place, "type": medium.content_type})
    elif scene.media:
        described["media"] = []
        notes.append(f"{scene.media[0].title} does not fit into this file")
    pack.index["description"] = {**described, "notes": notes}
    return pack


def _tell_deepest(layers: list[dict[str, Any]], maps: dict[str, Any]) -> None:
    """Say of each layer at which levels the blocks of its maps lie, where single weights do not."""
    for number, layer in enumerate(layers):
        sides = [maps[f"{number}/{head}"]["side"] for head in range(len(layer["heads"]))]
        if max(sides) > 1:
            layer["deepest"] = [layer["zooms"] - side.bit_length() + 1 for side in sides]


def _content(medium: Media) -> bytes:
    if medium.path is None:
        return medium.words.encode()
    # Of what is larger than the whole file may be, one byte too many says enough.
    with medium.path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def _writing(scene: Scene) -> str:
    """Return all that the page may write of a scene, whose characters it needs a font for."""
    texts = [_content(medium) for medium in scene.media if medium.kind == "text"]
    parts = [json.dumps(scene.description(), ensure_ascii=False)]
    parts += (text.decode(errors="ignore") for text in texts)
    for axis in scene.axes:
        parts += [axis.text, *axis.labels]
    return "".join(parts)


def _page(pack: Pack, styles: str, modules: str) -> str:
    return _PAGE % {
        "style": styles,
        "modules": modules,
        "data": b64encode(gzip.compress(pack.content(), mtime=0)).decode(),
    }
