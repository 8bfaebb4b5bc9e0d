"""`pip install ringback` is what an agent's process needs, and `pip install "ringback[server]"` adds the service."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ringback.__main__ import main
from tests.support.authorities import make_network_environment
from tests.support.limits import WAIT_SECONDS

ROOT = Path(__file__).parents[3]
INSTALL_SECONDS = 600.0
"""An installation from a package registry takes half a minute; this only bounds one that hangs."""
CLIENT_COMMANDS = ("call", "listen", "webhooks", "deliveries")
SERVER_COMMANDS = ("serve", "dev", "mcp", "keys", "migrate", "copy", "doctor")
NO_VARIABLES: Mapping[str, str] = {}
NOT_LINKED = {"..", "__pycache__", "ringback"}
SERVER_PACKAGES = {"mcp", "mcp-types", "fastapi", "uvicorn", "starlette", "pydantic-settings", "jsonschema", "uvloop"}


class Environment(NamedTuple):
    """A Python that has the packages of one installation and no others."""

    python: tuple[str, ...]
    variables: Mapping[str, str]
    packages: frozenset[str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run(*self.python, *arguments, variables=self.variables)

    def check(self, *arguments: str) -> str:
        return check(*self.python, *arguments, variables=self.variables)


def install(folder: Path, requirement: str) -> Environment:
    """A new environment with this requirement, installed by the pip of the tests: a pip of its own takes 5 s of CPU to install.

    Nothing is compiled beforehand: of the installed modules, few are imported here.
    """
    check(sys.executable, "-m", "venv", "--without-pip", str(folder), seconds=INSTALL_SECONDS)
    python = str(folder / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    check(*pip, "install", "--quiet", "--no-compile", requirement, seconds=INSTALL_SECONDS)
    listed = json.loads(check(*pip, "list", "--format", "json"))
    return Environment((python,), {}, frozenset(package["name"].lower() for package in listed))


def link_installed(folder: Path) -> Environment:
    """What `install(folder, "ringback")` would install, linked from the environment of the tests: pip takes 13 s of CPU for it.

    tests/interaction/installs/test_distributions.py shows that a wheel has all of it.
    """
    folder.mkdir()
    found = dict[str, metadata.Distribution]()
    _find_requirements("ringback", found)
    for distribution in found.values():
        for name in {file.parts[0] for file in distribution.files or ()} - NOT_LINKED:
            (folder / name).symlink_to(str(distribution.locate_file(name)))
    (folder / "ringback").symlink_to(ROOT / "app" / "ringback")  # the tests' environment refers to it
    # Without `site`, Python looks into no environment.
    return Environment((sys.executable, "-S"), {"PYTHONPATH": str(folder)}, frozenset(found))


def _find_requirements(name: str, found: dict[str, metadata.Distribution]) -> None:
    if canonicalize_name(name) in found:
        return
    found[canonicalize_name(name)] = distribution = metadata.distribution(name)
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            _find_requirements(requirement.name, found)


def run(
    *command: str, seconds: float = WAIT_SECONDS, variables: Mapping[str, str] = NO_VARIABLES
) -> subprocess.CompletedProcess[str]:
    environment = make_network_environment() | dict(variables)
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, env=environment)


def check(*command: str, seconds: float = WAIT_SECONDS, variables: Mapping[str, str] = NO_VARIABLES) -> str:
    ended = run(*command, seconds=seconds, variables=variables)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


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


def run_commands(environment: Environment, commands: Sequence[Sequence[str]]) -> Sequence[EndedCommand]:
    """Run each command in one process: to start one for each takes longer than the installation."""
    return [EndedCommand(*each) for each in json.loads(environment.check("-c", _RUN_COMMANDS, json.dumps(commands)))]


def test_the_base_install_is_what_an_agent_s_process_needs_and_names_the_extra_for_the_rest(
    tmp_path: Path, *, deep: bool
) -> None:
    """One test, because each installation takes long."""
    folder = tmp_path / "installed"
    environment = install(folder, str(ROOT)) if deep else link_installed(folder)
    program = "import ringback.client, ringback.receiver; print(ringback.client.RingbackClient('http://127.0.0.1:1'))"

    durable = "from ringback.client import DurableCaller; DurableCaller('http://127.0.0.1:1{path}'{options})"

    assert environment.packages & SERVER_PACKAGES == set()
    assert environment.packages >= {"ringback", "httpx", "pydantic", "typer"}
    environment.check("-W", "error", "-c", durable.format(path="", options=""))
    for path, options, extra in (
        ("/mcp", "", "mcp"),
        ("", ", state=ringback.client.RedisRequestState('redis://')", "redis"),
    ):
        lacking = environment.run("-c", f"import ringback.client; {durable.format(path=path, options=options)}")
        assert f'pip install "ringback[{extra}]"' in lacking.stderr
    lacking = environment.run("-c", "import ringback.extension")
    assert 'pip install "ringback[server]"' in lacking.stderr
    assert "RingbackClient" in environment.check("-W", "error", "-c", program)
    shown = environment.check("-m", "ringback", "--help")
    assert all(command in shown for command in (*CLIENT_COMMANDS, *SERVER_COMMANDS))
    client_commands = run_commands(environment, [[command, "--help"] for command in CLIENT_COMMANDS])
    assert all(command in ended.output for command, ended in zip(CLIENT_COMMANDS, client_commands, strict=True))
    for ended in run_commands(environment, [[command] for command in SERVER_COMMANDS]):
        assert ended.exit_code == 2
        assert 'pip install "ringback[server]"' in ended.output
        assert "Traceback" not in ended.output


def test_the_server_install_has_every_command(tmp_path: Path, *, deep: bool) -> None:
    """CI's own environment is such an install; a fresh one, which takes a minute, is made by the deep tests.

    By default the program is found and not started: tests/contract/test_readme.py runs commands with it, and
    tests/unit/cli/test_app.py imports all commands.
    """
    program = shutil.which("ringback", path=str(Path(sys.executable).parent))
    (entry,) = metadata.distribution("ringback").entry_points.select(group="console_scripts", name="ringback")
    assert program is not None
    assert entry.load() is main

    if deep:
        install(tmp_path / "server", f"{ROOT}[server]")
        for command in (*CLIENT_COMMANDS, *SERVER_COMMANDS):
            assert command in check(str(tmp_path / "server" / "bin" / "ringback"), command, "--help")
