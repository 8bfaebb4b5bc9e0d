"""What an upstream may not answer to a proxied request: such a result reaches no client as a complete one."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.services.limits.unread_responses import LARGE_RESPONSE_BYTES, PARSED_COPIES, UnreadResponses
from tests.interaction.gateway.conftest import ELICITATION_CAPABILITY, NO_CAPABILITIES
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.library_upstream import LibraryUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, ModernClient, legacy_session
from tests.support.upstreams import OverriddenResponses, make_http_config, respond_with_result, send_json, serving

FORM: Final[Json] = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}},
}
URL_FORM: Final[Json] = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Go", "url": "https://a.b"},
}
SAMPLING: Final[Json] = {"method": "sampling/createMessage", "params": {}}
READ: Final[Json] = {"uri": "book://1"}
COMPLETION: Final[Json] = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "a", "value": "b"}}


@asynccontextmanager
async def open_gateway(folder: Path, responses: Any, *, era: str = "modern") -> AsyncGenerator[tuple[Any, str]]:
    app = OverriddenResponses(LibraryUpstream().app(era), responses)
    async with (
        serving(app) as server,
        running_application(folder, make_http_config(server.url, name="library"), auth="off") as ringback,
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        yield http, f"{url}/mcp/library"


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        ("resources/read", READ, {"resultType": "task", "taskId": "1"}),
        ("prompts/get", {"name": "review"}, {"resultType": "streaming", "messages": []}),
        ("completion/complete", COMPLETION, {"resultType": "input_required", "inputRequests": {"a": FORM}}),
        ("resources/read", READ, {"resultType": "input_required", "inputRequests": {"a": URL_FORM}}),
        ("resources/read", READ, {"resultType": "input_required", "inputRequests": {"a": SAMPLING}}),
        ("resources/read", READ, {"resultType": "input_required", "inputRequests": ["a"]}),
    ],
)
async def test_a_result_of_a_kind_that_the_request_does_not_allow_is_an_error(
    tmp_path: Path, method: str, params: Json, result: Json
) -> None:
    async with open_gateway(tmp_path, {method: respond_with_result(result)}) as (http, url):
        with pytest.raises(JsonRpcErrorResponse, match="did not offer") as refused:
            await ModernClient(http, url).request(method, params, declare=ELICITATION_CAPABILITY)
    assert refused.value.code == -32603


async def test_only_a_client_that_can_elicit_is_asked_for_the_input_of_a_resource(tmp_path: Path) -> None:
    own_meta = {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}
    form = {**FORM, "params": {**FORM["params"], "_meta": own_meta}}
    asked = {"resultType": "input_required", "inputRequests": {"a": form}, "requestState": "s"}
    async with open_gateway(tmp_path, {"resources/read": respond_with_result(asked)}) as (http, url):
        modern = ModernClient(http, url)
        returned = await modern.request("resources/read", READ, declare=ELICITATION_CAPABILITY)
        assert (returned["resultType"], returned["inputRequests"]) == ("input_required", {"a": FORM})
        with pytest.raises(JsonRpcErrorResponse, match="did not offer"):
            await modern.request("resources/read", READ, declare=NO_CAPABILITIES)
        async with legacy_session(http, url) as session:
            with pytest.raises(JsonRpcErrorResponse, match="did not offer"):
                await session.request("resources/read", READ)


@pytest.mark.parametrize("is_name", [False, True])
async def test_a_large_resource_counts_as_unread_with_the_objects_that_its_response_is_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_name: bool
) -> None:
    """It counted once and was held twice, so the limit of unread responses was half of what a client could hold."""
    counts: list[int] = []

    reserve_bytes = UnreadResponses.reserve_bytes

    def count_bytes(responses: UnreadResponses, reader: str, count: int) -> None:
        counts.append(count)
        reserve_bytes(responses, reader, count)

    monkeypatch.setattr(UnreadResponses, "reserve_bytes", count_bytes)
    text = "x" * LARGE_RESPONSE_BYTES
    content: Json = {"text": "", "_meta": {text: 1}} if is_name else {"text": text}
    result: Json = {"resultType": "complete", "contents": [{"uri": "book://1"} | content]}
    async with open_gateway(tmp_path, {"resources/read": respond_with_result(result)}) as (http, url):
        returned = await ModernClient(http, url).request("resources/read", READ)
    assert returned["contents"] == result["contents"]
    assert sum(counts) >= PARSED_COPIES * len(text)


@pytest.mark.parametrize(("said", "passed_on"), [(7000, 7000), (-1, 0), ("long", 0), (None, 0)])
async def test_an_upstreams_ttl_is_passed_on_if_clients_can_read_it(
    tmp_path: Path, said: object, passed_on: int
) -> None:
    result: Json = {"resultType": "complete", "contents": [], "ttlMs": said, "cacheScope": "public"}
    async with open_gateway(tmp_path, {"resources/read": respond_with_result(result)}) as (http, url):
        returned = await ModernClient(http, url).request("resources/read", READ)
    assert (returned["ttlMs"], returned["cacheScope"]) == (passed_on, "private")


async def test_each_client_gets_its_own_versions_code_for_a_resource_that_does_not_exist(tmp_path: Path) -> None:
    async def refuse(message: Json, send: Any) -> None:
        error = {"code": -32002, "message": "No such book.", "data": {"uri": "book://1"}}
        await send_json(send, {"jsonrpc": "2.0", "id": message["id"], "error": error})

    async with open_gateway(tmp_path, {"resources/read": refuse}, era="legacy") as (http, url):
        with pytest.raises(JsonRpcErrorResponse, match="No such book") as modern:
            await ModernClient(http, url).request("resources/read", READ)
        async with legacy_session(http, url) as session:
            with pytest.raises(JsonRpcErrorResponse, match="No such book") as legacy:
                await session.request("resources/read", READ)
    assert [(each.value.code, each.value.data) for each in (modern, legacy)] == [
        (-32602, {"uri": "book://1"}),
        (-32002, {"uri": "book://1"}),
    ]
