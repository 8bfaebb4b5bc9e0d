"""A legacy upstream that wants a page to be opened first (-32042): clients of both eras are asked in the form of their era."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, ModernClient, legacy_session
from tests.support.upstreams import (
    ControlledUpstream,
    OverriddenResponses,
    Send,
    make_http_config,
    make_legacy_app,
    send_json,
    send_result,
    serving,
)

CALL: Final[Json] = {"name": "echo", "arguments": {}}
URL_CAPABILITY: Final[Json] = {"elicitation": {"url": {}}}
PAGE: Final[Json] = {"mode": "url", "elicitationId": "e1", "url": "https://u.example/go", "message": "Sign in."}
ERROR: Final[Json] = {"code": -32042, "message": "Open the page.", "data": {"elicitations": [PAGE]}}
ACCEPT: Final[Json] = {"action": "accept"}


@asynccontextmanager
async def serving_gateway(folder: Path) -> AsyncGenerator[tuple[str, httpx.AsyncClient, list[Json]]]:
    """The URL of an upstream whose tool wants a page first, and the calls that it got."""
    calls: list[Json] = []

    async def want_page_first(message: dict[str, Any], send: Send) -> None:
        calls.append(message["params"])
        if len(calls) == 1:
            await send_json(send, {"jsonrpc": "2.0", "id": message["id"], "error": ERROR})
        else:
            await send_result(message, {"content": [{"type": "text", "text": "done"}]}, send)

    app = OverriddenResponses(make_legacy_app(ControlledUpstream().app()), {"tools/call": want_page_first})
    async with (
        serving(app) as stage,
        running_application(folder, make_http_config(stage.url), auth="off", inline_wait_seconds=30.0) as ringback,
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        yield f"{url}/mcp/stage", http, calls


async def test_a_modern_client_gets_an_input_request_and_no_retired_error(tmp_path: Path) -> None:
    async with serving_gateway(tmp_path) as (url, http, calls):
        client = ModernClient(http, url)
        asked = await client.request("tools/call", CALL, declare=URL_CAPABILITY)
        again = {**CALL, "requestState": asked["requestState"], "inputResponses": {"e1": ACCEPT}}
        answer = await client.request("tools/call", again, declare=URL_CAPABILITY)

    page = {key: value for key, value in PAGE.items() if key != "elicitationId"}
    assert asked["inputRequests"] == {"e1": {"method": "elicitation/create", "params": page}}
    assert answer["content"][0]["text"] == "done"
    assert len(calls) == 2


async def test_a_legacy_client_is_asked_on_its_stream(tmp_path: Path) -> None:
    async with (
        serving_gateway(tmp_path) as (url, http, _),
        legacy_session(http, url, capabilities=URL_CAPABILITY) as session,
        session.open_request("tools/call", CALL) as frames,
    ):
        question = await frames.read_message("elicitation/create")
        await session.send_response(question, ACCEPT)
        answer = await frames.read_response()

    assert question["params"].items() >= PAGE.items()
    assert answer["content"][0]["text"] == "done"


async def test_a_client_that_cannot_be_asked_gets_the_error_of_the_upstream(tmp_path: Path) -> None:
    async with serving_gateway(tmp_path) as (url, http, calls), legacy_session(http, url, capabilities={}) as session:
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await session.request("tools/call", CALL)

    assert refused.value.code == -32042
    assert len(calls) == 1
