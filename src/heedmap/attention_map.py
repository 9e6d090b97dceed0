"""The map that people hold: a tensor of weights whose cells are made when they are asked for.

`AttentionMap` is a `torch.Tensor` to the code that people have: same names, same argument order,
`isinstance` holds. It is a thin face. What it knows is a rule (`heedmap.lazy`), how the rule's
stack of matrices is folded into leading dimensions, and which of the last two dimensions an integer
index has taken away. `map_views` says what an index or a reshape does to that, `map_functions`
which torch function goes to which reduction.
"""

import math
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.utils.data._utils.collate import default_collate_fn_map

from heedmap import reductions
from heedmap.axes import Axis
from heedmap.errors import ShapeError, UnsupportedError
from heedmap.lazy import Dense, LazyMatrix, sharded_in
from heedmap.lazy_weights import (
    Form,
    LazyWeights,
    LogNormalizer,
    in_form,
    leaves,
    row_normalizer,
)
from heedmap.map_cells import densify, describe
from heedmap.map_face import TensorFace
from heedmap.masks import Mask
from heedmap.precision import never_compiled
from heedmap.problem import Problem, make_problem
from heedmap.scoring import Scoring
from heedmap.summary import Answers, Summary, check_pool, summarize

SAVED_FORM = 1
"""The form in which maps are saved; another number is refused."""

SMALL_CELLS = 1000
"""Up to how many cells `repr` shows in full, as torch does."""


