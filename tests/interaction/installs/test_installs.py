"""`pip install ringback` is what an agent's process needs, and `pip install "ringback[server]"` adds the service."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.authorities import make_network_environment
from tests.support.limits import WAIT_SECONDS

ROOT = Path(__file__).parents[3]
INSTALL_SECONDS = 600.0
"""An installation from a package registry takes half a minute; this only bounds one that hangs."""
CLIENT_COMMANDS = ("call", "listen", "webhooks", "deliveries")
SERVER_COMMANDS = ("serve", "dev", "mcp", "keys", "migrate", "copy", "doctor")
SERVER_PACKAGES = {"mcp", "mcp-types", "fastapi", "uvicorn", "starlette", "pydantic-settings", "jsonschema", "uvloop"}


def install(folder: Path, requirement: str) -> Path:
    """A new environment with this requirement, installed by the pip of the tests: a pip of its own takes 5 s of CPU to install.

    Nothing is compiled beforehand: of the installed modules, few are imported here.
    """
    check(sys.executable, "-m", "venv", "--without-pip", str(folder), seconds=INSTALL_SECONDS)
    check(*_pip(folder / "bin"), "install", "--quiet", "--no-compile", requirement, seconds=INSTALL_SECONDS)
    return folder / "bin"


def _pip(bin_folder: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(bin_folder / "python"))


def run(*command: str, seconds: float = WAIT_SECONDS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, env=make_network_environment()
    )


def check(*command: str, seconds: float = WAIT_SECONDS) -> str:
    ended = run(*command, seconds=seconds)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def packages(bin_folder: Path) -> set[str]:
    listed = check(*_pip(bin_folder), "list", "--format", "json")
    return {package["name"].lower() for package in json.loads(listed)}


class EndedCommand(NamedTuple):
    exit_code: int
    output: str


_RUN_COMMANDS = """
import json, sys
from typer.testing import CliRunner
from ringback.cli.app import app

ended = [CliRunner().invoke(app, arguments) for arguments in json.loads(sys.argv[1])]
print(json.dumps([(each.exit_code, each.output) for each in ended]))
"""


def run_commands(bin_folder: Path, commands: Sequence[Sequence[str]]) -> Sequence[EndedCommand]:
    """Run each command in one process: to start one for each takes longer than the installation."""
    shown = check(str(bin_folder / "python"), "-c", _RUN_COMMANDS, json.dumps(commands))
    return [EndedCommand(*each) for each in json.loads(shown)]


def test_the_base_install_is_what_an_agent_s_process_needs_and_names_the_extra_for_the_rest(tmp_path: Path) -> None:
    """One test, because the tests of a module may run in several processes, each of which would install anew."""
    bin_folder = install(tmp_path, str(ROOT))
    program = "import ringback.client, ringback.receiver; print(ringback.client.RingbackClient('http://127.0.0.1:1'))"

    durable = "from ringback.client import DurableCaller; DurableCaller('http://127.0.0.1:1{path}'{options})"

    assert packages(bin_folder) & SERVER_PACKAGES == set()
    check(str(bin_folder / "python"), "-W", "error", "-c", durable.format(path="", options=""))
    for path, options, extra in (
        ("/mcp", "", "mcp"),
        ("", ", state=ringback.client.RedisRequestState('redis://')", "redis"),
    ):
        lacking = run(
            str(bin_folder / "python"), "-c", f"import ringback.client; {durable.format(path=path, options=options)}"
        )
        assert f'pip install "ringback[{extra}]"' in lacking.stderr
    assert "RingbackClient" in check(str(bin_folder / "python"), "-W", "error", "-c", program)
    shown = check(str(bin_folder / "ringback"), "--help")
    assert all(command in shown for command in (*CLIENT_COMMANDS, *SERVER_COMMANDS))
    client_commands = run_commands(bin_folder, [[command, "--help"] for command in CLIENT_COMMANDS])
    assert all(command in ended.output for command, ended in zip(CLIENT_COMMANDS, client_commands, strict=True))
    for ended in run_commands(bin_folder, [[command] for command in SERVER_COMMANDS]):
        assert ended.exit_code == 2
        assert 'pip install "ringback[server]"' in ended.output
        assert "Traceback" not in ended.output


def test_the_server_install_has_every_command(tmp_path: Path, *, deep: bool) -> None:
    """CI's own environment is such an install; a fresh one, which takes a minute, is made by the deep tests.

    Here one command starts, with the modules of the service. tests/unit/cli/test_app.py imports the others.
    """
    bin_folder = install(tmp_path / "server", f"{ROOT}[server]") if deep else Path(sys.executable).parent

    for command in (*CLIENT_COMMANDS, *SERVER_COMMANDS) if deep else ("serve",):
        assert command in check(str(bin_folder / "ringback"), command, "--help")
