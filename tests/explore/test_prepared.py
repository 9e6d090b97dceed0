"""Weights whose log-normalisers are made row by row: every flavour of map, against its twin."""

import threading

import pytest
import torch
from torch import Tensor

import heedmap
from heedmap import AttentionMap, Causal, Padding
from heedmap.errors import UnsupportedError
from heedmap.explore import softmax
from heedmap.explore.heads import Head
from heedmap.explore.prepared import Prepared, prepare
from heedmap.explore.stopping import Stopped, wanted_until
from heedmap.kernels import native
from heedmap.places import Index
from heedmap.problem import Problem
from tests.contract.flavours import OTHERS, PROBLEMS, from_problem
from tests.explore.dense import factors, picture_of


def unread(name: str) -> tuple[AttentionMap, Tensor]:
    """Return a map of whose rows nothing is known, and its twin."""
    given = PROBLEMS[name]()
    return AttentionMap.from_factors(given.query, given.key, **given.options), given.dense


def heads_of(weights: AttentionMap) -> list[Head]:
    rule = prepare(weights._rule)
    return [Head(rule, number) for number in range(rule.sizes[0])]


def problem_of(head: Head) -> Problem:
    assert isinstance(head.rule, Prepared)
    return head.rule.problem


def whole(head: Head) -> Tensor:
    return head.tile(range(head.queries), range(head.keys))


