"""The root of the command line knows its commands without importing them."""

import importlib
import subprocess
import sys

import pytest
import typer

from ringback.cli.app import COMMANDS
from tests.support.limits import WAIT_SECONDS

SERVICE_MODULES = ("mcp", "fastapi", "uvicorn", "ringback.domain", "ringback.settings")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_listed_help_of_a_command_is_the_beginning_of_its_own(command: str) -> None:
    entry = COMMANDS[command]
    found = getattr(importlib.import_module(entry.module), entry.name)
    text = found.info.help if isinstance(found, typer.Typer) else found.__doc__

    assert str(text).startswith(entry.help)


def test_no_command_of_a_client_imports_anything_of_the_service() -> None:
    """One process imports all of them, because a process costs as much as all imports."""
    modules = ", ".join(entry.module for entry in COMMANDS.values() if not entry.needs_server)
    program = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_SECONDS, check=True
    )

    assert set(SERVICE_MODULES) & set(loaded.stdout.split()) == set()