class AttentionMap(TensorFace):
    """The exact weights of attention, query × key for each sample and head, never stored.

    Maps come from `heedmap.attention`, `heedmap.nn.SelfAttention`, `from_factors` or
    `from_weights`. Rows are queries, columns keys; rows sum to 1, or to 0 for a query that may
    look at nothing. A map is frozen: every way of writing into it raises `FrozenError`.

    Gradients flow from all that is asked into query and key, and from the output that came with a
    map to the map: `torch.autograd.grad`, ``retain_grad`` and ``register_hook`` give a lazy map.
    That one tells nothing of pairs that are hidden, where the weights cannot change.

    Example:
        >>> query, key = torch.zeros(1, 2, 100_000, 8), torch.zeros(1, 2, 100_000, 8)
        >>> weights = AttentionMap.from_factors(query, key)
        >>> weights.shape
        torch.Size([1, 2, 100000, 100000])
        >>> weights[0, 1, 70_000].topk(2).values
        tensor([1.0000e-05, 1.0000e-05])
    """

    @staticmethod
    def __new__(
        cls: type["AttentionMap"],
        rule: LazyMatrix,
        lead: tuple[int, ...],
        kept: tuple[bool, bool] = (True, True),
        dtype: torch.dtype | None = None,
    ) -> "AttentionMap":
        """Put a face on `rule`, whose stack folds into `lead`; not for users."""
        _, rows, columns = rule.sizes
        tail = (rows,) * kept[0] + (columns,) * kept[1]
        made = Tensor._make_wrapper_subclass(
            cls, lead + tail, dtype=dtype or rule.dtype, device=rule.device
        )
        made._rule, made._lead, made._kept = rule, lead, kept
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        """Do nothing: `__new__` has done it."""

    @classmethod
    @never_compiled
    def from_factors(
        cls,
        query: Float[Tensor, "*batch_heads query head_dim"],
        key: Float[Tensor, "*batch_kv_heads key head_dim"],
        *,
        mask: Mask | Tensor | None = None,
        scale: float | None = None,
        soft_cap: float | None = None,
        bias: Float[Tensor, "..."] | None = None,
        sinks: Float[Tensor, " heads"] | None = None,
    ) -> "AttentionMap":
        """Return the map of a query and a key, computing no output, and nothing else yet.

        Args and Raises: as for `heedmap.attention`.

        Cost: nothing now. Single rows then cost O(keys) each; a pass over the whole map first
        computes the log-normaliser once, in O(query · key) time and O(query) memory.

        Example:
            >>> AttentionMap.from_factors(torch.zeros(3, 8), torch.zeros(4, 8))[0]
            tensor([0.2500, 0.2500, 0.2500, 0.2500])
        """
        problem, _ = make_problem(
            query,
            key,
            None,
            mask=mask,
            scale=scale,
            soft_cap=soft_cap,
            bias=bias,
            sinks=sinks,
        )
        return map_of(problem, LogNormalizer(problem), query)

    @classmethod
    def from_weights(cls, weights: Shaped[Tensor, "*lead query key"]) -> "AttentionMap":
        """Return a map that stands on a matrix of weights that somebody already has.

        Args:
            weights: ``[..., query, key]``; kept, not copied.

        Raises:
            ShapeError: if it has fewer than two dimensions.

        Example:
            >>> AttentionMap.from_weights(torch.eye(3)).sum(-2)
            tensor([1., 1., 1.])
        """
        if isinstance(weights, AttentionMap):
            return weights
        if not isinstance(weights, Tensor) or weights.ndim < 2:
            got = list(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
            raise ShapeError(f"weights must be a tensor [..., query, key]; got {got}.")
        return cls(
            Dense(weights.flatten(0, -3) if weights.ndim > 2 else weights[None]),
            tuple(weights.shape[:-2]),
            dtype=weights.dtype,
        )

    # What a map can be asked beyond what a tensor can.

    @property
    @never_compiled
    def log_normalizer(self) -> Float[Tensor, "*batch_heads query"]:
        """The natural logarithm of what each row's softmax divides by; −inf for an empty row.

        Raises:
            UnsupportedError: for a map whose rows are not those of a problem.
        """
        found = row_normalizer(self._matrix("log_normalizer"))
        if found is None:
            raise UnsupportedError(_not_plain("log_normalizer"))
        return found.reshape(self.shape[:-1])

    @property
    def scores(self) -> "AttentionMap":
        """The scores before the softmax as a lazy map of the same shape, −inf where not visible."""
        return self._in_form("scores")

    @property
    def log_weights(self) -> "AttentionMap":
        """The logarithms of the weights, exactly: scores − log_normalizer, −inf where hidden."""
        return self._in_form("log_weights")

    @property
    def backend(self) -> str:
        """Which kernel gave output and log-normaliser; ``"dense"`` for `from_weights`.

        ``"sharded"`` where several ranks share the map.
        """
        if sharded_in(self._rule) is not None:
            return "sharded"
        names = sorted({leaf.normalizer.backend for leaf in leaves(self._rule)})
        return ", ".join(names) or "dense"

    @never_compiled
    def entropy(self) -> Float[Tensor, "*lead query"]:
        """Return the entropy of each row, −Σ p·ln p, in nats; 0 for an empty row.

        Cost: one pass, O(query) memory.

        Example:
            >>> AttentionMap.from_weights(torch.full((1, 4), 0.25)).entropy()
            tensor([1.3863])
        """
        return self._fold(reductions.entropy(self._matrix("entropy")))

    @never_compiled
    def received(self) -> Float[Tensor, "*lead key"]:
        """Return how much each key is looked at in all: the sums of the columns.

        Cost: one pass, O(query + key) memory.
        """
        return self._fold(reductions.column_sums(self._matrix("received")))

    @never_compiled
    def pool(
        self, rows: int, columns: int, how: str = "mean"
    ) -> Float[Tensor, "*lead rows columns"]:
        """Return the map as a small picture: ``"mean"``, ``"sum"`` or ``"max"`` of its blocks.

        A side shorter than what is asked for keeps its own size. Means and sums are differentiable,
        maxima are not.

        Cost: one pass, memory of the picture.

        Example:
            >>> AttentionMap.from_weights(torch.eye(4)).pool(2, 2)
            tensor([[0.5000, 0.0000],
                    [0.0000, 0.5000]])
        """
        check_pool(rows, columns, how)
        return self._fold(reductions.pool(self._matrix("pool"), rows, columns, how))

    @never_compiled
    def edges(self, threshold: float) -> tuple[Int[Tensor, "edges dims"], Float[Tensor, " edges"]]:
        """Return where the weights are at least `threshold`, and these weights, in index order.

        Not differentiable.

        Cost: one pass, memory of the answer.

        Example:
            >>> AttentionMap.from_weights(torch.eye(2)).edges(0.5)[0]
            tensor([[0, 0],
                    [1, 1]])
        """
        place, value = reductions.edges(self._matrix("edges"), threshold)
        lead = []
        rest = place[:, 0]
        for size in reversed(self._lead):
            lead.insert(0, rest % size)
            rest = rest // size
        return torch.stack([*lead, place[:, 1], place[:, 2]], dim=1), value.to(self.dtype)

    @never_compiled
    def summarize(self, *, top: int = 0, pool: tuple[int, int] | None = None) -> Summary:
        """Return received and entropy, and if asked top keys and a picture, in one pass.

        Not differentiable; the single questions (`received`, `entropy`, `topk`) are.

        Args:
            top: How many of the strongest keys of each row to find; 0 for none.
            pool: The size of a picture of block means; None for no picture.

        Cost: one pass, memory of the answers.

        Example:
            >>> AttentionMap.from_weights(torch.eye(3)).summarize(top=1).top_keys
            tensor([[0],
                    [1],
                    [2]])
        """
        asked = Summary(top, pool)
        rule = self._matrix("summarize")
        asked.require_sense(rule.sizes[2])
        return asked.answered(summarize(rule, top=top, pool=pool), self._lead, self.dtype)

    @never_compiled
    def gather_summary(
        self, *, top: int = 0, pool: tuple[int, int] | None = None
    ) -> Summary | None:
        """Return what `summarize` finds of the whole map, on rank 0 where several ranks share it.

        There `summarize` gives each rank the answers about its own queries and keys. A map that is
        all here is summarized as ever.

        Args:
            top: As for `summarize`.
            pool: As for `summarize`.

        Returns:
            The answers, in the order of positions; None on ranks other than 0.

        Cost: that of `summarize`; memory of all answers on rank 0.

        Example:
            >>> AttentionMap.from_weights(torch.eye(2)).gather_summary().received
            tensor([1., 1.])
        """
        found = self.summarize(top=top, pool=pool)
        shared = sharded_in(self._rule)
        if shared is None:
            return found
        return shared.gathered(found, is_part=self._rule.home() is not None)

    @never_compiled
    def to_dense(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, max_bytes: int | None = None
    ) -> Tensor:
        """Return the map as an ordinary tensor.

        Args:
            max_bytes: What it may take; None for the budget, see `heedmap.dense_budget`.

        Raises:
            BudgetError: if it would take more.

        Cost: memory of the whole map.
        """
        return densify(self, "to_dense()", max_bytes)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        """Show a small map as torch would, of a large one shape, mask, size and corners."""
        del tensor_contents
        if sharded_in(self._rule) is not None:
            # One rank may print while the others do not: no cell may be asked for.
            return describe(self)
        if math.prod(self.shape) <= SMALL_CELLS or self._kept != (True, True):
            return repr(densify(self, "repr", math.prod(self.shape) * self.element_size()))
        return describe(self)

    def _repr_html_(self) -> str | None:
        """Show a notebook a small picture, within half a second, where matplotlib is there."""
        if find_spec("matplotlib") is None or sharded_in(self._rule) is not None:
            return None
        from heedmap.plot.notebook import picture_of

        return picture_of(self)

    def explore(
        self,
        *,
        axis: Axis | None = None,
        key_axis: Axis | None = None,
        media: str | Path | None = None,
    ) -> Any:
        """Open the live map in the browser, or in a notebook in its cell.

        Where there is no browser, the address is printed. A script that ends takes the map along;
        ``weights.explore().wait()`` goes on until Ctrl-C.

        Args:
            axis: What the queries are, and the keys where there are as many.
            key_axis: What the keys are.
            media: The file of the sound, film or text that the map is about.

        Returns:
            The running `heedmap.explore.running.Running`, with its `url`, `wait()` and `close()`;
            in a notebook its widget.

        Raises:
            ShapeError: for an axis of another length than its side of the map.
            InputError: for a file that is not there.
            MissingExtraError: if a package of the extra explore, or notebook, is missing.

        Cost: what is looked at is computed, and one pass over a map whose whole is looked at.
        """
        from heedmap.explore.opening import scene_of_map
        from heedmap.explore.showing import show

        return show(scene_of_map(self, axis=axis, key_axis=key_axis, media=media))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Save the factors, mask and scale, never the cells."""
        del protocol
        return _rebuilt, (SAVED_FORM, self._detached()._rule, self._lead, self._kept, self.dtype)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Send a torch function to its reduction, to its view, or through the budget."""
        from heedmap.map_functions import call

        return call(func, args, kwargs or {})

    def _matrix(self, wish: str) -> LazyMatrix:
        if self._kept != (True, True):
            raise ShapeError(
                f"{wish} must be asked of a map [..., query, key]; got one of {list(self.shape)}, "
                "of which an index has taken a side."
            )
        return self._rule

    def _fold(self, answer: Tensor) -> Tensor:
        """Give an answer about the stack the leading dimensions of the map."""
        folded = answer.unflatten(0, self._lead) if self._lead else answer[0]
        return folded.to(self.dtype) if folded.is_floating_point() else folded

    def _in_form(self, form: Form) -> "AttentionMap":
        rule = in_form(self._rule, form)
        if rule is None:
            raise UnsupportedError(_not_plain(form))
        return self._on(rule)


def _not_plain(wish: str) -> str:
    return (
        f"{wish} must be asked of the weights of a problem, whole or selected; these were given, "
        "reduced or computed with."
    )


def map_of(problem: Problem, normalizer: LogNormalizer, query: Tensor) -> AttentionMap:
    """Return the map of a problem, with the leading dimensions of `query`."""
    return AttentionMap(
        LazyWeights(problem, normalizer), tuple(query.shape[:-2]), dtype=query.dtype
    )


def _rebuilt(
    form: int, rule: LazyMatrix, lead: tuple[int, ...], kept: tuple[bool, bool], dtype: torch.dtype
) -> AttentionMap:
    """Make a map again from what was saved of it."""
    if form != SAVED_FORM:
        raise UnsupportedError(
            f"a saved map must have form {SAVED_FORM}; got {form}. Another version of heedmap "
            "wrote it."
        )
    return AttentionMap(rule, lead, kept, dtype)


def _kinds(base: type) -> list[type]:
    return [base, *(kind for sub in base.__subclasses__() for kind in _kinds(sub))]


# So that torch.load, which makes only what it is told to trust, makes maps and summaries.
_SAVED = [_rebuilt, range, Problem, Scoring, LogNormalizer, Summary, Answers]
torch.serialization.add_safe_globals([*_SAVED, *_kinds(LazyMatrix), *_kinds(Mask)])


def _collated(maps: list[Tensor], *, collate_fn_map: Any = None) -> Tensor:
    """Return a batch of maps, for a DataLoader, whose workers would write them into memory."""
    del collate_fn_map
    return torch.stack(maps)


default_collate_fn_map[AttentionMap] = _collated
