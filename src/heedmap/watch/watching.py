"""Watching a model: what is kept of each call, and what that may take."""

import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from heedmap import budget
from heedmap.attention_map import AttentionMap
from heedmap.errors import ArgumentError, BudgetError, HeedmapError, ModelError
from heedmap.layers import Kind, Layer
from heedmap.problem import Problem
from heedmap.seen import Seen
from heedmap.summary import Summary
from heedmap.watch import doors, interception
from heedmap.watch.call import Call
from heedmap.watch.choosing import Choice, Numbers, make_choice
from heedmap.watch.factors import agrees, map_of_call, output_error, problem_of
from heedmap.watch.interception import GetWeights
from heedmap.watch.kinds import kind_of
from heedmap.watch.track import Track, first_query

Keep = str | Summary | Callable[[AttentionMap], Any]

_ATTENTION = re.compile("attention|attn", re.IGNORECASE)


class Fixed:
    """What is known of one call that later calls do not add to."""

    def __init__(self, layer: Layer, nbytes: int = 0) -> None:
        """Hold it, and how much memory the factors take that it stands on."""
        self._layer = layer
        self.name, self.nbytes = layer.name, nbytes

    def layer(self) -> Layer:
        """Return it."""
        return self._layer


class Watcher:
    """Hears of the calls of one model, and keeps what is wanted of them."""

    def __init__(
        self,
        model: nn.Module,
        choice: Choice,
        keep: Keep,
        device: torch.device | None,
        max_bytes: int | None,
        grad: bool,
    ) -> None:
        """Know the modules of the model; nothing is heard yet."""
        self.model = model
        self.names = {id(module): name for name, module in model.named_modules()}
        self.thread = threading.get_ident()
        self.choice, self.keep, self.device = choice, keep, device
        self.max_bytes, self.grad = max_bytes, grad
        self.entries: list[Track | Fixed] = []
        self.missed: list[tuple[str, str]] = []
        self._places: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self._latest: dict[str, Track] = {}
        self._unwanted: set[str] = set()
        self._ran: set[str] = set()
        self._parents: Tensor | None = None
        self._goes_on: bool | None = None
        self._biases: dict[int, int] = {}
        self._lock = threading.RLock()

    def layers(self) -> Sequence[Layer]:
        """Return what is known by now."""
        with self._lock, torch.inference_mode(False), torch.no_grad():
            return [entry.layer() for entry in self.entries]

    def along(self, beam_indices: Int[Tensor, "batch step"]) -> Sequence[Layer]:
        """Return the layers that attended at each step, for these rows of the batch."""
        steps = beam_indices.shape[1]
        ended = (beam_indices >= 0).sum(1).clamp(min=1) - 1
        kept = torch.minimum(torch.arange(steps, device=ended.device), ended[:, None])
        rows = beam_indices.long().gather(1, kept).T
        with self._lock, torch.inference_mode(False), torch.no_grad():
            tracks = [
                entry
                for entry in self.entries
                if isinstance(entry, Track) and len(entry.steps) >= max(steps, 2)
            ]
            names = [track.name for track in tracks]
            if twice := [name for name in names if names.count(name) > 1]:
                raise ArgumentError(
                    f"beam_indices must be those of the only decoding that was watched; got "
                    f"{names.count(twice[0])} decodings of {twice[0] or 'the model'}. "
                    "Watch each in a block of its own."
                )
            return [track.along(rows) for track in tracks]

    def ran(self, name: str) -> None:
        """Note that a module was run."""
        self._ran.add(name)

    def passed(self) -> None:
        """Note that the model ran through: beams change places between passes."""
        self._parents = self._goes_on = None

    def miss(self, name: str, door: str, reason: str) -> None:
        """Note a call that could not be read."""
        if (name, f"{door}: {reason}") not in self.missed:
            self.missed.append((name, f"{door}: {reason}"))

    def take(self, name: str, module: nn.Module | None, call: Call) -> GetWeights | None:
        """Keep what is wanted of a call; return how to get its weights, if they are kept."""
        with self._lock, torch.inference_mode(False), torch.set_grad_enabled(self.grad):
            place = self._places.setdefault(name, len(self._places))
            if not self.choice.wants(name, place):
                self._leave_out(name, module, call)
                return None
            try:
                call, problem = self._checked(call)
            except HeedmapError as error:
                # NaN among what is added to scores, one sample of torch.vmap: no reason to stop.
                self.miss(name, call.door, f"it has no weights that can be kept ({error})")
                return None
            kind = kind_of(name, module, call)
            chosen = self.choice.of(call)
            if chosen is not call and problem is not None:
                problem = problem_of(_detached(chosen))
            if self.grad:
                self._require_room(name, chosen, _nbytes(chosen))
                weights = map_of_call(chosen, grad=True)
                return self._hold(name, kind, chosen, problem, weights, "factors")
            chosen = _detached(chosen)
            if self.keep != "factors":
                reduced = self._reduce(map_of_call(chosen, problem))
                return self._hold(name, kind, chosen, problem, reduced, "reduced")
            return self._track(name, kind, chosen, problem)

    def _checked(self, call: Call) -> tuple[Call, Problem | None]:
        """Return the call by its factors, with the problem that they pose.

        Where the factors do not give the weights, they are dropped for the weights, and there is no
        problem.

        Raises:
            HeedmapError: if there are no factors that pose a problem.
        """
        alone = replace(call, dense=None)
        problem = problem_of(_detached(alone))
        if call.understood and agrees(call, problem):
            return alone, problem
        return call, None

    def _leave_out(self, name: str, module: nn.Module | None, call: Call) -> None:
        if name not in self._unwanted:
            self._unwanted.add(name)
            reason, kind = "no: not among layers=", kind_of(name, module, call)
            self.entries.append(Fixed(Layer(name, kind, 0, 1, None, door=call.door, kept=reason)))

    def _reduce(self, weights: AttentionMap) -> Any:
        if isinstance(self.keep, Summary):
            return weights.summarize(top=self.keep.top, pool=self.keep.pool)
        assert callable(self.keep)
        return self.keep(weights)

    def _hold(
        self, name: str, kind: Kind, call: Call, problem: Problem | None, weights: Any, kept: str
    ) -> GetWeights | None:
        kept = "weights" if kept == "factors" and problem is None else kept
        error = None if problem is None else output_error(call, problem)
        number = self._number(name)
        first = 0 if kind == "cross" else first_query(call)
        layer = Layer(name, kind, number, 1, weights, None, first, call.door, kept, error)
        self.entries.append(Fixed(layer, _nbytes(call) if self.grad else 0))
        return (lambda: weights) if isinstance(weights, AttentionMap) else None

    def _number(self, name: str) -> int:
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        return number

    def _track(self, name: str, kind: Kind, call: Call, problem: Problem | None) -> GetWeights:
        queries, keys = call.extent.queries, call.extent.keys
        # A step of a decoding brings as many keys as queries.
        new_keys = min(queries, keys) if name in self._latest and call.dense is None else keys
        self._require_room(name, call, _nbytes(call, new_keys))
        norms = None if call.value is None else call.value.norm(dim=-1)
        on_site = call
        if self.device is not None:
            call = _moved(call, self.device)
            norms = None if norms is None else norms.to(self.device)
        latest = self._latest.get(name)
        step = None
        if latest is not None and (kind != "cross" or self._may_go_on(call)):
            step = latest.goes_on(call, norms, self._parents)
        if kind != "cross":
            self._goes_on = step is not None
            self._parents = step.parents if step is not None else self._parents
        if step is None:
            latest = Track(name, kind, self._number(name), call, norms)
            self._latest[name] = latest
            self.entries.append(latest)
        assert latest is not None
        count = len(latest.steps)
        if count & (count - 1) == 0 and problem is not None:
            # Of the steps of a decoding the 1st, 2nd, 4th, 8th …
            error = output_error(on_site, problem)
            latest.error = max((e for e in (error, latest.error) if e is not None), default=None)
        return self._later(latest)

    def _may_go_on(self, call: Call) -> bool:
        """Return whether a call to another sequence may be a step of a decoding.

        Its keys are the same in every step, and in every other call with that sequence. So what
        counts is whether the self-attention before it, in this pass, went on; where none was seen,
        whether there is a single query.
        """
        if self._goes_on is None:
            return (call.fresh or call.extent.queries) == 1
        return self._goes_on

    def _later(self, track: Track) -> GetWeights:
        def weights() -> Tensor:
            with self._lock, torch.inference_mode(False), torch.no_grad():
                return track.latest_map()

        return weights

    def _require_room(self, name: str, call: Call, new: int) -> None:
        """Refuse a call that would take more than is allowed, before it is copied."""
        if self.max_bytes is None:
            return
        taken: dict[str, int] = {name: new}
        for entry in self.entries:
            taken[entry.name] = taken.get(entry.name, 0) + entry.nbytes
        if call.bias is not None:
            # Layers may share what is added to their scores.
            storage = call.bias.untyped_storage()
            self._biases[storage.data_ptr()] = storage.nbytes()
        total = sum(taken.values()) + sum(self._biases.values())
        if total > self.max_bytes:
            largest = max(taken, key=lambda key: taken[key])
            raise BudgetError(
                f"max_bytes must allow for the factors of every layer; got {self.max_bytes}, and "
                f"{total} are needed at {name or 'the model'}. The largest is "
                f"{largest or 'the model'} with {taken[largest]}. Choose with layers=, heads= or "
                "queries=, or keep=heedmap.Summary()."
            )

    def finish(self) -> None:
        """Add what ran without being seen to what was missed.

        Raises:
            ModelError: if nothing was captured.
        """
        seen = {entry.name for entry in self.entries}
        modules = dict(self.model.named_modules())
        for name in sorted(self._ran):
            module = modules.get(name)
            if isinstance(module, torch.jit.ScriptModule):
                self._miss_unless(seen, name, "scripted code cannot be looked into")
            elif module is not None and _ATTENTION.search(type(module).__name__):
                reason = "it ran, but no softmax attention was seen in it"
                self._miss_unless(seen, name, reason)
        if self.entries and len(self.entries) == len(self._unwanted):
            wanted = list(self.choice.layers or ())
            names = ", ".join(entry.name or "the model" for entry in self.entries[:3])
            raise ModelError(
                f"layers must be some of those that attend; got {wanted}, and "
                f"{len(self.entries)} others did. The first are {names}."
            )
        if not self.entries:
            missed = "; ".join(f"{name or 'the model'}: {why}" for name, why in self.missed)
            raise ModelError(
                "model must attend by a softmax while it is watched; got "
                f"{type(self.model).__name__}, of which no attention was captured "
                f"({missed or 'was it run inside the block?'})."
            )

    def _miss_unless(self, seen: set[str], name: str, reason: str) -> None:
        for other in [*seen, *(missed for missed, _ in self.missed)]:
            if other == name or other.startswith(f"{name}.") or name.startswith(f"{other}."):
                return
        self.missed.append((name, reason))


