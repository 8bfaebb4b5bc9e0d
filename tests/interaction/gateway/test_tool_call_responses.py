"""tools/call returns the result, an error, or a pending result."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import mcp_types as types
import pytest
from jsonschema import Draft202012Validator
from mcp import Client

from ringback.bootstrap import Environment
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.mcp_server.tool_export import PENDING_KEY
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.mcp_wire import (
    TASKS_DECLARED,
    Json,
    JsonRpcErrorResponse,
    LegacyClientSession,
    ModernClient,
    legacy_session,
)
from tests.support.stores import StoreWrapper
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, make_http_config, serving

UPSTREAMS: Final = ("paint", "plain", "slow-paint")

T = TypeVar("T")
AnyClient = ModernClient | LegacyClientSession


def call_params(name: str, arguments: Json | None = None, **rest: Any) -> Json:
    return {"name": name, "arguments": arguments or {}, **rest}


async def open_call(client: AnyClient, name: str, arguments: Json | None = None, **rest: Any) -> Json:
    """Call as a client without capabilities."""
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, ModernClient) else {}
    return await client.request("tools/call", call_params(name, arguments, **rest), **declare)


@pytest.mark.requirement("R14")
async def test_a_call_that_ends_within_the_inline_wait_gets_the_upstreams_result(
    modern: ModernClient, session: LegacyClientSession
) -> None:
    for client in (modern, session):
        counted = await open_call(client, "count")
        assert (counted["content"], counted["structuredContent"]) == ([{"type": "text", "text": "3"}], {"count": 3})
        widget = await open_call(client, "widget")
        assert widget["_meta"]["openai/widgetState"] == {"turn": 1}
    assert (await open_call(modern, "count"))["resultType"] == "complete"
    assert "resultType" not in await open_call(session, "count")


async def test_a_result_that_violates_its_output_schema_is_passed_on(
    modern: ModernClient, session: LegacyClientSession
) -> None:
    for client in (modern, session):
        assert (await open_call(client, "lie"))["structuredContent"] == {"count": "three"}


async def test_an_error_of_the_tool_is_a_result(modern: ModernClient, session: LegacyClientSession) -> None:
    for client in (modern, session):
        failed = await open_call(client, "fail")
        assert (failed["isError"], failed["content"][0]["text"]) == (True, "No paint left.")


async def test_an_error_of_the_upstream_is_passed_on(gate: GatewayHarness) -> None:
    async with gate.open_legacy_session("plain") as session:
        for client in (await gate.make_modern_client("plain"), session):
            with pytest.raises(JsonRpcErrorResponse) as refused:
                await open_call(client, "refuse")
            assert (refused.value.code, refused.value.message) == (-32042, "not today")
            assert refused.value.data == {"retry": False}


@pytest.mark.requirement("R10")
@pytest.mark.requirement("R14")
async def test_a_longer_call_gets_a_pending_result(
    gate: GatewayHarness, modern: ModernClient, session: LegacyClientSession
) -> None:
    for client in (modern, session):
        pending = await asyncio.wait_for(open_call(client, "hold"), WAIT_SECONDS)
        call_id = pending["_meta"]["ringback/callId"]
        (text,) = pending["content"]
        assert not pending["isError"]
        next_step = (
            f'Get the result with ringback_wait_for_call {{"call_id":"{call_id}"}}. Do not call \'hold\' again: it runs '
            "already."
        )
        for part in (f"call_id {call_id}", next_step, f"MCP resource ringback://calls/{call_id}"):
            assert part in text["text"]
        assert pending["structuredContent"] == {
            PENDING_KEY: {
                "call_id": call_id,
                "status": "working",
                "resource_uri": f"ringback://calls/{call_id}",
                "next_step": next_step,
            }
        }
        gate.interop.release.set()
        assert (await gate.wait_until_ended(call_id))["outcome"] == "result"
        gate.interop.reset()


async def test_an_exported_output_schema_accepts_the_result_and_the_pending_result(modern: ModernClient) -> None:
    listed = await modern.request("tools/list", {}, declare=NO_CAPABILITIES)
    schema = next(tool["outputSchema"] for tool in listed["tools"] if tool["name"] == "count")
    pending = {
        PENDING_KEY: {
            "call_id": "call_1",
            "status": "working",
            "resource_uri": "ringback://calls/call_1",
            "next_step": "Wait.",
        }
    }

    validator: Any = Draft202012Validator(schema)
    accepts = validator.is_valid

    assert schema["type"] == "object"
    assert accepts({"count": 3})
    assert accepts(pending)
    assert not accepts({"count": "three"})
    assert not accepts({PENDING_KEY: {}})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_sdk_client_accepts_a_pending_result_of_a_tool_with_an_output_schema(
    open_gate: GatewayHarness, mode: Any
) -> None:
    async with Client(f"{open_gate.url}/mcp/slow-paint", mode=mode) as client:
        await client.list_tools()
        result = await client.call_tool("count", {})
        assert result.structured_content is not None
        assert PENDING_KEY in result.structured_content
        uri = result.structured_content[PENDING_KEY]["resource_uri"]
        contents = (await client.read_resource(uri)).contents
        assert isinstance(contents[0], types.TextResourceContents)


@pytest.mark.parametrize("arguments", [{"text": 1}, {}])
async def test_invalid_arguments_get_an_error_result(gate: GatewayHarness, arguments: Json) -> None:
    async with gate.open_legacy_session("plain") as session:
        for client in (await gate.make_modern_client("plain"), session):
            answer = await open_call(client, "strict", arguments)
            assert answer["isError"]
            text = answer["content"][0]["text"]
            assert "#/arguments" in text
            assert text.endswith(". tools/list has its schema.")
            assert "operator" not in text


async def test_an_unknown_tool_gets_an_error_with_the_nearest_name(
    modern: ModernClient, session: LegacyClientSession
) -> None:
    for client in (modern, session):
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await open_call(client, "cuont")
        assert refused.value.code == -32602
        assert "Did you mean 'count'?" in refused.value.message


# -- an outage of the store after the start ----------------------------------------------------------------------------------


class UnreachableStore(StoreWrapper):
    is_away = False

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await super().read(self._require_presence(work))

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await super().write(self._require_presence(work))

    def _require_presence(self, work: Callable[[Transaction], Awaitable[T]]) -> Callable[[Transaction], Awaitable[T]]:
        if self.is_away:
            raise StoreUnavailable("The database cannot be reached.")
        return work


@pytest.mark.requirement("R13")
@pytest.mark.parametrize("surface", ["rest", "modern", "task", "legacy"])
async def test_an_outage_after_the_start_of_a_call_is_no_error_that_says_that_nothing_was_started(
    tmp_path: Path, surface: str
) -> None:
    """The call was stored and ran, and its client got a 503 or -32000: it would start the call again."""
    stage, stores = ControlledUpstream(), list[UnreachableStore]()

    def wrap_store(store: Store) -> Store:
        stores.append(UnreachableStore(store))
        return stores[0]

    settings: Json = {"auth": "off", "inline_wait_seconds": 1.5, "task_grace_seconds": 1.5}
    environment = Environment(wrap_store=wrap_store)
    async with (
        serving(stage.app()) as server,
        running_application(tmp_path, make_http_config(server.url), environment=environment, **settings) as ringback,
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        starting = asyncio.create_task(_start_held_call(http, url, surface))
        await stage.wait_until_held(1)
        stores[0].is_away = True
        status = await starting
        stores[0].is_away = False
        stage.release.set()
    assert status == "working"


async def _start_held_call(http: httpx.AsyncClient, url: str, surface: str) -> str:
    """Start a call that outlives its wait. Returns its status in the response."""
    if surface == "rest":
        body: Json = {"upstream": "stage", "tool": "hold", "arguments": {"text": "x"}, "wait_seconds": 1.5}
        response = await http.post(f"{url}/v1/calls", json=body)
        status: str = response.json().get("call", response.json())["status"]
        return status
    if surface == "task":
        client, params = ModernClient(http, f"{url}/mcp/stage"), call_params("hold", {"text": "x"})
        created = await client.request("tools/call", params, declare=TASKS_DECLARED)
        return str(created["status"])
    if surface == "modern":
        return _read_pending_status(await open_call(ModernClient(http, f"{url}/mcp/stage"), "hold", {"text": "x"}))
    async with legacy_session(http, f"{url}/mcp/stage") as session:
        return _read_pending_status(await open_call(session, "hold", {"text": "x"}))


def _read_pending_status(result: Json) -> str:
    return str(result["structuredContent"][PENDING_KEY]["status"])
