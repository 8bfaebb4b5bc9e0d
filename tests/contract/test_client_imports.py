"""The client library and the doctor are cheap to import, and import nothing of the service that they do not need."""

import inspect
import subprocess
import sys
from typing import Final, get_type_hints

import pytest

from ringback.client import RingbackClient, SyncRingbackClient
from ringback.schemas import examples
from tests.support.limits import WAIT_SECONDS

FOREIGN: Final = ("mcp", "mcp_types", "fastapi", "starlette", "uvicorn", "typer", "orjson", "redis")
OURS: Final = ("ringback.client", "ringback.protocol", "ringback.backoff", "ringback.lazy_names", "ringback.signing")
ON_DEMAND: Final = ("ringback.client.durable", "ringback.client.sync")
OF_SOME_OPTIONS: Final = (
    "ringback.cli.hints",
    "ringback.cli.durable_listener.commands",
    "ringback.cli.durable_listener.running_commands",
    "ringback.cli.durable_listener.forwarding",
    "ringback.cli.durable_listener.notifications",
)
"""What errors, --exec, --forward-to and --notify need."""


def list_modules(program: str) -> frozenset[str]:
    """The modules that a new process has imported after the program."""
    (imported,) = list_modules_after_each(program)
    return imported


def list_modules_after_each(*steps: str) -> list[frozenset[str]]:
    """The modules that a new process has imported after each step of its program."""
    program = "\n".join(f"{step}\nimport sys; print(*sys.modules)" for step in steps)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_SECONDS, check=True
    )
    return [frozenset(line.split()) for line in ended.stdout.splitlines()]


def is_part_of(module: str, packages: tuple[str, ...]) -> bool:
    return module.startswith(tuple(f"{package}." for package in packages)) or module in packages


def test_importing_the_client_imports_fewer_modules_than_what_it_is_built_on() -> None:
    foundation, client = list_modules_after_each("import httpx, pydantic", "import ringback.client")

    assert len(client) <= 1.3 * len(foundation)


def test_using_the_client_imports_what_it_is_built_on_and_what_few_processes_use_comes_with_its_first_use() -> None:
    used, *later = list_modules_after_each(
        "from ringback.client import RingbackClient; RingbackClient('http://127.0.0.1:1')",
        "from ringback.client import SyncRingbackClient",
        "from ringback.client import DurableCaller",
    )
    ours = {module for module in used if is_part_of(module, ("ringback",))} - {"ringback"}

    assert "httpx" in used
    assert [module for module in ours if not is_part_of(module, OURS)] == []
    assert [module for module in used if is_part_of(module, (*FOREIGN, *ON_DEMAND))] == []
    for imported in later:
        assert [module for module in imported if is_part_of(module, FOREIGN)] == []
        assert not any(is_part_of(module, ("ringback.domain", "ringback.settings")) for module in imported)
    assert ON_DEMAND[0] in later[-1]
    assert ON_DEMAND[1] in later[0]


def test_a_command_imports_its_client_once_its_arguments_are_right_and_nothing_that_only_some_of_its_options_need() -> (
    None
):
    programs = [
        f"from ringback.cli.app import *; import_command_module('ringback.cli.commands.{command}')"
        for command in ("call", "webhooks", "listen")
    ]
    use = "from ringback.cli.client_options import create_client; create_client('http://127.0.0.1:1', None)"
    *_, before, after = list_modules_after_each(*programs, use)
    models = {module for module in after if module.startswith("ringback.client.") and module.endswith("models")}

    assert [module for module in before if is_part_of(module, ("httpx", "sqlite3", "ringback.client.client"))] == []
    assert models == {"ringback.client.models"}
    assert [
        module
        for module in after
        if is_part_of(module, ("httpx._main", "mcp", "rich", "cryptography", *OF_SOME_OPTIONS))
    ] == []


def test_the_words_for_a_call_that_waits_need_nothing_of_the_service() -> None:
    """`pip install ringback` has no orjson: `ringback calls` ended with a traceback when a listed call was queued."""
    queued = {**examples.WORKING_CALL, "dispatched_at": None, "waits_for": "queue"}
    imported = list_modules(
        "import asyncio; from types import SimpleNamespace as Stub; from ringback.client import Call\n"
        "from ringback.cli import following; from ringback.cli.commands import calls\n"
        "async def upstreams(): return [Stub(name=call.upstream, intake='paused')]\n"
        f"call = Call.model_validate({queued!r})\n"
        "calls._to_row(call); asyncio.run(following._describe_wait(Stub(upstreams=upstreams), call))"
    )

    assert [module for module in imported if is_part_of(module, ("mcp", "fastapi", "starlette", "orjson"))] == []
    assert "ringback.domain.wait_words" in imported


@pytest.mark.parametrize("client", [RingbackClient, SyncRingbackClient])
def test_the_annotations_of_every_method_name_types_that_exist(client: type) -> None:
    hints = [
        get_type_hints(method) for name, method in inspect.getmembers(client, inspect.isfunction) if name[0] != "_"
    ]

    assert all("return" in each for each in hints)


def test_the_doctor_imports_what_serves_and_what_connects_to_upstreams_only_if_it_needs_it() -> None:
    imported = list_modules("import ringback.cli.commands.doctor")

    assert [module for module in imported if is_part_of(module, ("mcp", "mcp_types", "fastapi", "uvicorn"))] == []


def test_a_name_that_does_not_exist_is_an_import_error() -> None:
    program = "from ringback.client import RingbackKlient"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )

    assert "ImportError: cannot import name 'RingbackKlient'" in ended.stderr
