"""Small runs and models that the tests make themselves."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from heedmap import AttentionMap
from heedmap.layers import Layer
from heedmap.look.running import Run
from heedmap.seen import Seen

from ..analysis.conftest import tokens

MakeRun = Callable[..., Run]


@pytest.fixture
def text_run() -> MakeRun:
    """Return a function from words and dense weights [layers, heads, T, T] to a run."""

    def make(words: Sequence[str], weights: Tensor) -> Run:
        layers = tuple(
            Layer(f"layer.{i}", "self", 0, 1, AttentionMap.from_weights(w))
            for i, w in enumerate(weights)
        )
        return Run("text", "the text", tokens(words), Seen(tuple), layers, "tiny", None, ())

    return make


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a BERT of 2 layers × 2 heads with random weights."""
    folder = tmp_path_factory.mktemp("tiny-bert")
    words = ["[UNK]", "to", "be", "or", "not", "that", "is", "the", "question"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)
    config = BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        vocab_size=len(words),
        max_position_embeddings=600,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Return where results may go; it does not exist yet."""
    return tmp_path / "out"
