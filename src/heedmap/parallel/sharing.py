"""Models of transformers on a sequence that several ranks share.

transformers lets others bring an attention function. Here it is the one that goes round the ranks;
the rest of such a model treats each position by itself, given that it is told which one it is.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from heedmap.errors import (
    ArgumentError,
    HeedmapError,
    MissingExtraError,
    ModelError,
    RankError,
    ShapeError,
    UnsupportedError,
)
from heedmap.layers import Kind, Layer
from heedmap.masks import Causal, Mask, Padding
from heedmap.parallel.attend import attention
from heedmap.parallel.layout import Layout
from heedmap.parallel.members import Members, Mesh
from heedmap.seen import Seen

NAME = "heedmap_shared"
"""What transformers calls our attention function."""

ELSEWHERE = ("past_key_values", "encoder_hidden_states", "position_bias", "labels")
"""What a model may be given that brings in keys or scores of other positions, or asks for the next
one, which another rank may have."""


@contextmanager
def share(model: Any, *, mesh: Mesh | None = None, layout: Layout | None = None) -> Iterator[Seen]:
    """Return a block in which a model of transformers works on this rank's part of each sequence.

    In the block the model is called on every rank with the rank's part of ``input_ids``, of
    ``position_ids``, and of ``attention_mask`` if there is padding; what it returns belongs to
    these positions, and so does a first token that it pools. The maps are those of whole sequences.
    What the models' own code allows is shared: full attention, causal or not, by way of the
    attention functions of transformers.

    Args:
        model: A model of transformers.
        mesh: The ranks, from `heedmap.parallel.start`; None for all.
        layout: Which positions each rank has; None for one stretch each, in the order of ranks.

    Returns:
        The block, which gives a `heedmap.Seen`. Its maps are asked by all ranks at once.

    Raises:
        UnsupportedError: for a model that says of itself that its sequence cannot be shared, for an
            encoder with a decoder, and in a run for a cache, labels, dropout and a 4D mask.
        ArgumentError: in a run without ``position_ids``, because each model counts in its own way.
        ShapeError: in a run, for a part that is not as long as `layout` says.
        RankError: in a run, if ranks disagree.
        ModelError: for what is no model of transformers, and at the end of the block if the model
            did not attend.

    Cost: that of `heedmap.parallel.attention` for each layer; query and key of each are kept, and
    with a graph, where gradients are on.
    """
    interface = _interface(model)
    members = Members.of(mesh)
    _require_shareable(model)
    interface.register(NAME, _attend)
    before = [(part.config, part.config._attn_implementation) for part in _models(model)]
    running = _Running(model, members, mesh, layout)
    hook = model.register_forward_pre_hook(running.prepare, with_kwargs=True)
    try:
        model.set_attn_implementation(NAME)
        if any(part.config._attn_implementation != NAME for part in _models(model)):
            raise _cannot(model, "its attention is not one of transformers' attention functions")
        for module in model.modules():
            _runs[id(module)] = running
        yield Seen(lambda: running.layers, (), type(model).__name__)
        if not running.layers:
            raise ModelError(
                f"model must be run while its sequence is shared; got {type(model).__name__}, "
                "which did not attend. Run it inside the block."
            )
    finally:
        hook.remove()
        for module in model.modules():
            _runs.pop(id(module), None)
        for config, implementation in before:
            config._attn_implementation = implementation


class _Running:
    """One model in its block: what the ranks have of this run, and what was seen so far."""

    def __init__(
        self, model: nn.Module, members: Members, mesh: Mesh | None, layout: Layout | None
    ) -> None:
        self.members, self.mesh, self.layout = members, mesh, layout
        self.names = {id(module): name for name, module in model.named_modules()}
        self.layers: list[Layer] = []
        self.counts: dict[str, int] = {}
        self.padding: Padding | None = None
        self.own = 0

    def prepare(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Take what belongs to whole sequences out of the arguments of a run."""
        given = _by_name(model, args, kwargs)
        try:
            batch, self.own = _require_own(given, self.layout, self.members.rank)
        except HeedmapError as error:
            self.members.agree("a run of the model", error=error)
            raise
        valid: Tensor | None = given.pop("attention_mask", None)
        if valid is not None:
            valid = Padding(valid).valid
        told = self.members.agree("a run of the model", (batch, self.own, valid))
        self.padding = self._padding(told, given["position_ids"].device)
        known = inspect.signature(model.forward).parameters
        rest = {"attention_mask": None, "use_cache": False}
        return (), given | {name: rest[name] for name in rest if name in known}

    def _padding(self, told: list[Any], device: torch.device) -> Padding | None:
        for rank, (batch, _, _) in enumerate(told):
            if batch != told[0][0]:
                raise RankError(
                    "input_ids must be parts of the same batch on all ranks; got "
                    f"{told[0][0]} sequences on rank 0 and {batch} on rank {rank}."
                )
        parts = [
            torch.ones(batch, own, dtype=torch.bool) if valid is None else valid.cpu()
            for batch, own, valid in told
        ]
        if all(valid is None for _, _, valid in told):
            return None
        whole = torch.cat(parts, 1) if self.layout is None else self.layout.whole(parts, 1)
        return Padding(whole.to(device))

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
    ) -> Tensor:
        """Return the output of this rank's queries of a layer, and keep its map."""
        causal = options.get("is_causal")
        if causal is None:
            causal = getattr(module, "is_causal", True)
        causal = causal and getattr(getattr(module, "config", None), "is_causal", True)
        mask: Mask | None = Causal() if causal else None
        if self.padding is not None:
            mask = self.padding if mask is None else mask & self.padding
        output, weights = attention(
            query,
            key,
            value,
            mask=mask,
            scale=options.get("scaling"),
            soft_cap=options.get("softcap"),
            sinks=options.get("s_aux"),
            mesh=self.mesh,
            layout=self.layout,
        )
        name = self.names[id(module)]
        number = self.counts.get(name, 0)
        self.counts[name] = number + 1
        kind: Kind = "causal" if causal else "self"
        self.layers.append(Layer(name, kind, number, 1, weights, door="heedmap.parallel"))
        return output


