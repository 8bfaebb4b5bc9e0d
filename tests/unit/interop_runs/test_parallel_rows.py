"""Rows side by side: what a row's process says is the row, and a process that says nothing is a row that was not run."""

import sys
from pathlib import Path

import pytest

from scripts.interop_runs.judge import Judgement, Row, Verdict
from scripts.interop_runs.parallel_rows import ParallelRows
from scripts.interop_runs.rows import find_entries

STAND_IN = """#!/bin/sh
# Called as `python -m scripts.interop_runs NAME --json …`.
[ "$3" != sdk-1 ] || exit 3
echo a line before
scenarios='{"list": {"verdict": "failed", "detail": "'"$5"'"}}'
echo '{"'"$3"'": {"versions": {"mcp": "1"}, "not_run": null, "scenarios": '"$scenarios"'}}'
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python"
    script.write_text(STAND_IN, encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_each_row_is_what_its_process_prints_last() -> None:
    rows = {
        row.name: row for row in ParallelRows(["--quick"], jobs=2).run(find_entries(["sdk-2", "fastmcp-4", "mastra"]))
    }

    assert set(rows) == {"sdk-2", "fastmcp-4", "mastra"}
    assert rows["mastra"].judgements == {"list": Judgement(Verdict.FAILED, "--quick")}
    assert rows["sdk-2"].versions == {"mcp": "1"}


def test_a_process_that_prints_nothing_is_a_row_that_was_not_run() -> None:
    (row,) = ParallelRows([], jobs=1).run(find_entries(["sdk-1"]))

    assert row.not_run == "the run ended without a result (exit code 3)"


def test_a_row_is_the_same_after_it_was_written_as_json() -> None:
    row = Row(name="sdk-2", versions={"mcp": "2"}, judgements={"fast": Judgement(Verdict.PASSED, "result")})

    assert Row.from_json(row.name, row.to_json()) == row
