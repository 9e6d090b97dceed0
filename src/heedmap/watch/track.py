"""What is kept of the calls of one module: the steps of a decoding become one map.

Each step adds its queries and the keys that are new. That the rest of its keys are those of the
steps before is not taken on trust: they are compared, bit by bit. Where rows of the batch changed
places (beams), the step remembers from which row each came.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.layers import Kind, Layer
from heedmap.masks import Extent, Spans
from heedmap.watch.call import Call
from heedmap.watch.factors import map_of_call
from heedmap.watch.mask_reading import simplest
from heedmap.watch.spans import Stretches, stretches_of


class Growing:
    """A tensor that grows along its third dimension without being copied at each step."""

    def __init__(self, first: Tensor) -> None:
        """Begin with a copy."""
        self.room = first.clone(memory_format=torch.contiguous_format)
        self.length = first.shape[2]

    def append(self, more: Tensor) -> None:
        """Add copies at the end."""
        length = self.length + more.shape[2]
        if length > self.room.shape[2]:
            shape = list(self.room.shape)
            shape[2] = max(2 * shape[2], length)
            room = self.room.new_empty(shape)
            room[:, :, : self.length] = self.room[:, :, : self.length]
            self.room = room
        self.room[:, :, self.length : length] = more
        self.length = length

    def cut(self, length: int) -> None:
        """Forget what lies behind."""
        self.length = length

    def reorder(self, rows: Tensor) -> None:
        """Let each row of the batch go on from another one."""
        self.room = self.room[rows]

    @property
    def tensor(self) -> Tensor:
        """What there is, safe from what is appended later."""
        # Another counter of writes: appending writes behind the end of this view.
        return self.room.data[:, :, : self.length]

    @property
    def nbytes(self) -> int:
        """The memory taken."""
        return self.room.nbytes


@dataclass(frozen=True, eq=False)
class Step:
    """One call within a track.

    Attributes:
        queries: How many queries of it are kept.
        base: At which key of the track its own keys begin.
        stretches: What its queries see of its own keys.
        keys: How many keys it had.
        parents: From which row of the step before each row goes on; None for the same.
        bias: Its scores to add.
    """

    queries: int
    base: int
    stretches: Stretches | None
    keys: int
    parents: Int[Tensor, " batch"] | None = None
    bias: Tensor | None = None


class Track:
    """The calls of one module that belong together."""

    def __init__(
        self, name: str, kind: Kind, number: int, call: Call, norms: Tensor | None
    ) -> None:
        """Begin with a call, whose tensors are copied."""
        self.name, self.number = name, number
        self.kind: Kind = kind
        self.form = _form(call)
        self.query = Growing(call.query)
        self.key = Growing(call.key)
        self.norms = None if norms is None else Growing(norms[..., None])
        extent = call.extent
        stretches = stretches_of(call.mask, extent, call.query.device)
        stretches = None if stretches is None else stretches.tight()
        self.steps = [Step(extent.queries, 0, stretches, extent.keys, bias=call.bias)]
        self.written = extent.keys if stretches is None else stretches.written(extent.keys)
        self.error: float | None = None
        self._made: tuple[int, AttentionMap] | None = None

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        parts = [self.query.nbytes, self.key.nbytes]
        return sum(parts) + (self.norms.nbytes if self.norms else 0)

    def goes_on(self, call: Call, norms: Tensor | None, parents: Tensor | None) -> Step | None:
        """Take in a call if it is the next step; return the step, None if it is not.

        Args:
            call: A call of the same module.
            norms: Of its values.
            parents: From which rows the batch goes on where the keys cannot tell, for keys that
                come from another sequence are the same for all beams.
        """
        if not self._is_like(call):
            return None
        extent = call.extent
        stretches = stretches_of(call.mask, extent, call.query.device)
        if stretches is None:
            return None
        stretches = stretches.tight()
        if self.kind == "cross":
            step = self._same_keys(call, extent, stretches, parents)
        else:
            step = self._longer_keys(call, extent, stretches, norms)
        if step is not None:
            # A first step of one query does not show that later keys are hidden.
            self.kind = "causal" if self.kind == "self" else self.kind
            self.query.append(call.query)
            self.steps.append(step)
        return step

    def _is_like(self, call: Call) -> bool:
        first = self.form
        same_form = all(
            getattr(first, name) == getattr(call, name) for name in ("scale", "soft_cap", "door")
        )
        plain = first.dense is call.dense is first.score_change is call.score_change is None
        grouped = first.query.shape[1] == call.query.shape[1]
        widths = (
            first.query.shape[0] == call.query.shape[0]
            and first.key.shape[:2] == call.key.shape[:2]
        )
        numbers = (
            first.query.dtype == call.query.dtype and first.query.shape[3] == call.query.shape[3]
        )
        return same_form and plain and grouped and widths and numbers

    def _same_keys(
        self, call: Call, extent: Extent, stretches: Stretches, parents: Tensor | None
    ) -> Step | None:
        if extent.keys != self.key.length or extent.queries >= extent.keys:
            return None
        if not torch.equal(call.key, self.key.tensor):
            return None
        return Step(extent.queries, 0, stretches, extent.keys, parents, call.bias)

    def _longer_keys(
        self, call: Call, extent: Extent, stretches: Stretches, norms: Tensor | None
    ) -> Step | None:
        written = stretches.written(extent.keys)
        known = written - (call.fresh or extent.queries)
        base = self.written - known
        if known <= 0 or base < 0:
            return None
        old = self.key.room[:, :, base : self.written]
        found = parents_of(call.key[:, :, :known], old)
        if found is None:
            return None
        rows = None if torch.equal(found, torch.arange(len(found), device=found.device)) else found
        self.key.cut(self.written)
        if rows is not None:
            self.key.reorder(rows)
        self.key.append(call.key[:, :, known:written])
        if self.norms is not None and norms is not None:
            self.norms.cut(self.written)
            if rows is not None:
                self.norms.reorder(rows)
            self.norms.append(norms[:, :, known:written, None])
        self.written = self.key.length
        return Step(extent.queries, base, stretches, written, rows, call.bias)

    def layer(self) -> Layer:
        """Return what is known by now, the steps as one map."""
        if self._made is None or self._made[0] != len(self.steps):
            self._made = len(self.steps), self._map(self._ancestors())
        return Layer(
            name=self.name,
            kind=self.kind,
            number=self.number,
            calls=len(self.steps),
            weights=self._made[1],
            value_norms=None if self.norms is None else self.norms.tensor[..., 0],
            first_query=0 if self.kind == "cross" else self.key.length - self.query.length,
            door=self.form.door,
            kept="factors" if self.form.dense is None else "weights",
            output_error=self.error,
        )

    def latest_map(self) -> AttentionMap:
        """Return the weights of the last call alone."""
        if len(self.steps) == 1:
            return self.layer().weights
        step = self.steps[-1]
        assert step.stretches is not None
        query = self.query.tensor[:, :, -step.queries :]
        key = self.key.tensor[:, :, step.base :][:, :, : step.keys]
        call = replace(self.form, query=query, key=key, bias=step.bias)
        call.mask = simplest(Spans(*step.stretches), call.extent)
        return map_of_call(call)

    def along(self, rows: Int[Tensor, "step batch"]) -> AttentionMap:
        """Return the map of sequences that were in these rows of the batch at each step."""
        return self._map(list(rows))

    def _map(self, lines: list[Tensor]) -> AttentionMap:
        if len(self.steps) == 1:
            return map_of_call(replace(self.form, query=self.query.tensor, key=self.key.tensor))
        query, done = [], 0
        for step, rows in zip(self.steps, lines, strict=True):
            query.append(self.query.tensor[rows, :, done : done + step.queries])
            done += step.queries
        whole = replace(self.form, query=torch.cat(query, dim=2), key=self.key.tensor)
        sizes = whole.extent
        whole.mask = simplest(self._stretched(lines, sizes), sizes)
        whole.bias = self._biases(lines, sizes)
        return map_of_call(whole)

    def _ancestors(self) -> list[Tensor]:
        """Return for each step the rows from which those of the last step come."""
        rows = torch.arange(len(self.query.room), device=self.query.room.device)
        lines = [rows]
        for step in reversed(self.steps[1:]):
            rows = rows if step.parents is None else step.parents[rows]
            lines.append(rows)
        return lines[::-1]

    def _stretched(self, lines: list[Tensor], sizes: Extent) -> Spans:
        batch, _, _, keys = sizes
        valid = torch.zeros((batch, keys), dtype=torch.bool, device=self.query.room.device)
        first, last = [], []
        for step, rows in zip(self.steps, lines, strict=True):
            assert step.stretches is not None
            stop = min(step.keys, keys - step.base)
            part = valid[:, step.base : step.base + stop]
            part |= (
                True if step.stretches.valid is None else _of(step.stretches.valid, rows)[:, :stop]
            )
            first.append(self._whole(step.stretches.first, rows, sizes, step) + step.base)
            last.append(self._whole(step.stretches.last, rows, sizes, step) + step.base)
        return Spans(torch.cat(first, dim=2), torch.cat(last, dim=2), valid)

    def _whole(self, ends: Tensor, rows: Tensor, sizes: Extent, step: Step) -> Tensor:
        heads = max(s.stretches.first.shape[1] for s in self.steps if s.stretches)
        return _of(ends, rows).expand(sizes[0], heads, step.queries)

    def _biases(self, lines: list[Tensor], sizes: Extent) -> Tensor | None:
        if self.steps[0].bias is None:
            return None
        parts = []
        for step, rows in zip(self.steps, lines, strict=True):
            assert step.bias is not None
            bias = _of(step.bias, rows)[..., : sizes[3] - step.base]
            bias = bias.expand(-1, -1, step.queries, -1)
            behind = sizes[3] - step.base - bias.shape[-1]
            parts.append(torch.nn.functional.pad(bias, (step.base, behind)))
        return torch.cat(parts, dim=2)


def _of(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor[rows] if tensor.shape[0] > 1 else tensor


def _form(call: Call) -> Call:
    """Return what a call says beside its tensors, of which none is kept but dense weights."""
    query, key = (t.new_empty((*t.shape[:2], 0, t.shape[3])) for t in (call.query, call.key))
    dense = None if call.dense is None else call.dense.detach()
    return replace(call, query=query, key=key, value=None, output=None, dense=dense)


def parents_of(
    new: Float[Tensor, "batch heads key head_dim"], old: Float[Tensor, "batch heads key head_dim"]
) -> Int[Tensor, " batch"] | None:
    """Return which row of `old` each row of `new` is a copy of, None if one is no copy."""
    batch = len(new)
    if torch.equal(new, old):
        return torch.arange(batch, device=new.device)
    found = []
    for row in new:
        matches = (number for number in range(batch) if torch.equal(row, old[number]))
        parent = next(matches, None)
        if parent is None:
            return None
        found.append(parent)
    return torch.tensor(found, device=new.device)
