"""What a backward pass takes: each program runs by itself, and its peak is measured."""

import subprocess
import sys
import textwrap

import pytest

HEAD = """
    import torch, torch.nn.functional as F, heedmap
    from heedmap.nn import SelfAttention
    # The other figure, ru_maxrss, is inherited from the process that starts this one.
    def peak():
        status = open("/proc/self/status").read()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    torch.manual_seed(0)
    torch.set_num_threads(1)
    small = torch.randn(1, 64, 16, requires_grad=True)
    heedmap.attention(small, small, small)[1].entropy().sum().backward()
"""

AT_16_384 = {
    f"the output, {backend}": f"""
        query, key, value = (torch.randn(1, 1, 16_384, 16, requires_grad=True) for _ in range(3))
        before = peak()
        output, _ = heedmap.attention(query, key, value, backend={backend!r})
        output.square().sum().backward()
        assert all(torch.isfinite(t.grad).all() for t in (query, key, value))
    """
    for backend in ("auto", "fused", "tiles")
}
AT_16_384 |= {
    "largest weights, a picture, the log-normaliser": """
        query, key = (torch.randn(1, 1, 16_384, 16, requires_grad=True) for _ in range(2))
        before = peak()
        weights = heedmap.AttentionMap.from_factors(query, key, mask=heedmap.Causal())
        loss = weights.topk(4).values.sum() + weights.pool(64, 64).square().sum()
        (loss + weights.log_normalizer.sum()).backward()
        assert torch.isfinite(query.grad).all() and torch.isfinite(key.grad).all()
    """,
    "a bias for each key, and sinks": """
        query, key, value = (torch.randn(1, 2, 16_384, 16, requires_grad=True) for _ in range(3))
        bias, sinks = torch.zeros(1, 2, 1, 16_384, requires_grad=True), torch.zeros(2)
        before = peak()
        output, _ = heedmap.attention(
            query, key, value, bias=bias, sinks=sinks.requires_grad_(), mask=heedmap.Causal()
        )
        output.square().sum().backward()
        assert torch.isfinite(bias.grad).all() and torch.isfinite(sinks.grad).all()
    """,
}

AT_24_000 = {
    "training a layer so that positions look at their own place": """
        layer = SelfAttention(16, 16)
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        x = torch.randn(1, 24_000, 16)
        place = torch.arange(24_000) / 24_000
        powers = torch.stack([torch.ones(24_000), place, place.square()], dim=1)
        before, losses = peak(), []
        for step in range(2):
            _, weights = layer(x)
            one, mean, square = (weights @ powers).unbind(-1)
            # The mean of (place of query - place of key)², over all that a query looks at.
            distance = (place.square() * one - 2 * place * mean + square).mean()
            # As if each position had been aligned with itself by hand.
            surprise = -weights.log_weights.diagonal(dim1=-2, dim2=-1).mean()
            loss = distance + surprise / 10
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[1] < losses[0]
    """,
    "training a watched model": """
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.project = torch.nn.Linear(16, 48)
            def forward(self, x):
                return F.scaled_dot_product_attention(*self.project(x)[:, None].chunk(3, -1))
        model, x = Model(), torch.randn(1, 24_000, 16)
        before = peak()
        with heedmap.watch(model, grad=True) as seen:
            model(x)
        seen[0].entropy().mean().backward()
        assert model.project.weight.grad[:32].abs().max() > 0
    """,
    "relevance: the gradient with respect to the weights, times the weights": """
        query, key, value = (torch.randn(1, 1, 24_000, 16, requires_grad=True) for _ in range(3))
        before = peak()
        output, weights = heedmap.attention(query, key, value, mask=heedmap.Causal())
        weights.retain_grad()
        output[0, 0, -1].square().sum().backward()
        relevance = (weights.grad * weights.detach()).clamp(min=0)
        assert relevance[0, 0, -1].topk(3).values.min() > 0
        assert relevance.sum(-2).shape == (1, 1, 24_000)
    """,
}


def growth_mib(program: str) -> float:
    """Return by how much the peak of a program's memory lies over what it began with."""
    whole = "\n".join(map(textwrap.dedent, (HEAD, program, "print(peak() - before)")))
    ran = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return float(ran.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("program", AT_16_384.values(), ids=AT_16_384)
def test_at_16_384_positions(program: str) -> None:
    """One dense matrix of one head would take 1,024 MiB."""
    assert growth_mib(program) < 200


@pytest.mark.slow
@pytest.mark.parametrize("program", AT_24_000.values(), ids=AT_24_000)
def test_on_weights_of_which_a_dense_matrix_takes_more_than_2_gb(program: str) -> None:
    assert growth_mib(program) < 200


@pytest.mark.slow
def test_that_of_entropy_and_received_grows_with_the_length_not_with_its_square() -> None:
    program = """
        query, key = (torch.randn(1, 1, {length}, 64, requires_grad=True) for _ in range(2))
        before = peak()
        weights = heedmap.AttentionMap.from_factors(query, key)
        (weights.entropy().mean() + weights.received().square().mean()).backward()
        assert torch.isfinite(query.grad).all() and torch.isfinite(key.grad).all()
    """
    short, long = (growth_mib(program.format(length=length)) for length in (8_192, 16_384))
    # A few blocks are the same at any length.
    assert long - short < short
    assert long < 200
