"""The command line, run in this process without the environment's variables and files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ringback.cli.app import app

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run one command in an empty folder, on a terminal of 120 columns without colours."""
    for name in os.environ:
        if name.startswith("RINGBACK_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    environment = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments), env=environment)

    return run
