"""What an upstream is told of a client's `_meta`: what it is configured to be, whoever asks, for what, and in which round."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from scripts.conformance_runs.fixture import Fixture
from tests.interaction.gateway.conftest import ASKABLE
from tests.support.application import running_application
from tests.support.guarded import Recorded
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, Modern, legacy_session
from tests.support.serving import serving as serving_api
from tests.support.upstreams import App, http_config, legacy_only, serving

TRACE: Final = {"traceparent": "00-trace", "tracestate": "a=1", "baggage": "b=2"}
META: Final[Json] = {
    **TRACE,
    "acme/tenant": "t-1",
    "acmeish": True,
    "progressToken": "p-1",
    "ringback/clientSessionId": "s-1",
    "io.modelcontextprotocol/related-task": {"taskId": "t"},
}
TOLD: Final[Mapping[str, Json]] = {
    "all": {**TRACE, "acme/tenant": "t-1", "acmeish": True},
    "some": {"traceparent": "00-trace", "acme/tenant": "t-1"},
    "some-old": {"traceparent": "00-trace", "acme/tenant": "t-1"},
    "none": {},
}
SOME: Final = ("traceparent", "acme/*")
ASKED: Final[tuple[tuple[str, Json], ...]] = (
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
class Doors:
    url: str
    http: httpx.AsyncClient
    upstreams: Mapping[str, Recorded]

    def modern(self, upstream: str) -> Modern:
        return Modern(self.http, f"{self.url}/mcp/{upstream}")

    def told(self, upstream: str, method: str) -> list[Json]:
        """What the upstream was told of clients with each such request, and forget it."""
        seen = self.upstreams[upstream].seen
        messages: list[Any] = [json.loads(part) for part in seen if part.startswith(b"{")]
        seen.clear()
        return [_clients(message["params"].get("_meta", {})) for message in messages if message["method"] == method]


def _clients(meta: Json) -> Json:
    """Without what is between us and the upstream, of which nothing may be the client's."""
    ours = {key for key in meta if key == "progressToken" or key.startswith("io.modelcontextprotocol/")}
    assert "io.modelcontextprotocol/related-task" not in ours
    assert meta.get("progressToken") != "p-1"
    return {key: value for key, value in meta.items() if key not in ours}


@pytest.fixture(scope="module")
async def doors(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Doors]:
    folder: Path = tmp_path_factory.mktemp("doors")
    upstreams = {name: _recorded() for name in TOLD}
    passing = {"some": SOME, "some-old": SOME, "none": ()}
    async with AsyncExitStack() as stack:
        configs = [
            http_config((await stack.enter_async_context(serving(_of_its_era(name, upstream)))).url, name=name)
            for name, upstream in upstreams.items()
        ]
        configured = [
            replace(config, pass_meta=passing[config.name]) if config.name in passing else config for config in configs
        ]
        ringback = await stack.enter_async_context(running_application(folder, *configured, auth="off"))
        url = await stack.enter_async_context(serving_api(ringback.app.api))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        yield Doors(url, http, upstreams)


def _recorded() -> Recorded:
    app: Any = Fixture().app()
    return Recorded(app)


def _of_its_era(name: str, app: App) -> App:
    return legacy_only(app) if name.endswith("old") else app


@pytest.mark.parametrize("upstream", TOLD)
async def test_clients_of_both_eras_pass_on_what_the_upstream_is_to_be_told(doors: Doors, upstream: str) -> None:
    modern = doors.modern(upstream)
    async with legacy_session(doors.http, modern.url) as session:
        for method, params in ASKED:
            for client in (modern, session):
                await client.result(method, {**params, "_meta": META})
            assert doors.told(upstream, method) == [TOLD[upstream]] * 2, method


@pytest.mark.requirement("R32")
@pytest.mark.parametrize("upstream", [name for name in TOLD if not name.endswith("old")])
async def test_each_round_of_questions_is_told_the_same_whatever_door_its_answer_came_through(
    doors: Doors, upstream: str
) -> None:
    modern = doors.modern(upstream)
    params: Json = {"name": "test_input_required_result_multi_round", "arguments": {}, "_meta": META}
    first = await modern.result("tools/call", params, declare=ASKABLE)
    again = {**params, "requestState": first["requestState"], "inputResponses": {"step1": ALICE}}
    second = await modern.result("tools/call", again, declare=ASKABLE)
    call_id = second["_meta"]["ringback/callId"]
    (key,) = (await doors.http.get(f"{doors.url}/v1/calls/{call_id}")).json()["input_requests"]
    await doors.http.post(f"{doors.url}/v1/calls/{call_id}/input", json={"responses": {key: BLUE}})
    waited = await doors.http.get(f"{doors.url}/v1/calls/{call_id}?wait_seconds=60")

    assert waited.json()["status"] == "completed"
    assert doors.told(upstream, "tools/call") == [TOLD[upstream]] * 3


@pytest.mark.parametrize("upstream", TOLD)
async def test_a_call_over_rest_tells_nothing_of_its_client(doors: Doors, upstream: str) -> None:
    body: Json = {"upstream": upstream, "tool": "test_simple_text", "arguments": {}, "wait_seconds": 30}
    names: Json = {"client_session_id": "s-1", "correlation_id": "c-1"}
    answer = await doors.http.post(f"{doors.url}/v1/calls", json={**body, **names}, headers=TRACE)

    assert answer.status_code == 200
    assert doors.told(upstream, "tools/call") == [{}]