def _nbytes(call: Call, keys: int | None = None) -> int:
    """Return how much the factors of a call take, of so many of its keys, or its weights."""
    if call.dense is not None:
        return call.dense.nbytes
    share = 1.0 if keys is None else keys / max(call.extent.keys, 1)
    return call.query.nbytes + int(call.key.nbytes * share)


def _detached(call: Call) -> Call:
    """Return the call without its graph."""
    names = ("query", "key", "value", "bias", "sinks", "dense", "output")
    parts = {name: getattr(call, name) for name in names}
    parts = {n: None if t is None else t.detach() for n, t in parts.items()}
    return replace(call, **parts, edge=None)


def _moved(call: Call, device: torch.device) -> Call:
    names = ("query", "key", "value", "bias", "sinks", "dense", "output")
    parts = {name: getattr(call, name) for name in names}
    moved = {n: None if t is None else t.to(device) for n, t in parts.items()}
    mask = None if call.mask is None else call.mask.to(device)
    return replace(call, **moved, mask=mask)


def _device(name: torch.device | str) -> torch.device:
    """Return a device that tensors can be kept on.

    Raises:
        ArgumentError: if it is not there.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError):
        raise ArgumentError(f"device must be one that is there; got {name!r}.") from None
    if device.type == "meta":
        raise ArgumentError("device must hold numbers; got 'meta'. Use keep=heedmap.Summary().")
    return device


class _Watch(AbstractContextManager[Seen]):
    def __init__(self, make: Callable[[], Watcher]) -> None:
        self._make = make
        self._watcher: Watcher | None = None

    def __enter__(self) -> Seen:
        if self._watcher is not None:
            raise ArgumentError("a watch must be entered once at a time; call watch again.")
        self._watcher = watcher = self._make()
        interception.listen(watcher, doors.hang)
        name = type(watcher.model).__name__
        return Seen(watcher.layers, watcher.missed, name, watcher.along)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        watcher, self._watcher = self._watcher, None
        assert watcher is not None
        interception.leave(watcher)
        try:
            if error is None:
                watcher.finish()
        finally:
            # What was seen may be kept for long, and the model need not be.
            del watcher.model


def watch(
    model: nn.Module,
    *,
    layers: str | int | Iterable[str | int] | None = None,
    heads: Numbers | None = None,
    queries: Numbers | None = None,
    keep: Keep = "factors",
    device: torch.device | str | None = None,
    max_bytes: int | None = None,
    grad: bool = False,
) -> AbstractContextManager[Seen]:
    """Return a block in which the attention of a model is seen, whatever it is made of.

    The model computes what it computes unwatched, on the kernels that it has; compiled code runs as
    it was written. Weights are those before dropout. The steps of a decoding with a cache become
    one map. Models of transformers give the maps as ``outputs.attentions``, too, where they are
    asked for with ``output_attentions=True``.

    Args:
        model: Any module.
        layers: Names of modules, patterns such as ``"decoder.*"``, or places in the order in which
            layers attend; None for all.
        heads: Numbers of heads; None for all.
        queries: Numbers of the queries of each call, negative ones from its end; None for all.
        keep: ``"factors"`` for maps; a `Summary` to reduce each map while the model runs, so that
            nothing large is kept; or a function of a map that returns what to keep.
        device: Where the factors are kept; None for where they are.
        max_bytes: How much they may take in all, with the tables that a model adds to scores, and
            the weights where these are kept as the model made them.
        grad: Keep the graph, so that gradients flow from the weights into the model, and from a
            score to the weights: ``torch.autograd.grad(score, [seen[0]])``, or
            ``seen[0].retain_grad()``. Decoding steps then stay apart.

    Returns:
        The block, which gives a `Seen`.

    Raises:
        ArgumentError: for arguments that make no sense.
        BudgetError: in the model's run, if more than `max_bytes` would be kept.
        ModelError: at the end of the block, if no attention was captured.

    Cost: a copy of query and key of each call, O(positions); the weights are not computed.

    Example:
        >>> model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        >>> with watch(model) as seen:
        ...     output = model(torch.zeros(1, 3, 8))
        >>> seen
           name       kind  calls  shape          kept
        0  self_attn  self  1      1 × 2 × 3 × 3  factors
        >>> seen["self_attn"][0, 0]
        tensor([[0.3333, 0.3333, 0.3333],
                [0.3333, 0.3333, 0.3333],
                [0.3333, 0.3333, 0.3333]])
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    if keep != "factors" and not isinstance(keep, Summary) and not callable(keep):
        raise ArgumentError(
            f"keep must be 'factors', a heedmap.Summary or a function of a map; got {keep!r}."
        )
    if max_bytes is not None:
        budget.require_bytes(max_bytes)
    choice = make_choice(layers, heads, queries)
    place = None if device is None else _device(device)
    return _Watch(lambda: Watcher(model, choice, keep, place, max_bytes, grad))
