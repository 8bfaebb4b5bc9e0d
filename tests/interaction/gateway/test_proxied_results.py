"""What an upstream may not answer to a proxied request: such a result reaches no client as a complete one."""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from ringback.services.limits.unread_responses import LARGE_RESPONSE_BYTES, PARSED_COPIES, UnreadResponses
from ringback.upstreams.config import UpstreamConfig
from tests.interaction.gateway.conftest import ELICITATION_CAPABILITY, NO_CAPABILITIES
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.library_upstream import LibraryUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, ModernClient, legacy_session
from tests.support.upstreams import (
    OverriddenResponses,
    ResponseOverride,
    make_http_config,
    respond_with_result,
    send_json,
    serving,
)

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


@dataclass(frozen=True, slots=True)
class Gateway:
    """Ringback with a modern and a legacy library, whose responses the tests set."""

    http: httpx.AsyncClient
    url: str
    responses: Mapping[str, dict[str, ResponseOverride]]
    """By era and method."""

    @contextmanager
    def responding(
        self, responses: Mapping[str, ResponseOverride], *, era: str = "modern"
    ) -> Generator[tuple[httpx.AsyncClient, str]]:
        self.responses[era].update(responses)
        try:
            yield self.http, f"{self.url}/mcp/{era}"
        finally:
            self.responses[era].clear()


@pytest.fixture(scope="module")
async def gateway(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Gateway]:
    responses: dict[str, dict[str, ResponseOverride]] = {"modern": {}, "legacy": {}}
    async with AsyncExitStack() as stack:
        configs: list[UpstreamConfig] = []
        for era, overrides in responses.items():
            app = OverriddenResponses(LibraryUpstream().app(era), overrides)
            configs.append(make_http_config((await stack.enter_async_context(serving(app))).url, name=era))
        folder = module_path_factory.mktemp("gateway")
        ringback = await stack.enter_async_context(running_application(folder, *configs, auth="off"))
        url = await stack.enter_async_context(serving_api(ringback.app.api))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        yield Gateway(http, url, responses)


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
    gateway: Gateway, method: str, params: Json, result: Json
) -> None:
    with (
        gateway.responding({method: respond_with_result(result)}) as (http, url),
        pytest.raises(JsonRpcErrorResponse, match="did not offer") as refused,
    ):
        await ModernClient(http, url).request(method, params, declare=ELICITATION_CAPABILITY)
    assert refused.value.code == -32603


async def test_only_a_client_that_can_elicit_is_asked_for_the_input_of_a_resource(gateway: Gateway) -> None:
    own_meta = {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}
    form = {**FORM, "params": {**FORM["params"], "_meta": own_meta}}
    asked = {"resultType": "input_required", "inputRequests": {"a": form}, "requestState": "s"}
    with gateway.responding({"resources/read": respond_with_result(asked)}) as (http, url):
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
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, *, is_name: bool
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
    with gateway.responding({"resources/read": respond_with_result(result)}) as (http, url):
        returned = await ModernClient(http, url).request("resources/read", READ)
    assert returned["contents"] == result["contents"]
    assert sum(counts) >= PARSED_COPIES * len(text)


@pytest.mark.parametrize(("said", "passed_on"), [(7000, 7000), (-1, 0), ("long", 0), (None, 0)])
async def test_an_upstreams_ttl_is_passed_on_if_clients_can_read_it(
    gateway: Gateway, said: object, passed_on: int
) -> None:
    result: Json = {"resultType": "complete", "contents": [], "ttlMs": said, "cacheScope": "public"}
    with gateway.responding({"resources/read": respond_with_result(result)}) as (http, url):
        returned = await ModernClient(http, url).request("resources/read", READ)
    assert (returned["ttlMs"], returned["cacheScope"]) == (passed_on, "private")


async def test_each_client_gets_its_own_versions_code_for_a_resource_that_does_not_exist(gateway: Gateway) -> None:
    async def refuse(message: Json, send: Any) -> None:
        error = {"code": -32002, "message": "No such book.", "data": {"uri": "book://1"}}
        await send_json(send, {"jsonrpc": "2.0", "id": message["id"], "error": error})

    with gateway.responding({"resources/read": refuse}, era="legacy") as (http, url):
        with pytest.raises(JsonRpcErrorResponse, match="No such book") as modern:
            await ModernClient(http, url).request("resources/read", READ)
        async with legacy_session(http, url) as session:
            with pytest.raises(JsonRpcErrorResponse, match="No such book") as legacy:
                await session.request("resources/read", READ)
    assert [(each.value.code, each.value.data) for each in (modern, legacy)] == [
        (-32602, {"uri": "book://1"}),
        (-32002, {"uri": "book://1"}),
    ]
