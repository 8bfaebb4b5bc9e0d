"""The fixture and Ringback as processes that end with the run."""

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

from scripts.conformance_runs.suite import SuiteFailed
from scripts.ports import free_port

START_SECONDS: Final = 60.0
"""For a start, which takes two seconds on an idle machine."""
TASK_ONLY: Final = ("failing_job", "test_tool_with_task")
"""Tools that the suite requires to fail for clients without tasks. A 2026-07-28 server cannot declare that of a tool."""
_LISTENING: Final = re.compile(r"service\.listening .*url=(\S+)")


@contextlib.contextmanager
def fixture() -> Generator[str]:
    """The URL of the fixture's endpoint."""
    port = free_port()
    with started_process("-m", "scripts.conformance_runs.fixture", str(port)) as (process, log):
        _wait_until(lambda: is_responding(port), process, log)
        yield f"http://127.0.0.1:{port}/mcp"


@contextlib.contextmanager
def ringback(upstream_url: str, *, on_disconnect: str) -> Generator[str]:
    """The URL of Ringback's endpoint for this upstream. Otherwise default settings, with authentication off."""
    with tempfile.TemporaryDirectory(prefix="conformance-ringback-") as name:
        folder = Path(name)
        tools = {tool: {"task_only": True} for tool in TASK_ONLY}
        servers = {"fixture": {"url": upstream_url, "ringback": {"tools": tools}}}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        database = f"sqlite:///{folder / 'ringback.db'}"
        options = ["--dev", "--port", "0", "--database", database, "--config", str(folder / "mcp.json")]
        settings = {"RINGBACK_ON_DISCONNECT": on_disconnect}
        with started_process("-m", "ringback", "serve", *options, **settings) as (process, log):
            found: list[str] = []
            _wait_until(lambda: bool(found) or wait_for_log_line(log, found), process, log)
            yield f"{found[0]}/mcp/fixture"


def wait_for_log_line(log: Path, found: list[str]) -> bool:
    found += _LISTENING.findall(log.read_text())
    return bool(found)


def is_responding(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/mcp", timeout=1):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@contextlib.contextmanager
def started_process(*arguments: str, **environment: str) -> Generator[tuple["subprocess.Popen[bytes]", Path]]:
    with tempfile.NamedTemporaryFile(prefix="conformance-", suffix=".log") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=log, stderr=log, env={**os.environ, **environment}
        )
        try:
            yield process, Path(log.name)
        finally:
            process.terminate()
            try:
                process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until(ready: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    ends_at = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > ends_at:
            raise SuiteFailed(f"a process did not start: {log.read_text()[-1000:]}")
        time.sleep(0.05)
