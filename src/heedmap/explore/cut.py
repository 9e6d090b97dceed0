"""One matrix of a problem, and some of its rows, as a problem of its own."""

from dataclasses import replace

import torch
from torch import Tensor

from heedmap.kernels.spans import hidden_of
from heedmap.masks import Mask, Padding, Spans, Visible
from heedmap.places import Index, as_numbers, pick
from heedmap.problem import Problem


def cut(problem: Problem, matrix: int, rows: Index) -> Problem:
    """Return a problem of one head whose queries are these rows of a matrix.

    Args:
        problem: One that our own kernel serves, which asks no mask where its rows once stood.
        matrix: Which of batch × heads.
        rows: At least one.
    """
    batch, head = divmod(matrix, problem.extent.heads)
    (key_matrix,) = problem.key_matrices(range(matrix, matrix + 1))
    bias, sinks = problem.scoring.bias, problem.scoring.sinks
    scoring = replace(
        problem.scoring,
        bias=None if bias is None else _rows_of(_matrix_of(bias, batch, head), rows),
        sinks=None if sinks is None else sinks[head : head + 1],
    )
    return Problem(
        pick(problem.flat_query[matrix], rows, 0)[None, None],
        problem.flat_key[int(key_matrix)][None, None],
        _mask_of(problem, batch, head, rows),
        scoring,
        problem.clean,
    )


def _mask_of(problem: Problem, batch: int, head: int, rows: Index) -> Mask | None:
    if problem.mask is None:
        return None
    numbers = as_numbers(rows, torch.device("cpu"))
    start, stop = int(numbers.min()), int(numbers.max()) + 1
    hidden = hidden_of(problem, range(start, stop))
    own = numbers - start
    valid = None if hidden.valid is None else hidden.valid[batch % len(hidden.valid)][None]
    mask: Mask | None = None if valid is None else Padding(valid)
    if hidden.first is not None and hidden.last is not None:
        first, last = (
            _matrix_of(ends[..., None], batch, head)[:, :, own, 0]
            for ends in (hidden.first, hidden.last)
        )
        mask = Spans(first, last, valid)
    if hidden.visible is not None:
        table = Visible(_rows_of(_matrix_of(hidden.visible, batch, head), own))
        mask = table if mask is None else mask & table
    return mask


def _matrix_of(table: Tensor, batch: int, head: int) -> Tensor:
    """Return what a table whose sizes of 1 stand for all says of one matrix."""
    own = table[batch if table.shape[0] > 1 else 0, head if table.shape[1] > 1 else 0]
    return own[None, None]


def _rows_of(table: Tensor, rows: Index) -> Tensor:
    return table if table.shape[2] == 1 else pick(table, rows, 2)
