"""What was seen of a model: its layers in the order in which they attended."""

import fnmatch
import html
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Int
from torch import Tensor

from heedmap.axes import Axis
from heedmap.checking import Checks, check
from heedmap.errors import ArgumentError
from heedmap.layers import Layer


class Seen:
    """The attention of a model's layers, as a sequence of maps with names.

    ``seen[0]``, ``seen[-1]`` and iteration give maps in the order in which the layers first
    attended; ``seen["decoder.layers.0.self_attn"]`` that of a module, and ``seen["name", 1]`` its
    second one, where it attended several times. Patterns as in ``seen.matching("*.self_attn")``.
    Printed, it is a table of all that there is.

    Attributes:
        missed: Names of what attended, or may have, and was not captured, each with the reason.
    """

    def __init__(
        self,
        layers: Callable[[], Sequence[Layer]],
        missed: Sequence[tuple[str, str]] = (),
        model: str = "",
        along: Callable[[Tensor], Sequence[Layer]] | None = None,
    ) -> None:
        """Hold where to ask for the layers; not for users."""
        self._ask = layers
        self._ask_along = along
        self.missed = missed
        self.model = model

    @property
    def layers(self) -> list[Layer]:
        """All that is known of each layer."""
        return list(self._ask())

    @property
    def names(self) -> list[str]:
        """The names of the layers."""
        return [layer.name for layer in self.layers]

    @property
    def self_attention(self) -> "Seen":
        """The layers that attend to their own sequence, causal or not."""
        return self._of(lambda layer: layer.kind != "cross")

    @property
    def cross_attention(self) -> "Seen":
        """The layers that attend to another sequence."""
        return self._of(lambda layer: layer.kind == "cross")

    def matching(self, pattern: str) -> "Seen":
        """Return the layers whose names match a pattern with ``*``, ``?`` and ``[...]``."""
        return self._of(lambda layer: fnmatch.fnmatchcase(layer.name, pattern))

    def along(self, beam_indices: Int[Tensor, "batch step"]) -> "Seen":
        """Return the attention of sequences that a beam search returned, beam by beam.

        By itself ``seen`` follows the beams that were alive at the last step.

        Args:
            beam_indices: In which row of the batch each sequence was at each step, as ``generate``
                of transformers gives them with ``return_dict_in_generate`` and ``output_scores``;
                −1 behind its end, where the rows of its map then go on from another sequence.

        Returns:
            The layers that attended at each step; of a search that went on after the longest of
            the returned sequences had ended, without the steps behind it.

        Raises:
            ArgumentError: if no decoding was watched, or in fewer steps, or several were.
        """
        if self._ask_along is None:
            raise ArgumentError(
                "along must be asked of what heedmap.watch saw; got a recording, a part or a copy."
            )
        layers = self._ask_along(beam_indices)
        if not layers:
            raise ArgumentError(
                f"beam_indices must be [batch, step] for the steps that were watched; got "
                f"{list(beam_indices.shape)}, and no layer took {beam_indices.shape[-1]} steps."
            )
        return Seen(lambda: layers, self.missed, self.model)

    def check(self) -> Checks:
        """Return how far the maps lie from the plain formula, and from what the model put out.

        For each layer some rows are made again in float64 and compared with those of the map; that
        weights · values give the kernel's own output was looked at while the model ran.

        Cost: O(keys) for each row, four rows a layer; a pass for a log-normaliser not known yet.
        """
        return check(self.layers)

    def save(self, folder: str | Path, *, axis: Axis | None = None, force: bool = False) -> None:
        """Write a recording, which `heedmap.open` opens, here or on another machine.

        The folder appears whole, when every file is on the disk, or not at all. Where ranks share
        the maps, see `heedmap.parallel`, all of them call it, and each writes its part.

        Args:
            folder: Where; it must not exist yet.
            axis: What the positions are, to be kept with the maps.
            force: Whether to replace a recording that is there, once the new one is written.

        Raises:
            ArgumentError: if there is no layer.
            UnsupportedError: naming the layer, before anything is written, for one that was reduced
                by a function of one's own, or whose mask or scores are functions of places.
            InputError: for a folder that exists or cannot be written.
            MissingExtraError: if safetensors is missing.
            RankError: if it is another rank that cannot go on.

        Cost: disk for what the maps stand on, O(positions) for each layer; a dense bias or mask
        that a model made is written as it is.
        """
        from heedmap.recording import save

        save(self, folder, axis=axis, force=force)

    def explore(self, *, axis: Axis | None = None, media: str | Path | None = None) -> Any:
        """Open the live map of all layers in the browser, or in a notebook in its cell.

        Where there is no browser, the address is printed. A script that ends takes the map along;
        ``seen.explore().wait()`` goes on until Ctrl-C.

        Args:
            axis: What the positions of self-attention are; that of a recording without it.
            media: The file of the sound, film or text that it is about.

        Returns:
            The running `heedmap.explore.running.Running`, with its `url`, `wait()` and `close()`;
            in a notebook its widget.

        Raises:
            ArgumentError: if no layer was kept as a map.
            InputError: for a file that is not there.
            MissingExtraError: if a package of the extra explore, or notebook, is missing.
        """
        from heedmap.explore.opening import scene_of_seen
        from heedmap.explore.showing import show

        return show(scene_of_seen(self, axis=axis, media=media))

    def _of(self, wanted: Callable[[Layer], bool]) -> "Seen":
        return Seen(lambda: [x for x in self._ask() if wanted(x)], self.missed, self.model)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy or save the layers as they are by now, without the model."""
        return _rebuilt, (self.layers, list(self.missed), self.model)

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self._ask())

    def __iter__(self) -> Iterator[Any]:
        """Yield the maps, or what was kept instead."""
        return (layer.weights for layer in self.layers)

    @overload
    def __getitem__(self, place: slice) -> "Seen": ...
    @overload
    def __getitem__(self, place: int | str | tuple[str, int]) -> Any: ...

    def __getitem__(self, place: int | str | slice | tuple[str, int]) -> Any:
        """Return the map of a layer by its place, its name, or its name and number."""
        if isinstance(place, slice):
            return Seen(lambda: list(self._ask())[place], self.missed, self.model)
        return self.layer(place).weights

    def layer(self, place: int | str | tuple[str, int]) -> Layer:
        """Return all that is known of one layer.

        Raises:
            ArgumentError: if there is no such layer, or several of one name.
        """
        layers = self.layers
        if isinstance(place, int):
            if not -len(layers) <= place < len(layers):
                raise IndexError(f"layer must be one of {len(layers)}; got {place}.")
            return layers[place]
        name, number = (place, None) if isinstance(place, str) else place
        found = [x for x in layers if x.name == name and number in (None, x.number)]
        if not found:
            near = [x for x in dict.fromkeys(x.name for x in layers) if name in x][:3]
            hint = f"Names like it: {', '.join(near)}." if near else "Print seen for the names."
            raise ArgumentError(f"name must be that of a layer that was seen; got {name!r}. {hint}")
        if len(found) > 1:
            raise ArgumentError(
                f"name must be that of one layer; got {name!r}, which attended {len(found)} times. "
                f"Use seen[{name!r}, 0] for the first, up to {len(found) - 1}."
            )
        return found[0]

    def __repr__(self) -> str:
        """Show the table of layers, and what was missed."""
        head = ("", "name", "kind", "calls", "shape", "kept")
        rows = [head, *(_row(place, layer) for place, layer in enumerate(self.layers))]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines += [f"not captured: {name or 'the model'}: {reason}" for name, reason in self.missed]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        return f"<pre>{html.escape(repr(self))}</pre>"


def _rebuilt(layers: list[Layer], missed: list[tuple[str, str]], model: str) -> Seen:
    """Make again what was seen from what was saved of it."""
    return Seen(lambda: layers, missed, model)


# So that torch.load, which makes only what it is told to trust, makes them.
torch.serialization.add_safe_globals([_rebuilt, Layer])


def _row(place: int, layer: Layer) -> tuple[str, ...]:
    shape = "–" if layer.shape is None else " × ".join(map(str, layer.shape))
    name = layer.name or "(the model)"
    if layer.number:
        name += f", {layer.number}"
    return str(place), name, layer.kind, str(layer.calls), shape, layer.kept
