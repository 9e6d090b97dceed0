import pytest
import torch

from heedmap.plot.scale import Range, linear_range, logarithmic_range


def test_small_pictures_are_not_clipped():
    values = torch.rand(200, generator=torch.Generator().manual_seed(0))
    assert linear_range(values) == Range(0.0, values.max().item(), values.max().item())


def test_a_few_large_weights_do_not_hide_the_rest():
    values = torch.full((100, 100), 1e-3)
    values[:, 0] = torch.linspace(1e-3, 2e-3, 100)
    values[0, 0] = 0.9
    limits = linear_range(values)
    assert limits.clipped
    assert limits.highest < 0.01
    assert limits.largest == pytest.approx(0.9)


def test_a_sharp_line_leaves_an_even_ground_dark():
    values = torch.full((512, 512), 1e-6)
    values.fill_diagonal_(0.99)
    assert linear_range(values).highest > 1000 * 1e-6


def test_zeros_do_not_count():
    values = torch.zeros(1000)
    values[:3] = torch.tensor([0.1, 0.2, 0.3])
    assert linear_range(values).highest == pytest.approx(0.3)


def test_all_zero_has_a_range():
    assert linear_range(torch.zeros(4)).highest == 1.0
    assert logarithmic_range(torch.zeros(4)).lowest > 0


def test_a_logarithmic_scale_spans_four_powers_of_ten_at_most():
    limits = logarithmic_range(torch.tensor([1.0, 1e-9]))
    assert limits.highest / limits.lowest == pytest.approx(1e4)
    assert logarithmic_range(torch.tensor([0.5])).lowest == pytest.approx(0.05)
