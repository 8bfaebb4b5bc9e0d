"""The command line, run in this process without the environment's variables and files."""

import functools
import logging
import os
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest
import respx
import typer.main
import typer.testing
from typer.testing import CliRunner, Result

from ringback.backoff import Backoff
from ringback.cli import following
from ringback.cli.app import app
from ringback.cli.commands import trigger
from ringback.client import http_transport

Run = Callable[..., Result]


@pytest.fixture(scope="session", autouse=True)
def commands_built_once() -> Generator[None]:
    """Typer inspects the functions of its commands anew for each run, which takes a fifth of the CPU of a test."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((typer.testing, "_get_command"), (typer.main, "get_params_from_function")):
            patch.setattr(module, name, functools.cache(getattr(module, name)))
        yield


@pytest.fixture(autouse=True)
def root_log_handlers() -> Generator[None]:
    """A command that configures logging writes to its own standard error, which ends with it."""
    root = logging.getLogger()
    handlers = list(root.handlers)
    yield
    root.handlers[:] = handlers


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run one command in an empty folder, on a terminal of 120 columns without colours."""
    for name in os.environ:
        if name.startswith("RINGBACK_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))  # the user's own service is none of ours
    monkeypatch.setattr(http_transport, "RETRY_DELAYS_SECONDS", (0.0, 0.0))  # no service runs here
    environment = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}

    def run(*arguments: str, env: Mapping[str, str] | None = None, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), env={**environment, **(env or {})}, input=stdin)

    return run


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Generator[respx.MockRouter]:
    """The service's responses to commands, which poll without a pause."""
    monkeypatch.setattr(following, "POLL_INTERVAL_SECONDS", 0)
    monkeypatch.setattr(following, "RETRY_BACKOFF", Backoff(first_seconds=0, longest_seconds=0))
    monkeypatch.setattr(trigger, "POLL_INTERVAL_SECONDS", 0)
    with respx.mock(base_url="http://127.0.0.1:8090", assert_all_called=True) as router:
        yield router


@pytest.fixture
def key(run: Run) -> str:
    """An API key; creates the database and its key file."""
    return run("keys", "create", "alice", "--create").stdout.strip()
