"""Which layers, heads and queries of a model are wanted, and a call cut down to them."""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from heedmap.errors import ArgumentError
from heedmap.masks import Extent, Mask, Spans
from heedmap.places import Places
from heedmap.scoring import ScoreChange
from heedmap.watch.call import Call
from heedmap.watch.spans import Chosen, stretches_of

Numbers = Iterable[int] | slice | int


@dataclass(frozen=True)
class Choice:
    """What is wanted; None for all.

    Attributes:
        layers: Names, patterns with ``*``, or places in the order in which layers attend.
        heads: Numbers of heads.
        queries: Numbers of the queries of each call; negative ones count from its end.
    """

    layers: tuple[str | int, ...] | None
    heads: tuple[int, ...] | slice | None
    queries: tuple[int, ...] | slice | None

    def wants(self, name: str, place: int) -> bool:
        """Return whether a layer is wanted, the `place`-th that attended."""
        if self.layers is None:
            return True
        return any(
            wish == place if isinstance(wish, int) else fnmatch.fnmatchcase(name, wish)
            for wish in self.layers
        )

    def of(self, call: Call) -> Call:
        """Return the call with the wanted heads and queries alone."""
        if self.heads is None and self.queries is None:
            return call
        extent = call.extent
        device = call.query.device
        heads = _numbers("heads", self.heads, extent.heads, device)
        queries = _numbers("queries", self.queries, extent.queries, device)
        of_key = heads // (extent.heads // call.key.shape[1])
        rows = call.query[:, heads][:, :, queries]
        form = call.form
        return replace(
            call,
            query=rows,
            key=call.key[:, of_key],
            value=None if call.value is None else call.value[:, of_key],
            lead=_lead(call.lead, len(heads)),
            mask=_cut_mask(call.mask, extent, heads, queries),
            bias=_cut(call.bias, heads, queries),
            sinks=None if call.sinks is None else call.sinks[heads],
            score_change=_cut_change(call.score_change, heads, queries),
            dense=_cut(call.dense, heads, queries),
            output=_cut(call.output, heads, queries),
            form=lambda result: form(result)[:, heads][:, :, queries],
            fresh=extent.queries,
            first=int(queries[0]) if len(queries) else 0,
        )


def _lead(lead: tuple[int, ...], heads: int) -> tuple[int, ...]:
    return (*lead[:-1], heads) if len(lead) >= 2 else lead


def _cut(table: Tensor | None, heads: Tensor, queries: Tensor) -> Tensor | None:
    if table is None:
        return None
    table = table[:, heads] if table.shape[1] > 1 else table
    return table[:, :, queries] if table.shape[2] > 1 else table


def _cut_mask(mask: Mask | None, extent: Extent, heads: Tensor, queries: Tensor) -> Mask | None:
    if mask is None:
        return None
    stretches = stretches_of(mask, extent, heads.device)
    if stretches is None:
        return Chosen(mask.bind(extent), heads, queries)
    first, last = (
        (ends[:, heads] if ends.shape[1] > 1 else ends)[..., queries]
        for ends in (stretches.first, stretches.last)
    )
    return Spans(first, last, stretches.valid)


def _cut_change(change: ScoreChange | None, heads: Tensor, queries: Tensor) -> ScoreChange | None:
    """Return the change of chosen rows, asked under the numbers that they have in the whole."""
    if change is None:
        return None

    def of_chosen(scores: Tensor, places: Places) -> Tensor:
        head, query = heads[places.head], queries[places.query]
        return change(scores, places._replace(head=head, query=query))

    return of_chosen


def _numbers(
    what: str, wanted: tuple[int, ...] | slice | None, size: int, device: torch.device
) -> Tensor:
    """Return wanted numbers, counted from 0.

    Raises:
        ArgumentError: if there are not so many.
    """
    every = range(size)
    if wanted is None or isinstance(wanted, slice):
        chosen = list(every[wanted or slice(None)])
    else:
        if any(not -size <= number < size for number in wanted):
            raise ArgumentError(f"{what} must be numbers of {size} {what}; got {list(wanted)}.")
        chosen = [every[number] for number in wanted]
    return torch.tensor(chosen, dtype=torch.long, device=device)


def make_choice(
    layers: str | Iterable[str | int] | int | None, heads: Numbers | None, queries: Numbers | None
) -> Choice:
    """Return the checked choice.

    Raises:
        ArgumentError: for layers that are neither names nor numbers, or numbers that are none.
    """
    if isinstance(layers, str | int):
        layers = [layers]
    chosen = None if layers is None else tuple(layers)
    if chosen is not None and not all(isinstance(wish, str | int) for wish in chosen):
        raise ArgumentError(f"layers must be names, patterns or numbers; got {list(chosen)}.")
    return Choice(chosen, _listed("heads", heads), _listed("queries", queries))


def _listed(what: str, numbers: Numbers | None) -> tuple[int, ...] | slice | None:
    if numbers is None or isinstance(numbers, slice):
        return numbers
    listed = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    if not all(isinstance(number, int) for number in listed):
        raise ArgumentError(f"{what} must be whole numbers or a slice; got {list(listed)}.")
    return listed
