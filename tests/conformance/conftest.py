"""Says at the end how many cases of others agreed."""

import pytest

ATTENTION = "tests/conformance/test_onnx_attention.py"
COUNTED = {
    f"{ATTENTION}::test_case[": "node tests of ONNX Attention agree, on every backend",
    f"{ATTENTION}::test_random_problem[": "random problems agree with ONNX's reference evaluator",
}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for start, what in COUNTED.items():
        passed, failed = (
            sum(report.nodeid.startswith(start) for report in terminalreporter.getreports(outcome))
            for outcome in ("passed", "failed")
        )
        if passed or failed:
            terminalreporter.write_line(f"{passed} of {passed + failed} {what}.")
