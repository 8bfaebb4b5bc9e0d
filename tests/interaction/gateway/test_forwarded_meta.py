"""An upstream gets the configured keys of a client's `_meta`, for every client, method and input round."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from scripts.conformance_runs.fixture import Fixture
from tests.interaction.gateway.conftest import ELICITATION_CAPABILITY
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, ModernClient, legacy_session
from tests.support.oauth_service import RecordingApp
from tests.support.upstreams import App, make_http_config, make_legacy_app, serving

TRACE: Final = {"traceparent": "00-trace", "tracestate": "a=1", "baggage": "b=2"}
META: Final[Json] = {
    **TRACE,
    "acme/tenant": "t-1",
    "acmeish": True,
    "progressToken": "p-1",
    "ringback/clientSessionId": "s-1",
    "io.modelcontextprotocol/related-task": {"taskId": "t"},
}
FORWARDED_META: Final[Mapping[str, Json]] = {
    "all": {**TRACE, "acme/tenant": "t-1", "acmeish": True},
    "some": {"traceparent": "00-trace", "acme/tenant": "t-1"},
    "some-old": {"traceparent": "00-trace", "acme/tenant": "t-1"},
    "none": {},
}
SOME: Final = ("traceparent", "acme/*")
INPUT_REQUEST: Final[tuple[tuple[str, Json], ...]] = (
    ("tools/call", {"name": "test_simple_text", "arguments": {}}),
    ("resources/read", {"uri": "test://static-text"}),
    ("prompts/get", {"name": "test_simple_prompt"}),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
            "argument": {"name": "arg1", "value": "x"},
        },
    ),
)
ALICE: Final[Json] = {"action": "accept", "content": {"name": "Alice"}}
BLUE: Final[Json] = {"action": "accept", "content": {"color": "blue"}}

pytestmark = pytest.mark.requirement("R28")


@dataclass(frozen=True, slots=True)
class MetaHarness:
    url: str
    http: httpx.AsyncClient
    upstreams: Mapping[str, RecordingApp]

    def make_modern_client(self, upstream: str) -> ModernClient:
        return ModernClient(self.http, f"{self.url}/mcp/{upstream}")

    def forwarded_meta(self, upstream: str, method: str) -> list[Json]:
        """The client `_meta` of each such request at the upstream since the last look."""
        observed = self.upstreams[upstream].received
        messages: list[Any] = [json.loads(part) for part in observed if part.startswith(b"{")]
        observed.clear()
        return [client_meta(message["params"].get("_meta", {})) for message in messages if message["method"] == method]


def client_meta(meta: Json) -> Json:
    """Without the keys between Ringback and the upstream, none of which may come from the client."""
    ours = {key for key in meta if key == "progressToken" or key.startswith("io.modelcontextprotocol/")}
    assert "io.modelcontextprotocol/related-task" not in ours
    assert meta.get("progressToken") != "p-1"
    return {key: value for key, value in meta.items() if key not in ours}


@pytest.fixture(scope="module")
async def harness(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[MetaHarness]:
    folder: Path = module_path_factory.mktemp("harness")
    upstreams = {name: serving_recorded() for name in FORWARDED_META}
    passing = {"some": SOME, "some-old": SOME, "none": ()}
    async with AsyncExitStack() as stack:
        configs = [
            make_http_config((await stack.enter_async_context(serving(make_app_of_era(name, upstream)))).url, name=name)
            for name, upstream in upstreams.items()
        ]
        configured = [
            replace(config, forwarded_meta_keys=passing[config.name]) if config.name in passing else config
            for config in configs
        ]
        ringback = await stack.enter_async_context(running_application(folder, *configured, auth="off"))
        url = await stack.enter_async_context(serving_api(ringback.app.api))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        yield MetaHarness(url, http, upstreams)


def serving_recorded() -> RecordingApp:
    app: Any = Fixture().app()
    return RecordingApp(app)


def make_app_of_era(name: str, app: App) -> App:
    return make_legacy_app(app) if name.endswith("old") else app


@pytest.mark.parametrize("upstream", FORWARDED_META)
async def test_clients_of_both_eras_pass_on_the_configured_meta_keys(harness: MetaHarness, upstream: str) -> None:
    modern = harness.make_modern_client(upstream)
    async with legacy_session(harness.http, modern.url) as session:
        for method, params in INPUT_REQUEST:
            for client in (modern, session):
                await client.request(method, {**params, "_meta": META})
            assert harness.forwarded_meta(upstream, method) == [FORWARDED_META[upstream]] * 2, method


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("upstream", [name for name in FORWARDED_META if not name.endswith("old")])
async def test_each_input_round_forwards_the_same_meta_on_every_surface(harness: MetaHarness, upstream: str) -> None:
    modern = harness.make_modern_client(upstream)
    params: Json = {"name": "test_input_required_result_multi_round", "arguments": {}, "_meta": META}
    first = await modern.request("tools/call", params, declare=ELICITATION_CAPABILITY)
    again = {**params, "requestState": first["requestState"], "inputResponses": {"step1": ALICE}}
    second = await modern.request("tools/call", again, declare=ELICITATION_CAPABILITY)
    call_id = second["_meta"]["ringback/callId"]
    (key,) = (await harness.http.get(f"{harness.url}/v1/calls/{call_id}")).json()["input_requests"]
    await harness.http.post(f"{harness.url}/v1/calls/{call_id}/input", json={"responses": {key: BLUE}})
    waited = await harness.http.get(f"{harness.url}/v1/calls/{call_id}?wait_seconds=60")

    assert waited.json()["status"] == "completed"
    assert harness.forwarded_meta(upstream, "tools/call") == [FORWARDED_META[upstream]] * 3


@pytest.mark.parametrize("upstream", FORWARDED_META)
async def test_a_call_over_rest_forwards_no_client_meta(harness: MetaHarness, upstream: str) -> None:
    body: Json = {"upstream": upstream, "tool": "test_simple_text", "arguments": {}, "wait_seconds": 30}
    names: Json = {"client_session_id": "s-1", "correlation_id": "c-1"}
    answer = await harness.http.post(f"{harness.url}/v1/calls", json={**body, **names}, headers=TRACE)

    assert answer.status_code == 200
    assert harness.forwarded_meta(upstream, "tools/call") == [{}]
