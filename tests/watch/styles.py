"""Ways in which people write attention by hand: functions of query, key and value."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 6, 8
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
VALID = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]).bool()
SCORES = torch.linspace(-2, 2, HEADS * LENGTH * LENGTH).sin().reshape(HEADS, LENGTH, LENGTH)
LEAST = torch.finfo(torch.float32).min
SCALE = 1 / math.sqrt(WIDTH)

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Style:
    """A way to write it, and what its weights are by the formula.

    Attributes:
        attend: The code.
        meaning: What `dense_weights` is to be asked for.
        kept: Whether factors give the weights.
    """

    attend: Attend
    meaning: dict[str, Any] = field(default_factory=dict)
    kept: str = "factors"


def timm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q * SCALE @ k.transpose(-2, -1)).softmax(dim=-1)
    return F.dropout(weights, 0.1, training=False) @ v


def by_named_functions(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.div(torch.matmul(q, torch.transpose(k, -1, -2)), math.sqrt(WIDTH))
    return torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).type_as(v), v)


def by_modules(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.Dropout(0.1).eval()(nn.Softmax(-1)(q @ k.mT * SCALE)) @ v


def scaled_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT
    scores /= math.sqrt(WIDTH)
    return torch.softmax(scores, -1) @ v


def einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.einsum("b h i d, b h j d -> b h i j", q * SCALE, k).softmax(-1)
    return torch.einsum("b h i j, b h j d -> b h i d", weights, v)


def einsum_of_positions_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    weights = (torch.einsum("bihd,bjhd->bhij", q, k) * SCALE).softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", weights, v).transpose(1, 2)


def einsum_with_dots(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (torch.einsum("...id,...jd->...ij", q, k) * SCALE).softmax(-1)
    return torch.einsum("...ij,...jd->...id", weights, v)


def einsum_of_values_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (torch.einsum("bhid,bhjd->bhij", q, k) * SCALE).softmax(-1)
    return torch.einsum("bhjd,bhij->bhid", v, weights)


def folded(tensor: Tensor) -> Tensor:
    return tensor.reshape(BATCH * HEADS, LENGTH, -1)


def baddbmm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    bias = SCORES[:, :1].repeat(BATCH, 1, 1)
    scores = bias.baddbmm(batch1=folded(q), batch2=folded(k).mT, beta=0.5, alpha=SCALE)
    scores = scores.view(BATCH, HEADS, LENGTH, LENGTH)
    scores = scores + torch.where(CAUSAL, 0.0, LEAST)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    output = torch.bmm(weights.view(BATCH * HEADS, LENGTH, LENGTH), folded(v))
    return output.view(BATCH, HEADS, LENGTH, -1)


def folded_and_unfolded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.bmm(folded(q) * SCALE, folded(k).mT)
    scores += CAUSAL.logical_not().float().masked_fill(~CAUSAL, -torch.inf)
    scores = scores.view(BATCH, HEADS, LENGTH, LENGTH)
    scores = scores.masked_fill(~VALID[:, None, None], -torch.inf)
    scores = scores.view(BATCH * HEADS, LENGTH, LENGTH)
    weights = F.softmax(scores, dim=-1)
    return torch.bmm(weights, folded(v)).view(BATCH, HEADS, LENGTH, -1)


def windows_of_pictures(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * SCALE + SCORES.unsqueeze(0)
    mask = torch.zeros(2, LENGTH, LENGTH).masked_fill(~torch.stack([CAUSAL, CAUSAL.mT]), -100.0)
    scores = scores.view(1, 2, HEADS, LENGTH, LENGTH) + mask.unsqueeze(1).unsqueeze(0)
    return scores.view(-1, HEADS, LENGTH, LENGTH).softmax(-1) @ v


WINDOWS = SCORES + torch.zeros(2, 1, LENGTH, LENGTH).masked_fill(
    ~torch.stack([CAUSAL, CAUSAL.mT])[:, None], -100.0
)
TEMPERATURES = torch.linspace(0.1, 0.5, HEADS)[:, None, None]


def a_scale_for_each_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT * TEMPERATURES).softmax(-1) @ v


def masked_fill(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.mT * SCALE).masked_fill(CAUSAL == 0, float("-inf"))
    return scores.softmax(-1) @ v


def masked_fill_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * SCALE
    scores.masked_fill_(~VALID[:, None, None], -1e9)
    return scores.softmax(-1) @ v


def where(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * SCALE
    return torch.where(CAUSAL, scores, torch.full([], LEAST)).softmax(-1) @ v


def where_it_hides(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.where(~CAUSAL, -torch.inf, q @ k.mT * SCALE).softmax(-1) @ v


def added_in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * SCALE
    scores += torch.where(CAUSAL, SCORES, LEAST)
    return scores.softmax(-1) @ v


def taken_away(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    hidden = (~VALID).float()[:, None, None]
    return (q @ k.mT * SCALE - hidden * 1e9).softmax(-1) @ v


def bias_before_scale(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q @ k.mT + SCORES) * SCALE).softmax(-1) @ v


def assigned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * SCALE
    scores[..., ~CAUSAL] = -torch.inf
    return scores.softmax(-1) @ v


def assigned_to_weights(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q @ k.mT * SCALE + torch.where(CAUSAL, 0.0, LEAST)).softmax(-1)
    weights[..., ~CAUSAL] = 0.0
    return weights @ v


def largest_taken_away(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT * SCALE
    return (scores - scores.amax(-1, keepdim=True)).softmax(-1) @ v


def cleaned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.mT * SCALE).masked_fill(CAUSAL, -torch.inf)
    return torch.nan_to_num(scores.softmax(-1)) @ v


def hidden_twice(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.mT * SCALE).masked_fill(CAUSAL, LEAST)
    return scores.softmax(-1).masked_fill(CAUSAL, 0.0) @ v


def soft_cap(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (torch.tanh(q @ k.mT * SCALE / 0.5) * 0.5).softmax(-1) @ v


def channels_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.bmm(folded(q), folded(k).mT).mul(SCALE).softmax(dim=2).permute(0, 2, 1)
    output = torch.bmm(folded(v).mT, weights)
    return output.mT.reshape(BATCH, HEADS, LENGTH, -1)


def without_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q[0, 0] @ k[0, 0].T * SCALE).softmax(-1) @ v[0, 0]


def clamped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT * SCALE).clamp(max=100.0).softmax(-1) @ v


def head_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT * SCALE).softmax(-1) * torch.ones(HEADS, 1, 1) @ v


STYLES: dict[str, Style] = {
    "timm": Style(timm),
    "named functions": Style(by_named_functions),
    "modules": Style(by_modules),
    "scaled in place": Style(scaled_in_place),
    "einsum": Style(einsum),
    "einsum of positions first": Style(einsum_of_positions_first),
    "einsum with dots": Style(einsum_with_dots),
    "einsum of values first": Style(einsum_of_values_first),
    "baddbmm": Style(baddbmm, {"visible": CAUSAL, "bias": SCORES[:, :1] * 0.5}),
    "folded and unfolded": Style(folded_and_unfolded, {"visible": CAUSAL & VALID[:, None, None]}),
    "windows of pictures": Style(windows_of_pictures, {"bias": WINDOWS}),
    "a scale for each head": Style(a_scale_for_each_head, {"scale": TEMPERATURES}),
    "masked_fill": Style(masked_fill, {"visible": CAUSAL}),
    "masked_fill_": Style(masked_fill_in_place, {"visible": VALID[:, None, None]}),
    "where": Style(where, {"visible": CAUSAL}),
    "where it hides": Style(where_it_hides, {"visible": CAUSAL}),
    "+=": Style(added_in_place, {"visible": CAUSAL, "bias": SCORES}),
    "taken away": Style(taken_away, {"visible": VALID[:, None, None]}),
    "bias before scale": Style(bias_before_scale, {"bias": SCORES * SCALE}),
    "assigned": Style(assigned, {"visible": CAUSAL}, "weights"),
    "assigned to weights": Style(assigned_to_weights, {"visible": CAUSAL}, "weights"),
    "largest taken away": Style(largest_taken_away),
    "cleaned": Style(cleaned, {"visible": ~CAUSAL}),
    "hidden twice": Style(hidden_twice, {"visible": ~CAUSAL}),
    "channels first": Style(channels_first),
    "clamped": Style(clamped, {}, "weights"),
    "head mask": Style(head_mask, {}, "weights"),
}
