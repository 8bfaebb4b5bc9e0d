"""/llms.txt names only what exists, and is the same in the package and in openapi/."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

import ringback.client
import ringback.receiver
from ringback.api.llms_endpoint import EXAMPLE_URL, LLMS_TEXT
from ringback.cli.app import COMMANDS
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.event import EventName
from ringback.mcp_server.builtin_tools.notify_me import NOTIFY_ME_TOOL_NAME
from ringback.mcp_server.builtin_tools.tool_schemas import BuiltinToolName
from ringback.mcp_server.http_options import OPTION_HEADERS
from tests.support.service import PUBLIC_URL, running_service

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = LLMS_TEXT.decode()
DOCUMENT: Final[dict[str, Any]] = json.loads((ROOT / "openapi" / "ringback.json").read_text(encoding="utf-8"))


def test_the_copy_in_openapi_is_the_packaged_text() -> None:
    assert (ROOT / "openapi" / "llms.txt").read_bytes() == LLMS_TEXT, "run scripts/openapi"


async def test_the_service_serves_it_without_a_key(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        response = await (await service.create_anonymous_client()).get("/llms.txt")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.content == LLMS_TEXT.replace(EXAMPLE_URL, PUBLIC_URL.encode())


def test_each_operation_that_it_names_exists() -> None:
    named = re.findall(r"`(GET|POST|PUT|DELETE) (/v1/[\w/{}-]+)", TEXT)
    served = {
        (method.upper(), re.sub(r"\{\w+\}", "{}", path))
        for path, methods in DOCUMENT["paths"].items()
        for method in methods
    }
    assert len(named) >= 10
    assert {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path in named} <= served


def test_it_names_every_tool_of_ringback_and_no_other() -> None:
    assert set(re.findall(r"ringback_\w+", TEXT)) == {*BuiltinToolName, NOTIFY_ME_TOOL_NAME}


@pytest.mark.parametrize("name", [*CallOutcome, *EventName, *(name for _, name in OPTION_HEADERS.values())])
def test_it_names_each_outcome_event_and_header(name: str) -> None:
    assert f"`{name}`" in TEXT


def test_each_command_that_it_names_exists() -> None:
    commands = re.search(r"- `ringback call`(.*)", TEXT)
    assert commands
    assert {"call", *re.findall(r"`(\w+)`", commands[1])} <= COMMANDS.keys()


def test_each_class_that_it_names_exists() -> None:
    modules = {"client": ringback.client, "receiver": ringback.receiver}
    named = re.findall(r"`ringback\.(client|receiver)\.(\w+)`", TEXT)
    assert len(named) == 3
    assert all(hasattr(modules[module], name) for module, name in named)
