"""Self-attention as a module: the one of the lesson, and what follows from it.

Q = X·W_Q, K = X·W_K, V = X·W_V, output = softmax(Q·Kᵀ/√d)·V
"""

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from heedmap import compiled, reductions
from heedmap.attention import attention
from heedmap.attention_map import AttentionMap
from heedmap.errors import (
    ArgumentError,
    DTypeError,
    HeedmapError,
    RankError,
    ShapeError,
    UnsupportedError,
)
from heedmap.masks import Causal, Mask, Padding
from heedmap.places import as_numbers
from heedmap.problem import all_finite
from heedmap.tensors import require_tensor

if TYPE_CHECKING:
    from heedmap.parallel.layout import Layout
    from heedmap.parallel.members import Members, Mesh

Layer = TypeVar("Layer", bound=nn.Module)


class SelfAttention(nn.Module):
    """Lets each position gather from all positions of its sequence, and shows how much.

    Args:
        input_dim: Features of each position of `x`.
        attn_dim: Width of query, key and value over all heads together.
        num_heads: How many heads share `attn_dim`.
        kv_heads: How many heads of key and value there are; each serves neighbouring heads of
            query. As many as `num_heads` unless given.
        causal: Whether a position sees itself and earlier ones only.
        bias: Whether the projections add a bias.
        output_dim: Width of a last projection W_O; None for none.
        dropout: The share of weights dropped while training. The map shows them undropped.
        context_dim: Features of `context`, for cross-attention; those of `x` unless given.
        mesh: The ranks that share each sequence, from `heedmap.parallel.start`; None where this
            process has all of it. It is an attribute, too, and can be set later.

    Raises:
        ArgumentError: for sizes that are no whole numbers from 1 on or do not divide each other.
        UnsupportedError: for `dropout` together with a mesh.

    Example:
        >>> attend = SelfAttention(input_dim=4, attn_dim=8)
        >>> output, weights = attend(torch.randn(2, 5, 4), mask=torch.ones(2, 5))
        >>> output.shape, weights.shape
        (torch.Size([2, 5, 8]), torch.Size([2, 5, 5]))

    Source: Vaswani et al., “Attention is all you need”, 2017, section 3.2.
    """

    def __init__(
        self,
        input_dim: int,
        attn_dim: int,
        *,
        num_heads: int = 1,
        kv_heads: int | None = None,
        causal: bool = False,
        bias: bool = False,
        output_dim: int | None = None,
        dropout: float = 0.0,
        context_dim: int | None = None,
        mesh: "Mesh | None" = None,
    ) -> None:
        """Make the projections, initialised as `torch.nn.Linear` does."""
        super().__init__()
        kv_heads = num_heads if kv_heads is None else kv_heads
        context_dim = input_dim if context_dim is None else context_dim
        sizes = {
            "input_dim": input_dim,
            "attn_dim": attn_dim,
            "num_heads": num_heads,
            "kv_heads": kv_heads,
            "context_dim": context_dim,
            "output_dim": attn_dim if output_dim is None else output_dim,
        }
        for name, size in sizes.items():
            if not (isinstance(size, Integral) and size >= 1):
                raise ArgumentError(f"{name} must be a whole number from 1 on; got {size!r}.")
        if attn_dim % num_heads:
            raise ArgumentError(
                f"attn_dim must be a multiple of num_heads; got {attn_dim} and {num_heads}."
            )
        if num_heads % kv_heads:
            raise ArgumentError(
                f"num_heads must be a multiple of kv_heads; got {num_heads} and {kv_heads}."
            )
        if not (isinstance(dropout, Real) and 0 <= dropout < 1):
            raise ArgumentError(f"dropout must be from 0 to below 1; got {dropout!r}.")
        if dropout and mesh is not None:
            raise UnsupportedError(
                f"dropout must be 0 where ranks share a sequence; got {dropout}. Drop what goes in "
                "or comes out, by torch.nn.Dropout."
            )
        self.input_dim, self.attn_dim, self.context_dim = input_dim, attn_dim, context_dim
        self.num_heads, self.kv_heads = num_heads, kv_heads
        self.causal, self.dropout, self.mesh = causal, dropout, mesh
        kv_dim = attn_dim // num_heads * kv_heads
        self.w_q = nn.Linear(input_dim, attn_dim, bias=bias)
        self.w_k = nn.Linear(context_dim, kv_dim, bias=bias)
        self.w_v = nn.Linear(context_dim, kv_dim, bias=bias)
        self.w_o = None if output_dim is None else nn.Linear(attn_dim, output_dim, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "batch query input_dim"],
        mask: Shaped[Tensor, "batch key"] | None = None,
        *,
        context: Float[Tensor, "batch key context_dim"] | None = None,
        layout: "Layout | None" = None,
    ) -> tuple[Float[Tensor, "batch query output_dim"], AttentionMap]:
        """Return the new representation of each position, and the weights that made it.

        With a `mesh` everything given and the output are this rank's part, and the weights are
        those of the whole sequence, asked by all ranks at once. What `backward` adds to the
        projections is what this rank's outputs and the others' looks at its positions make of them:
        the sum over the ranks is the gradient. `torch.nn.parallel.DistributedDataParallel` takes
        the mean, as it does with batches, which is right for a loss that is a mean over positions.

        Args:
            x: The sequences.
            mask: 1 or True for a valid position, 0 or False for padding; of `context` where it is
                given, else of `x`. Padded positions are looked at by none, but still look.
            context: What is looked at, for cross-attention; `x` unless given.
            layout: Which positions each rank of the mesh has; None for a stretch each, in the order
                of ranks.

        Returns:
            The output, and the map: ``[batch, query, key]`` with one head, else
            ``[batch, heads, query, key]``. A position with nothing to look at has output 0
            (before W_O) and weights 0.

        Raises:
            ShapeError: for sizes that do not fit, and for a causal layer's context of another
                length.
            DTypeError: for what is no tensor, or a nested one.
            ArgumentError: for a mask with other numbers than 0 and 1, and for a layout where there
                is no mesh.
            RankError: if ranks of a mesh disagree.

        Cost: O(query · key) time; memory of the output. On n ranks, a part of n of both, and keys
        and values go round once.
        """
        if self.mesh is not None:
            return self._attend_together(x, mask, context, layout)
        if layout is not None:
            raise ArgumentError(
                "layout must be given where ranks share a sequence; got one without a mesh."
            )
        source = self._checked(x, context)
        visible = self._mask(mask, source)
        if isinstance(visible, Padding):
            source = _without_junk(source, visible.valid)
        query, key, value = self._project(source if context is None else x, source)
        rule = self._rule(visible)
        if self.training and self.dropout:
            weights = AttentionMap.from_factors(query, key, mask=rule)
            output = _gather_dropped(weights, value, self.dropout)
        else:
            output, weights = attention(query, key, value, mask=rule)
        return self._join(output), weights

    def _attend_together(
        self, x: Tensor, mask: Tensor | None, context: Tensor | None, layout: "Layout | None"
    ) -> tuple[Tensor, AttentionMap]:
        """Do the same where this rank has a part of each sequence."""
        from heedmap.parallel import attention as shared_attention
        from heedmap.parallel.layout import require_layout
        from heedmap.parallel.members import Members

        members = Members.of(self.mesh)
        try:
            require_layout(layout)
            source = self._checked(x, context)
            visible = self._mask(mask, source)
        except HeedmapError as error:
            members.agree("SelfAttention", error=error)
            raise
        whole = _joined_padding(members, visible, layout)
        if isinstance(visible, Padding):
            source = _without_junk(source, visible.valid)
        query, key, value = self._project(source if context is None else x, source)
        output, weights = shared_attention(
            query, key, value, mask=self._rule(whole), mesh=self.mesh, layout=layout
        )
        return self._join(output), weights

    def _checked(self, x: Tensor, context: Tensor | None) -> Tensor:
        """Return what is looked at, once everything has its shape."""
        self._check("x", x, self.input_dim)
        if context is None and self.context_dim == self.input_dim:
            return x
        source = x if context is None else context
        self._check("context", source, self.context_dim)
        if len(source) != len(x):
            raise ShapeError(
                f"context must have the batch size of x; got {len(source)} and {len(x)}."
            )
        if self.causal and self.mesh is None and source.shape[1] != x.shape[1]:
            raise ShapeError(
                "context must have as many positions as x where causal=True; got "
                f"{source.shape[1]} and {x.shape[1]}. heedmap.attention takes others, with "
                "mask=Causal(alignment='end') or Causal(alignment='start')."
            )
        return source

    def _project(self, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value."""
        query, key, value = self.w_q(x), self.w_k(source), self.w_v(source)
        if self.num_heads == 1:
            return query, key, value
        kv_heads = self.kv_heads
        return _heads(query, self.num_heads), _heads(key, kv_heads), _heads(value, kv_heads)

    def _rule(self, visible: Mask | None) -> Mask | None:
        if not self.causal:
            return visible
        return Causal() if visible is None else visible & Causal()

    def _join(self, output: Tensor) -> Tensor:
        """Put the heads of an output side by side, and through W_O."""
        if self.num_heads > 1:
            output = output.transpose(1, 2).flatten(2)
        return output if self.w_o is None else self.w_o(output)

    @classmethod
    def from_multihead_attention(cls, module: nn.MultiheadAttention) -> "SelfAttention":
        """Return the same layer with the weights of a `torch.nn.MultiheadAttention`.

        Inputs are ``[batch, positions, features]`` whatever its `batch_first` says, and the
        weights are per head. Frozen as a whole, it stays so.

        Raises:
            DTypeError: for another module.
            UnsupportedError: for added key positions (`add_bias_kv`, `add_zero_attn`), and for
                keys and values of different sources (`kdim` other than `vdim`).

        Example:
            >>> layer = SelfAttention.from_multihead_attention(nn.MultiheadAttention(8, 2))
            >>> layer.num_heads, layer.attn_dim
            (2, 8)
        """
        if not isinstance(module, nn.MultiheadAttention):
            raise DTypeError(
                f"module must be a torch.nn.MultiheadAttention; got {type(module).__name__}."
            )
        if module.bias_k is not None or module.add_zero_attn:
            raise UnsupportedError(
                "module must have neither add_bias_kv nor add_zero_attn; it has. They add keys "
                "that belong to no position."
            )
        if module.kdim != module.vdim:
            raise UnsupportedError(
                f"module must have kdim = vdim; got {module.kdim} and {module.vdim}."
            )
        made = cls(
            module.embed_dim,
            module.embed_dim,
            num_heads=module.num_heads,
            bias=module.in_proj_bias is not None,
            output_dim=module.embed_dim,
            dropout=module.dropout,
            context_dim=module.kdim,
        )
        made.to(module.out_proj.weight)
        made.load_state_dict(module.state_dict())
        return _as_before(made, module)

    def to_multihead_attention(self) -> nn.MultiheadAttention:
        """Return the same layer as a `torch.nn.MultiheadAttention` that takes batches first.

        A causal one must be given its mask there in each call.

        Raises:
            UnsupportedError: for widths that differ, for shared key heads, and without W_O.

        Example:
            >>> SelfAttention(8, 8, num_heads=2, output_dim=8).to_multihead_attention().num_heads
            2
        """
        widths = self.input_dim, self.attn_dim, self.w_o.out_features if self.w_o else None
        if len(set(widths)) > 1 or self.kv_heads != self.num_heads or self.w_o is None:
            raise UnsupportedError(
                "input_dim, attn_dim and output_dim must be equal, and so num_heads and kv_heads, "
                f"in a torch.nn.MultiheadAttention; got {self.input_dim}, {self.attn_dim} and "
                f"{widths[2]}, {self.num_heads} and {self.kv_heads}. Keep a SelfAttention."
            )
        made = nn.MultiheadAttention(
            self.attn_dim,
            self.num_heads,
            dropout=self.dropout,
            bias=self.w_q.bias is not None,
            kdim=self.context_dim,
            vdim=self.context_dim,
            batch_first=True,
        )
        inner = [self.w_q, self.w_k, self.w_v]
        state = {f"out_proj.{name}": part for name, part in self.w_o.state_dict().items()}
        if made.in_proj_weight is None:
            state |= {f"{n}_proj_weight": w.weight for n, w in zip("qkv", inner, strict=True)}
        else:
            state["in_proj_weight"] = torch.cat([projection.weight for projection in inner])
        if made.in_proj_bias is not None:
            state["in_proj_bias"] = torch.cat([projection.bias for projection in inner])
        made.to(self.w_q.weight)
        made.load_state_dict(state)
        return _as_before(made, self)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Accept the names of `torch.nn.MultiheadAttention`, packed and split, as well as ours."""
        for kind in ("weight", "bias"):
            packed = state_dict.pop(f"{prefix}in_proj_{kind}", None)
            if packed is not None:
                for name, part in zip("qkv", packed.chunk(3), strict=True):
                    state_dict[f"{prefix}w_{name}.{kind}"] = part
            if (outer := state_dict.pop(f"{prefix}out_proj.{kind}", None)) is not None:
                state_dict[f"{prefix}w_o.{kind}"] = outer
        for name in "qkv":
            if (split := state_dict.pop(f"{prefix}{name}_proj_weight", None)) is not None:
                state_dict[f"{prefix}w_{name}.weight"] = split
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def extra_repr(self) -> str:
        """Say what the projections alone do not show."""
        words = [f"num_heads={self.num_heads}", f"kv_heads={self.kv_heads}"]
        words += ["causal=True"] if self.causal else []
        words += [f"dropout={self.dropout}"] if self.dropout else []
        words += ["mesh=…"] if self.mesh is not None else []
        return ", ".join(words)

    def _check(self, name: str, given: Tensor, features: int) -> None:
        require_tensor(name, given)
        if given.is_nested:
            raise DTypeError(f"{name} must be an ordinary tensor; got a nested one. Pad it.")
        if given.ndim != 3 or given.shape[-1] != features:
            raise ShapeError(
                f"{name} must be [batch, positions, features] with {features} features; "
                f"got {list(given.shape)}."
            )

    def _mask(self, mask: Tensor | None, source: Tensor) -> Mask | None:
        if mask is None:
            return None
        require_tensor("mask", mask)
        if mask.shape != source.shape[:2]:
            raise ShapeError(
                f"mask must be [batch, positions] = {list(source.shape[:2])}; "
                f"got {list(mask.shape)}."
            )
        return Padding(mask)


def _as_before(made: Layer, before: nn.Module) -> Layer:
    """Put a layer that was made of another into its mode, and freeze it if that was frozen."""
    if not any(parameter.requires_grad for parameter in before.parameters()):
        made.requires_grad_(False)
    return made.train(before.training)


def _heads(projected: Tensor, heads: int) -> Tensor:
    return projected.unflatten(-1, (heads, -1)).transpose(1, 2)


def _joined_padding(
    members: "Members", visible: Mask | None, layout: "Layout | None"
) -> Padding | None:
    """Return the padding of the whole sequences, of which each rank gives its part.

    Raises:
        RankError: if some give none, or not of as many sequences.
    """
    valid = visible.valid.cpu() if isinstance(visible, Padding) else None
    parts = [part for (part,) in members.agree("SelfAttention", (valid,))]
    shapes = [None if part is None else len(part) for part in parts]
    for rank, rows in enumerate(shapes):
        if rows != shapes[0]:
            raise RankError(
                "mask must be given on all ranks or on none, of the same batch; got "
                f"{shapes[0]} sequences on rank 0 and {rows} on rank {rank}."
            )
    if not isinstance(visible, Padding):
        return None
    whole = torch.cat(parts, dim=1) if layout is None else layout.whole(parts, dim=1)
    return Padding(whole.to(visible.valid.device))


def _without_junk(source: Tensor, valid: Tensor) -> Tensor:
    """Return the sequences with 0 for padded positions that hold NaN or infinity.

    A padded position still looks, and what it sees is no matter; but NaN in its query would reach
    the gradient of every key.
    """
    if compiled.are_tame((source,)) or all_finite(source):
        return source
    junk = ~valid & ~torch.isfinite(source).all(-1)
    return torch.where(junk[..., None], 0, source)


def _gather_dropped(weights: AttentionMap, value: Tensor, dropout: float) -> Tensor:
    """Return dropout(weights) @ value, keeping neither weights nor what was dropped.

    Which weights are dropped follows from one seed and the place of the block, so that the
    backward pass drops the same ones.
    """
    if not weights.numel():
        return value.new_zeros((*weights.shape[:-1], value.shape[-1]))
    rule = weights._rule
    kv_heads = 1 if value.ndim == 3 else value.shape[1]
    heads = rule.sizes[0] // value.shape[0]
    stack = value.reshape(-1, *value.shape[-2:])
    numbers = as_numbers(range(rule.sizes[0]), value.device)
    which = numbers // heads * kv_heads + numbers % heads // (heads // kv_heads)
    seed = int(torch.randint(2**62, ()))
    made = reductions.multiply(rule, stack, which, drop=reductions.Drop(dropout, seed))
    return made.reshape(*weights.shape[:-1], value.shape[-1]).to(value.dtype)
