"""From the processes that torchrun has started to a mesh of ranks that work together."""

import functools
import itertools
import math
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from heedmap.errors import ArgumentError, UnsupportedError
from heedmap.parallel import faults
from heedmap.parallel.members import Members, require_alike

WANTED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells each process."""


def start(
    *, device: Literal["cpu", "cuda"] | None = None, fault_seconds: float = 30.0
) -> DeviceMesh:
    """Return the mesh of all ranks, which every other call takes as ``mesh=``.

    The process group that runs already is taken; else one is begun with what torchrun says: gloo
    for tensors on the CPU, NCCL for those on CUDA, where each rank of a machine gets a GPU. Without
    torchrun this process is the only rank, so that a program can be tried by itself.

    From then on ranks that are gone are named. In the middle of a call of `heedmap.parallel` the
    others raise a `heedmap.errors.RankError` or, where PyTorch cannot be made to stop waiting, end
    with its message on stderr; who is busy with something else raises at the next call. With NCCL,
    where nothing tells whether a GPU waits, they end wherever they are.

    It is a collective: every rank must call it.

    Args:
        device: Where the tensors are; None for CUDA where it is there.
        fault_seconds: Within which time a rank that was killed, stopped or cut off is named. One
            that holds Python's lock for half as long, in code that is not PyTorch's, counts as
            stopped. That a rank waits for itself in vain ends after the group's own timeout.

    Returns:
        A mesh of one dimension. Its ranks may as well be a dimension of a larger mesh of yours:
        give ``mesh["name"]`` to the other calls then.

    Raises:
        ArgumentError: for half of what torchrun says, for a device that is not there, or for more
            ranks on a machine than it has GPUs.
        RankError: if the ranks have different versions of heedmap or PyTorch.
        UnsupportedError: if PyTorch was built without torch.distributed.

    Cost: a thread that wakes up 15 times in `fault_seconds`, to read one number of each rank.

    Example:
        >>> mesh = start(device="cpu")
        >>> mesh.size()
        1
        >>> stop()
    """
    if not dist.is_available():
        raise UnsupportedError(
            "torch must have torch.distributed; this build has not. Install another build."
        )
    if not 0 < fault_seconds < math.inf:
        raise ArgumentError(f"fault_seconds must be above 0, and finite; got {fault_seconds}.")
    if device not in (None, "cpu", "cuda"):
        raise ArgumentError(f"device must be 'cpu', 'cuda' or None; got {device!r}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("device must be one that is there; got 'cuda'. Use 'cpu'.")
    if not dist.is_initialized():
        device = _begin_group(device)
    group = dist.group.WORLD
    assert group is not None
    backends = dist.get_backend_config(group)
    if device is None:
        device = "cuda" if "cuda:nccl" in backends and torch.cuda.is_available() else "cpu"
    store = group.get_group_store()
    signs = faults.begin(store, group.rank(), group.size(), fault_seconds)
    members = Members.of(group)
    versions = {"the version of heedmap": _version(), "the version of torch": torch.__version__}
    require_alike(members.agree("start", versions))
    faults.go_on(signs, everywhere=device == "cuda" and "nccl" in backends)
    return init_device_mesh(device, (group.size(),), mesh_dim_names=("sequence",))


def stop() -> None:
    """End what `start` began, at the end of a program: the others miss this rank no more.

    A process group that ran before stays.
    """
    global _began
    faults.end()
    if _began and dist.is_initialized():
        dist.destroy_process_group()
    _began = False


_began = False


def _begin_group(device: str | None) -> Literal["cpu", "cuda"]:
    """Begin the process group, and return where its tensors are."""
    global _began
    lacking = [name for name in WANTED if not os.environ.get(name)]
    if lacking and lacking != list(WANTED):
        raise ArgumentError(
            f"torchrun must have said all of {', '.join(WANTED)}; got an environment without "
            f"{lacking[0]}. Run: torchrun --nproc-per-node 2 program.py."
        )
    connect = _alone if lacking else _connected
    if device == "cpu" or not torch.cuda.is_available():
        dist.init_process_group("gloo", **connect())
        _began = True
        return "cpu"
    number, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= count:
        raise ArgumentError(
            f"ranks on a machine must be at most as many as its GPUs, {count}; got rank {number} "
            "there. Give torchrun a smaller --nproc-per-node, or start(device='cpu')."
        )
    torch.cuda.set_device(number)
    own = torch.device("cuda", number)
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=own, **connect())
    _began = True
    return "cuda"


def _alone() -> dict[str, Any]:
    """Return how to begin a group of this process alone."""
    store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    return {"store": store, "rank": 0, "world_size": 1}


_times = itertools.count()


def _connected() -> dict[str, Any]:
    """Return how to begin a group of the ranks that torchrun has started.

    Each group has names of its own in their store. Else one that is begun after another has ended
    would read where the ranks of that one were to be reached, and wait for them for ever.
    """
    store, rank, size = _meeting(*(os.environ[name] for name in WANTED))
    return {"store": PrefixStore(f"start {next(_times)}", store), "rank": rank, "world_size": size}


@functools.cache
def _meeting(*told: str) -> tuple[Store, int, int]:
    """Return the store that connects the ranks, this rank and how many there are.

    It is kept until the process ends: where it lies in rank 0, others may be on their way to it.
    """
    del told
    return next(rendezvous("env://"))


def _version() -> str:
    try:
        return version("heedmap")
    except PackageNotFoundError:
        return "unknown"
