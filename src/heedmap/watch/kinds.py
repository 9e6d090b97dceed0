"""Whether a call attends to its own sequence, to what came before, or to another one."""

import re

from torch import nn

from heedmap.layers import Kind
from heedmap.watch.call import Call
from heedmap.watch.spans import stretches_of

_CROSS = re.compile(r"cross|enc_?dec|encoder_attn|enc_attn", re.IGNORECASE)


def kind_of(name: str, module: nn.Module | None, call: Call) -> Kind:
    """Return the kind of a call.

    Whether keys come from another sequence is said by the call where it was given both sequences,
    else by the module (``is_cross_attention``, or its name), else by unequal lengths that no cache
    explains.
    """
    queries, keys = call.query.shape[2], call.key.shape[2]
    crosses = call.crosses
    if crosses is None and getattr(module, "is_cross_attention", False) is True:
        crosses = True
    if crosses is None and _CROSS.search(".".join(name.split(".")[-2:])):
        crosses = True
    if crosses:
        return "cross"
    if _is_causal(call):
        return "causal"
    return "cross" if crosses is None and queries not in (1, keys) else "self"


def _is_causal(call: Call) -> bool:
    """Whether no query sees a key behind its own place, and one sees less than all."""
    extent = call.extent
    if call.mask is None or not extent.queries:
        return False
    stretches = stretches_of(call.mask, extent, call.query.device)
    if stretches is None:
        return False
    offset = stretches.written(extent.keys) - extent.queries
    last = stretches.last
    behind = (last - offset).amax((0, 1)).tolist()
    if extent.queries == 1:
        return extent.keys == 1
    return all(end <= row for row, end in enumerate(behind))
