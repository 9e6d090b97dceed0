"""What all tests share: a guard against matrices that should never exist."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import heedmap

ForbidDense = Callable[[int], AbstractContextManager[None]]


@pytest.fixture
def forbid_dense() -> ForbidDense:
    """Return a function that forbids, in a block, tensors of so many cells or more.

    ``with forbid_dense(queries * keys):`` fails the test as soon as a torch operation in the block,
    forward or backward, allocates a tensor of that many elements. Views of what is there already
    are fine. What an operation allocates and frees within itself is not seen.
    """
    return _forbid_dense


@contextmanager
def _forbid_dense(cells: int) -> Iterator[None]:
    with heedmap.dense_budget(0), _NoTensorOf(cells):
        yield


class _NoTensorOf(TorchDispatchMode):
    """Fails when an operation returns new memory of at least `cells` elements."""

    def __init__(self, cells: int) -> None:
        super().__init__()
        self.cells = cells

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_storage(tensor) for tensor in _tensors((args, kwargs))}
        returned = func(*args, **(kwargs or {}))
        for tensor in _tensors(returned):
            elements = tensor.untyped_storage().nbytes() // tensor.element_size()
            if elements >= self.cells and _storage(tensor) not in given:
                # A BaseException, so that no handler in the code under test hides it.
                pytest.fail(
                    f"{func} made a tensor of {elements} elements, shape {list(tensor.shape)}; "
                    f"{self.cells} or more are forbidden here."
                )
        return returned


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
