"""What ranks must not do is refused on all of them, in words, before anything is sent."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from heedmap import Causal, Padding
from heedmap.errors import HeedmapError, UnsupportedError
from heedmap.parallel import Layout, attention
from heedmap.parallel.members import Members

from .processes import Processes


def refused(wrong: str) -> str:
    """Do something that ranks must not do; return what is said."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x = torch.randn(1, 1, 6, 4)
    options: dict[str, Any] = {}
    if wrong == "width":
        x = x[..., : 4 - rank]
    elif wrong == "mask":
        valid = torch.ones(1, 12)
        valid[0, rank] = 0
        options["mask"] = Padding(valid)
    elif wrong == "sinks":
        options["sinks"] = torch.tensor([1.0 + rank])
    elif wrong == "one cannot":
        x = x.long() if rank == 1 else x
    elif wrong == "ranks of a layout":
        options["layout"] = Layout.even(12, size + 1)
    elif wrong == "no layout":
        options["layout"] = "zigzag"
    elif wrong == "lengths of a layout":
        options["layout"] = Layout.of_lengths([5, 7])
    elif wrong == "keys of a bias":
        options["bias"] = torch.zeros(6, 6)
    elif wrong == "transforms":
        return _said(lambda: torch.func.grad(lambda q: attention(q, q, q)[0].sum())(x))
    elif wrong == "no value":
        return _said(lambda: attention(x, x, None))  # pyright: ignore[reportArgumentType]
    elif wrong == "second gradients":
        x.requires_grad_()
        output = attention(x, x, x)[0]
        return _said(lambda: torch.autograd.grad(output.sum(), x, create_graph=True))
    elif wrong == "written into before":
        given = x.clone().requires_grad_()
        output = attention(given, given, given)[0]
        if rank:
            given.detach().add_(1)
        return _said(lambda: output.sum().backward())
    elif wrong in (
        "other questions",
        "other rows",
        "other maps",
        "written into",
        "saved",
        "explored",
    ):
        weights = attention(x, x, x)[1]
        if wrong == "written into":
            if rank:
                x[..., 0] += 1
            return _said(weights.received)
        if wrong == "saved":
            import pickle

            return _said(lambda: pickle.dumps(weights))
        if wrong == "other maps":
            other = attention(x, x, x, mask=Causal())[1]
            return _said((weights if rank else other).received)
        if wrong == "explored":
            return _said(weights.explore)
        if wrong == "other rows":
            return _said(lambda: weights[0, 0, rank].to_dense())
        return _said(weights.received if rank else weights.entropy)
    elif wrong == "a mesh of two dimensions":
        mesh = dist.device_mesh.init_device_mesh("cpu", (1, size))
        return _said(lambda: attention(x, x, x, mesh=mesh))
    elif wrong == "no mesh":
        return _said(lambda: attention(x, x, x, mesh="all"))  # pyright: ignore
    elif wrong == "somebody else's group":
        group = dist.new_group([0])
        return _said(lambda: attention(x, x, x, mesh=group)) if rank else ""
    return _said(lambda: attention(x, x, x, **options))


def _said(call: Callable[[], Any]) -> str:
    try:
        call()
    except HeedmapError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


WRONG = {
    "width": ["RankError: the widths of query and value must be the same on all ranks; got"] * 2,
    "mask": ["RankError: mask must be the same on all ranks; got Padding"] * 2,
    "sinks": ["RankError: sinks must be the same on all ranks; got float32 [1] #"] * 2,
    "one cannot": [
        "RankError: rank 1 must be able to take part; it got: query must be float64",
        "DTypeError: query must be float64, float32",
    ],
    "ranks of a layout": ["ShapeError: layout must be of as many ranks as the mesh has, 2; got 3"]
    * 2,
    "no layout": ["ArgumentError: layout must be a heedmap.parallel.Layout or None; got str"] * 2,
    "lengths of a layout": [
        "ShapeError: what rank 0 gives must be the 5 positions that layout says; got 6 of query",
        "ShapeError: what rank 1 gives must be the 7 positions that layout says; got 6 of query",
    ],
    "keys of a bias": ["ShapeError: bias must be of this rank's queries and all 12 keys"] * 2,
    "transforms": ["UnsupportedError: attention over several ranks must be called outside"] * 2,
    "no value": ["DTypeError: value must be a tensor, on every rank; got None."] * 2,
    "second gradients": ["UnsupportedError: create_graph must be False over several ranks"] * 2,
    "other questions": ["RankError: all ranks must ask the same, in the same order; rank 0"] * 2,
    "other maps": ["RankError: all ranks must ask the same, in the same order; rank 0"] * 2,
    "other rows": ["RankError: all ranks must ask the same, in the same order; rank 0"] * 2,
    "written into": [
        "RankError: rank 1 must be able to take part; it got: query, key, bias and sinks of a",
        "UnsupportedError: query, key, bias and sinks of a rank must not be written into",
    ],
    "written into before": [
        "RankError: rank 1 must be able to take part; it got: what attention was given on",
        "UnsupportedError: what attention was given on a rank must not be written into before",
    ],
    "saved": ["UnsupportedError: a map over several ranks must not be pickled or saved"] * 2,
    "explored": ["UnsupportedError: a map to be explored must be that of one process"] * 2,
    "a mesh of two dimensions": ["ArgumentError: mesh must have one dimension, that of the"] * 2,
    "no mesh": ["ArgumentError: mesh must be a DeviceMesh or a ProcessGroup; got str."] * 2,
    "somebody else's group": ["", "UnsupportedError: this process must be one of the mesh"],
}


@pytest.mark.bad_input
@pytest.mark.parametrize("wrong", WRONG)
def test_what_ranks_must_not_do(processes: Processes, wrong: str) -> None:
    said = processes.run(2, refused, wrong)
    for told, expected in zip(said, WRONG[wrong], strict=True):
        assert told.startswith(expected), told


def test_without_a_process_group() -> None:
    x = torch.randn(1, 1, 6, 4)
    with pytest.raises(UnsupportedError, match="process group must be there before a sequence"):
        attention(x, x, x)


def said_of_gpus() -> list[str]:
    """Return what is said of tensors on a GPU that gloo, and on a CPU that nccl is to send."""
    members, told = Members.of(None), []
    of_group = dist.get_backend_config
    for config, device in (("cpu:gloo,cuda:gloo", "cuda"), ("cuda:nccl", "cpu")):
        dist.get_backend_config = lambda _, config=config: config
        told.append(_said(lambda device=device: members.require_device(torch.device(device))))
    dist.get_backend_config = of_group
    return told


def test_a_group_that_does_not_send_from_a_device(processes: Processes) -> None:
    (said,) = processes.run(1, said_of_gpus)
    for told, device in zip(said, ("cuda", "cpu"), strict=True):
        assert f"mesh must have a backend that sends tensors of {device}; got c" in told
