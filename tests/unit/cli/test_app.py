"""The root of the command line knows its commands without importing them."""

import importlib
import subprocess
import sys
from collections.abc import Sequence

import pytest
import typer

from ringback.cli.app import COMMANDS
from tests.support.limits import WAIT_SECONDS

SERVICE_MODULES = ("mcp", "fastapi", "uvicorn", "ringback.domain", "ringback.settings")
DATABASE_COMMANDS = ("keys", "migrate", "backup", "restore", "copy")
SERVING_MODULES = (
    "mcp",
    "mcp_types",
    "fastapi",
    "starlette",
    "uvicorn",
    "httpx",
    "httpx2",
    "jsonschema",
    "joserfc",
    "aiodns",
)
"""What a process imports that serves requests, or sends them."""
LATE_MODULES = ("ringback.client.client", "ringback.cli.listening", "ringback.cli.callback_receiver")
"""What commands of a client import once their arguments are right."""


@pytest.mark.parametrize("command", COMMANDS)
def test_the_listed_help_of_a_command_is_the_beginning_of_its_own(command: str) -> None:
    entry = COMMANDS[command]
    found = getattr(importlib.import_module(entry.module), entry.name)
    text = found.info.help if isinstance(found, typer.Typer) else found.__doc__

    assert str(text).startswith(entry.help)


def test_no_command_of_a_client_imports_anything_of_the_service() -> None:
    commands = [name for name, entry in COMMANDS.items() if not entry.needs_server]

    assert set(SERVICE_MODULES) & list_modules_of(commands, *LATE_MODULES) == set()


def test_no_command_on_the_database_imports_what_serves_requests() -> None:
    assert set(SERVING_MODULES) & list_modules_of(DATABASE_COMMANDS) == set()


def test_a_command_starts_without_what_only_tables_need_and_leaves_its_process_as_it_was() -> None:
    program = (
        "import os, sys; before = dict(os.environ)\n"
        "from ringback.cli.imports import import_command_module\n"
        "for name in ('call', 'webhooks', 'listen'): import_command_module(f'ringback.cli.commands.{name}')\n"
        "from ringback.cli.client_options import create_client; create_client('http://127.0.0.1:1', None)\n"
        "assert dict(os.environ) == before\n"
        "print(*sys.modules)\n"
        "import httpx._main"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_SECONDS, check=True
    )

    assert {"rich.console", "rich.table", "pygments", "httpx._main", "ringback.receiver.app"} & set(
        loaded.stdout.split()
    ) == set()


WITHOUT_UNIX_MODULES = """
import sys
sys.modules.update(fcntl=None, resource=None)
from ringback.cli.app import app
for command in sys.argv[1:]:
    try:
        app([command])
    except SystemExit as ended:
        print(ended.code)
"""


def test_a_command_that_does_not_run_on_windows_says_so() -> None:
    """One process tries all of them: its imports take a third of a second."""
    commands = ("listen", "serve", "keys")
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_UNIX_MODULES, *commands],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=True,
    )

    errors = [line for line in ended.stderr.splitlines() if line.startswith("Error: ")]
    assert ended.stdout.split() == ["2"] * 3
    for command, error in zip(commands, errors, strict=True):
        assert error.startswith(f"Error: `ringback {command}` does not run on Windows.")


def test_the_commands_that_only_send_requests_run_on_windows() -> None:
    modules = [entry.module for name, entry in COMMANDS.items() if not entry.needs_server and name != "listen"]
    program = (
        "import importlib, sys; sys.modules.update(fcntl=None, resource=None, pwd=None, grp=None)\n"
        "for module in sys.argv[1:]: importlib.import_module(module)"
    )
    subprocess.run([sys.executable, "-c", program, *modules, LATE_MODULES[0]], timeout=WAIT_SECONDS, check=True)


def list_modules_of(commands: Sequence[str], *others: str) -> set[str]:
    """What these commands and these other modules import, in one process, because it costs as much as all imports."""
    modules = ", ".join([*(COMMANDS[name].module for name in commands), *others])
    program = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_SECONDS, check=True
    )
    return set(loaded.stdout.split())