_runs: dict[int, _Running] = {}
"""By the ids of their modules, the models that are in a block now."""


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Be an attention function of transformers."""
    running = _runs.get(id(module))
    if running is None:
        raise UnsupportedError(
            f"{NAME} must attend inside a block of heedmap.parallel.share; got a call outside."
        )
    refused = {
        "a mask of its own": attention_mask is not None,
        "a bias": options.get("position_bias") is not None,
        "a window": options.get("sliding_window") is not None,
        "dropout": options.get("dropout", 0.0) > 0,
        "a cache or another sequence": not query.shape[2] == key.shape[2] == running.own,
    }
    for what, there in refused.items():
        if there:
            raise UnsupportedError(
                f"attention must be full where ranks share a sequence; got {what} in "
                f"{running.names[id(module)]}. Run the model on one rank."
            )
    return running.attend(module, query, key, value, options).transpose(1, 2).contiguous(), None


def _interface(model: Any) -> Any:
    try:
        from transformers import PreTrainedModel
        from transformers.modeling_utils import AttentionInterface
    except ImportError:
        raise MissingExtraError("transformers", "models") from None
    if not isinstance(model, PreTrainedModel):
        raise ModelError(
            f"model must be one of transformers to be shared; got {type(model).__name__}. Build "
            "others of heedmap.nn.SelfAttention(mesh=mesh)."
        )
    return AttentionInterface


def _models(model: nn.Module) -> list[Any]:
    """Return the model and the models that it is made of."""
    return [part for part in model.modules() if hasattr(part, "set_attn_implementation")]


def _require_shareable(model: Any) -> None:
    if not getattr(model, "supports_context_parallel", False):
        raise _cannot(
            model, "some layer has a window, sinks or a state (supports_context_parallel)"
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise _cannot(model, "it has an encoder and a decoder")
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise _cannot(model, "it cannot be told which positions it has (position_ids)")


def _cannot(model: Any, reason: str) -> UnsupportedError:
    return UnsupportedError(
        f"model must be one whose sequence ranks can share; got {type(model).__name__}: {reason}. "
        "Run it on one rank."
    )


def _by_name(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments of a run by their names, without those that are None."""
    signature = inspect.signature(model.forward)
    given = dict(signature.bind(*args, **kwargs).arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
    return {name: argument for name, argument in given.items() if argument is not None}


def _require_own(given: dict[str, Any], layout: Layout | None, rank: int) -> tuple[int, int]:
    """Return of how many sequences a run has a part, and how long it is."""
    if "position_ids" not in given:
        raise ArgumentError(
            "position_ids must be those of this rank's part; got none. Where the model counts from "
            "0, give layout.positions(rank)[None]."
        )
    own = given.get("input_ids", given.get("inputs_embeds"))
    if own is None:
        raise ArgumentError("input_ids must be given where a sequence is shared; got none.")
    batch, length = own.shape[:2]
    for name in ELSEWHERE:
        if name in given:
            raise UnsupportedError(
                f"{name} must not be given where a sequence is shared; it was. Leave it out, or "
                "run the model on one rank."
            )
    mask = given.get("attention_mask")
    if mask is not None and tuple(mask.shape) != (batch, length):
        raise UnsupportedError(
            f"attention_mask must be the padding of this rank's part, [{batch}, {length}]; got "
            f"{list(mask.shape)}."
        )
    if layout is not None and layout.lengths[rank] != length:
        raise ShapeError(
            f"input_ids must have this rank's {layout.lengths[rank]} positions of the layout; got "
            f"{length}."
        )
    return batch, length
