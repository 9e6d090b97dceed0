"""What is kept of the calls of one module: the steps of a decoding become one map.

Each step adds its queries and the keys that are new. That the rest of its keys are those of the
steps before is not taken on trust: they are compared, bit by bit. Where rows of the batch changed
places (beams), the step remembers from which row each came.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedmap.attention_map import AttentionMap
from heedmap.layers import Kind, Layer
from heedmap.masks import Extent, Spans
from heedmap.watch.call import Call
from heedmap.watch.factors import map_of_call
from heedmap.watch.growing import Growing
from heedmap.watch.mask_reading import simplest
from heedmap.watch.spans import Stretches, stretches_of
from heedmap.watch.stitching import Step, ancestors, bias_of_steps, mask_of_steps


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
        # The keys of each step in the rows that it had, where rows have changed places since.
        self.fresh: Growing | None = None
        extent = call.extent
        stretches = stretches_of(call.mask, extent, call.query.device)
        stretches = None if stretches is None else stretches.tight()
        # A cache of fixed size has slots behind that are not written yet.
        self.written = extent.keys if stretches is None else stretches.written(extent.keys)
        self.first_query = first_query(call)
        # Which keys are valid for the latest step, which begin at which key of the track.
        self.valid: Tensor | None = None if stretches is None else stretches.valid
        self.valid_base = 0
        self.steps = [Step(extent.queries, 0, stretches, self.written, bias=call.bias)]
        self.error: float | None = None
        self._made: tuple[int, AttentionMap] | None = None

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        parts = (self.query, self.key, self.norms, self.fresh, self.form.dense)
        return sum(part.nbytes for part in parts if part is not None)

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
        step = Step(extent.queries, 0, stretches, extent.keys, parents, call.bias)
        return self._carrying_on(step, extent.keys, None)

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
            self.fresh = self.fresh or Growing(self.key.tensor)
            self.key.reorder(rows)
        new = call.key[:, :, known:written]
        self.key.append(new)
        if self.fresh is not None:
            self.fresh.append(new)
        if self.norms is not None and norms is not None:
            self.norms.cut(self.written)
            if rows is not None:
                self.norms.reorder(rows)
            self.norms.append(norms[:, :, known:written, None])
        self.written = self.key.length
        step = Step(extent.queries, base, stretches, written, rows, call.bias)
        return self._carrying_on(step, known, rows)

    def _carrying_on(self, step: Step, known: int, rows: Tensor | None) -> Step:
        """Return a step that does not say again which keys are valid, where it need not.

        Args:
            step: The step.
            known: How many of its keys the step before had.
            rows: From which rows of the step before its rows go on; None for the same.
        """
        assert step.stretches is not None
        now, before = step.stretches.valid, self.valid
        if before is not None and rows is not None and len(before) > 1:
            before = before[rows]
        start, self.valid, self.valid_base = step.base - self.valid_base, now, step.base
        old = True if before is None else before[:, start : start + known]
        if now is None:
            same = old is True or bool(old.all())
        else:
            same = bool((now[:, :known] == old).all() and now[:, known : step.keys].all())
        if not same:
            return step
        return replace(step, stretches=step.stretches._replace(valid=None), carries_on=True)

    def layer(self) -> Layer:
        """Return what is known by now, the steps as one map."""
        if self._made is None or self._made[0] != len(self.steps):
            lines = ancestors(self.steps, len(self.query.room))
            self._made = len(self.steps), self._map(lines, self.key.tensor)
        return Layer(
            name=self.name,
            kind=self.kind,
            number=self.number,
            calls=len(self.steps),
            weights=self._made[1],
            value_norms=None if self.norms is None else self.norms.tensor[..., 0],
            first_query=0 if self.kind == "cross" else self.first_query,
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
        # A cache has room for keys that are not there yet.
        keys, (first, last, _), valid = key.shape[2], step.stretches, self.valid
        bias = None if step.bias is None else step.bias[..., :keys]
        call = replace(self.form, query=query, key=key, bias=bias)
        valid = None if valid is None else valid[:, :keys]
        call.mask = simplest(Spans(first, last, valid), call.extent)
        return map_of_call(call)

    def along(self, rows: Int[Tensor, "step batch"]) -> Layer:
        """Return the layer for sequences that were in these rows of the batch at each step.

        Steps that come after these are of sequences that were given up, and are left out.
        """
        count = len(rows)
        rows = torch.cat([rows, rows[-1:].expand(len(self.steps) - count, -1)])
        weights = self._along(rows)
        queries = sum(step.queries for step in self.steps[:count])
        last = self.steps[count - 1]
        keys = weights.shape[-1] if self.kind == "cross" else last.base + last.keys
        if count < len(self.steps):
            weights = weights[..., :queries, :keys]
        return replace(self.layer(), weights=weights, calls=count, value_norms=None)

    def _along(self, rows: Int[Tensor, "step batch"]) -> AttentionMap:
        key = self.key.tensor
        if self.fresh is not None:
            ends = [0, *(step.base + step.keys for step in self.steps)]
            key = torch.cat(
                [
                    self.fresh.tensor[line, :, start:stop]
                    for line, start, stop in zip(rows, ends, ends[1:], strict=False)
                ],
                dim=2,
            )
        elif self.kind == "cross":
            key = key[rows[-1]]
        return self._map(list(rows), key)

    def _map(self, lines: list[Tensor], key: Tensor) -> AttentionMap:
        if len(self.steps) == 1:
            return map_of_call(replace(self.form, query=self.query.tensor, key=key))
        query, done = [], 0
        for step, rows in zip(self.steps, lines, strict=True):
            query.append(self.query.tensor[rows, :, done : done + step.queries])
            done += step.queries
        whole = replace(self.form, query=torch.cat(query, dim=2), key=key)
        if self.kind == "cross":
            # Keys of another sequence stay in their rows, and with them what hides them.
            lines = [lines[-1]] * len(lines)
        whole.mask = mask_of_steps(self.steps, lines, whole.extent)
        whole.bias = bias_of_steps(self.steps, lines, whole.extent)
        whole.lead = (*self.form.lead[:-2], *whole.extent[:2])[-len(self.form.lead) :]
        return map_of_call(whole)


def _form(call: Call) -> Call:
    """Return what a call says beside its tensors, of which none is kept but dense weights."""
    query, key = (t.new_empty((*t.shape[:2], 0, t.shape[3])) for t in (call.query, call.key))
    dense = None if call.dense is None else call.dense.detach()
    call = replace(call, query=query, key=key, value=None, output=None, dense=dense)
    return replace(call, form=lambda gradient: gradient)


def first_query(call: Call) -> int:
    """Return where among its keys the first query of a call to its own sequence stands.

    The queries are the last of the keys, but for room in a cache that nobody sees yet.
    """
    queries, keys = call.fresh or call.extent.queries, call.extent.keys
    if queries == keys:
        return call.first
    stretches = stretches_of(call.mask, call.extent, call.query.device)
    written = keys if stretches is None else stretches.tight().written(keys)
    return call.first + max(written - queries, 0)


def parents_of(
    new: Float[Tensor, "batch heads key head_dim"], old: Float[Tensor, "batch heads key head_dim"]
) -> Int[Tensor, " batch"] | None:
    """Return which row of `old` each row of `new` is a copy of, None if one is no copy.

    Of equal rows the nearest: beams of one sample lie together.
    """
    batch = len(new)
    if torch.equal(new, old):
        return torch.arange(batch, device=new.device)
    found = []
    for place, row in enumerate(new):
        near = sorted(range(batch), key=lambda number: abs(number - place))
        matches = (number for number in near if torch.equal(row, old[number]))
        parent = next(matches, None)
        if parent is None:
            return None
        found.append(parent)
    return torch.tensor(found, device=new.device)
