"""The page on shared sequences holds on several processes, too; one runs it in tests/docs."""

import os
import re
from pathlib import Path

import pytest
import torch

from ..docs.test_snippets import DOCS, run
from .processes import Processes


def run_page(folder: Path) -> str:
    os.chdir(folder)
    torch.manual_seed(0)
    return "".join(run((DOCS / "parallel.md").read_text(encoding="utf-8"), "parallel.md"))


@pytest.mark.slow
def test_every_snippet_runs_on_three_ranks(processes: Processes, tmp_path: Path) -> None:
    assert processes.run(3, run_page, tmp_path, limit_seconds=120) == [""] * 3


def test_both_languages_run_the_same() -> None:
    def blocks(page: str) -> str:
        text = (DOCS / page).read_text(encoding="utf-8")
        found = re.findall(r"^```(?:python|console|text)\n.*?^```$", text, re.DOTALL | re.MULTILINE)
        return re.sub(r"(?m)( +|^)# .*", "", "\n".join(found))

    assert blocks("parallel.md") == blocks("zh/parallel.md")