@pytest.fixture(params=["our own kernel", "PyTorch"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Compute with and without our own kernel."""
    if request.param == "PyTorch":
        monkeypatch.setattr(native, "serves", lambda *_: False)
    return request.param


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("is_known", [True, False])
def test_weights_are_those_of_the_plain_formula(name: str, is_known: bool):
    weights, dense = unread(name)
    if is_known:
        weights = from_problem(PROBLEMS[name](), "auto")
    for head, twin in zip(heads_of(weights), dense.flatten(0, 1), strict=True):
        torch.testing.assert_close(whole(head).double(), twin, rtol=2e-6, atol=1e-7)
        sums = head.row_sums(range(2, head.queries))
        assert sums is not None
        torch.testing.assert_close(sums.double(), twin[2:].sum(1), rtol=2e-6, atol=1e-6)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("side", [1, 2, 4, 16])
def test_one_pass_gives_the_picture_that_the_plain_formula_gives(name: str, side: int):
    weights, dense = unread(name)
    for head, twin in zip(heads_of(weights), dense.flatten(0, 1), strict=True):
        rows = range(side, head.queries) if side < head.queries else range(head.queries)
        cut = twin[rows.start :]
        # Once without log-normalisers and, where our own kernel is there and serves, once with.
        for again in (False, True):
            assert head.missing(rows) == (0 if again else len(rows))
            found = head.sums_and_maxima(rows, side, side)
            if again and not native.serves(problem_of(head), None):
                assert found is None
                continue
            assert found is not None
            for pixels, statistic in zip(found, ("sum", "max"), strict=True):
                expected = picture_of(cut, statistic, side)
                torch.testing.assert_close(pixels, expected.float(), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("name", OTHERS)
def test_maps_made_of_others_are_read_the_same(name: str):
    weights, dense = OTHERS[name]()
    for head, twin in zip(heads_of(weights), dense.flatten(0, -3), strict=True):
        torch.testing.assert_close(whole(head).double(), twin.double(), rtol=2e-6, atol=1e-7)


def test_only_the_rows_that_are_read_are_made(monkeypatch: pytest.MonkeyPatch):
    made: list[int] = []
    log_normalizer = softmax.log_normalizer

    def counted(problem, matrix, rows):
        made.append(len(rows))
        return log_normalizer(problem, matrix, rows)

    monkeypatch.setattr(softmax, "log_normalizer", counted)
    weights = AttentionMap.from_factors(factors(2, 900, 4), factors(2, 900, 4, seed=1))
    first, second = heads_of(weights)
    first.tile(range(100, 130), range(5))
    first.tile(range(120, 140), range(5))
    assert made == [30, 10]
    assert (first.missing(range(900)), second.missing(range(900))) == (860, 900)
    mean = heads_of(weights.mean(0, keepdim=True))[0]
    mean.tile(range(10), range(5))
    assert made == [30, 10, 10, 10]
    assert weights._rule.normalizer.known is None


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype):
    query, key = (factors(1, 1, 40, 8, seed=s).to(dtype) for s in (0, 1))
    expected = torch.softmax(query.double() @ key.double().mT / 8**0.5, -1)[0, 0]
    known = heedmap.attention(query, key, key)[1]
    for weights in (known[0], AttentionMap.from_factors(query, key)[0]):
        found = whole(heads_of(weights)[0])
        torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=1e-7)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("with_sinks", [True, False])
def test_scores_far_from_0_keep_their_digits(is_known: bool, with_sinks: bool):
    query, key = factors(2, 70, 8, scale=25), factors(2, 70, 8, seed=1, scale=25)
    sinks = torch.tensor([3.0, 200.0]) if with_sinks else None
    scores = query.double() @ key.double().mT / 8**0.5
    scores = scores.masked_fill(~torch.ones(70, 70).tril().bool(), -torch.inf)
    divisor = scores
    if sinks is not None:
        divisor = torch.cat([scores, sinks.double()[:, None, None].expand(2, 70, 1)], -1)
    expected = torch.exp(scores - divisor.logsumexp(-1, keepdim=True))
    options = {"mask": Causal(), "sinks": sinks}
    weights = AttentionMap.from_factors(query[None], key[None], **options)[0]
    if is_known:
        weights = heedmap.attention(query[None], key[None], key[None], **options)[1][0]
    for head, twin in zip(heads_of(weights), expected, strict=True):
        assert head.sums_and_maxima(range(70), 4, 4) is None
        torch.testing.assert_close(whole(head).double(), twin, rtol=2e-6, atol=1e-7)


@pytest.mark.usefixtures("kernel")
def test_nan_stays_in_its_row_and_column():
    query, key = factors(1, 1, 12, 4), factors(1, 1, 12, 4, seed=1)
    query[0, 0, 3, 1] = torch.nan
    for mask in (None, Causal(), Padding(torch.ones(1, 12).bool())):
        head = heads_of(AttentionMap.from_factors(query, key, mask=mask)[0])[0]
        found = whole(head)
        expected = AttentionMap.from_factors(query, key, mask=mask)[0, 0].to_dense()
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert found[3].isnan().any()
        assert not found[[0, 1, 2, 4, 11]].isnan().any()


def test_who_does_not_want_an_answer_any_more_stops_it():
    (head,) = heads_of(AttentionMap.from_factors(factors(1, 600, 4), factors(1, 600, 4)))
    answers = iter([False, True])
    with wanted_until(lambda: next(answers)), pytest.raises(Stopped):
        head.tile(range(600), range(600))
    assert head.missing(range(600)) == 600 - 256
    assert whole(head).sum() == pytest.approx(600)


def test_factors_that_were_written_into_are_refused():
    query = factors(1, 20, 4)
    (head,) = heads_of(AttentionMap.from_factors(query, factors(1, 20, 4)))
    whole(head)
    query[0, 0] = 5
    with pytest.raises(UnsupportedError, match="must not be written into"):
        whole(head)


@pytest.mark.parametrize("rows", [torch.tensor([8, 2, 5]), range(1, 9, 3), range(3, 4)])
@pytest.mark.parametrize("name", PROBLEMS)
def test_rows_that_are_cut_out_have_the_same_log_normalisers(name: str, rows: Index):
    weights, _ = unread(name)
    for matrix, head in enumerate(heads_of(weights)):
        problem = problem_of(head)
        found = softmax.log_normalizer(problem, matrix, rows)
        expected = softmax.sweep(problem, matrix, rows).normalizer
        torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)


def test_threads_that_read_at_once_read_the_same():
    weights = AttentionMap.from_factors(factors(1, 700, 8), factors(1, 700, 8, seed=1))
    expected = weights[0].to_dense()
    (head,) = heads_of(AttentionMap.from_factors(factors(1, 700, 8), factors(1, 700, 8, seed=1)))
    wrong: list[int] = []

    def read(start: int) -> None:
        for first in range(start, 700, 50):
            rows = range(first, min(first + 90, 700))
            found = head.tile(rows, range(700))
            if not torch.allclose(found, expected[first : first + 90], atol=1e-6):
                wrong.append(first)

    threads = [threading.Thread(target=read, args=(start,)) for start in (0, 7, 13, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_problem_is_prepared_once_however_often_a_rule_names_it():
    weights = AttentionMap.from_factors(factors(2, 8, 4), factors(2, 8, 4))
    rule = prepare((weights + weights)._rule)
    first, second = rule.operands  # pyright: ignore[reportAttributeAccessIssue]
    assert isinstance(first, Prepared)
    assert first is second
