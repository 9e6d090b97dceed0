"""What the tests of watching share."""

import warnings
from typing import Any

import pytest


@pytest.fixture
def flex_without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transformers run flex_attention as it is written, where compiling takes seconds."""
    from torch.nn.attention import flex_attention
    from transformers import masking_utils
    from transformers.integrations import flex_attention as calling

    def run(*tensors: Any, training: bool, **options: Any) -> Any:
        del training
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
            return flex_attention.flex_attention(*tensors, **options)

    def make_mask(*, _compile: bool, **options: Any) -> Any:
        return flex_attention.create_block_mask(**options)

    monkeypatch.setattr(calling, "compile_friendly_flex_attention", run)
    monkeypatch.setattr(masking_utils, "create_block_mask", make_mask)
