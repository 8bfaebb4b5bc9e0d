"""With default settings, every caller that can answer gets the questions of a legacy upstream, and its own only."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from tests.interaction.gateway.conftest import ELICITATION_CAPABILITY, NO_CAPABILITIES
from tests.support.api_server import serving_api
from tests.support.application import (
    SECRET,
    CallbackReceiver,
    RunningApplication,
    running_application,
    serving_callbacks,
)
from tests.support.asking_upstream import AskingUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, LegacyClientSession, ModernClient, legacy_session
from tests.support.upstreams import make_http_config, make_python_config, serving

STDIO_SERVER: Final = Path(__file__).parents[2] / "support" / "asking_stdio_upstream.py"
BLUE: Final[Json] = {"action": "accept", "content": {"answer": "blue"}}

pytestmark = pytest.mark.requirement("R32")
each_transport = pytest.mark.parametrize("upstream", ["remote", "child"])


@dataclass(slots=True)
class AskingGateway:
    """A gateway to two asking upstreams: `remote` over HTTP and `child` over stdio."""

    ringback: RunningApplication
    url: str
    http: httpx.AsyncClient
    callback_receiver: CallbackReceiver
    keys: dict[str, str] = field(default_factory=dict[str, str])

    async def get_api_key(self, principal: str) -> str:
        if principal not in self.keys:
            api_keys = self.ringback.app.services.api_keys
            _, self.keys[principal] = await api_keys.create_key(
                principal, name="test", scopes=DEFAULT_SCOPES, upstreams=None
            )
        return self.keys[principal]

    @asynccontextmanager
    async def open_session(
        self, upstream: str, *, principal: str = "alice", capabilities: Json | None = None
    ) -> AsyncGenerator[LegacyClientSession]:
        key = await self.get_api_key(principal)
        async with legacy_session(
            self.http, f"{self.url}/mcp/{upstream}", key=key, capabilities=capabilities
        ) as session:
            yield session

    async def make_modern_client(self, upstream: str) -> ModernClient:
        return ModernClient(self.http, f"{self.url}/mcp/{upstream}", await self.get_api_key("alice"))

    async def request_rest(self, method: str, path: str, **options: Any) -> Json:
        headers = {"authorization": f"Bearer {await self.get_api_key('alice')}"}
        response = await self.http.request(method, f"{self.url}{path}", headers=headers, **options)
        assert response.is_success, response.text
        return response.json()

    async def answer_over_rest(self, call_id: str) -> Json:
        """Answer the only question of the call; return its result."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not (call := await self.request_rest("GET", f"/v1/calls/{call_id}?wait_seconds=5"))["input_requests"]:
                assert call["status"] == "working", call
        ((key, asked),) = call["input_requests"].items()
        assert asked["params"]["message"] == "Which colour?"
        await self.request_rest("POST", f"/v1/calls/{call_id}/input", json={"responses": {key: BLUE}})
        await self.request_rest(
            "POST", "/v1/calls/wait", json={"call_ids": [call_id], "mode": "all", "wait_seconds": 30}
        )
        return await self.request_rest("GET", f"/v1/calls/{call_id}/result")


@pytest.fixture(scope="module")
async def asking_gate(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[AskingGateway]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(AskingUpstream().app()))
        configs = [
            make_http_config(server.url, name="remote"),
            make_python_config(str(STDIO_SERVER), name="child"),
        ]
        receiver = await stack.enter_async_context(serving_callbacks())
        ringback = await stack.enter_async_context(
            running_application(
                module_path_factory.mktemp("gate"), *configs, allowed_hosts=("127.0.0.1",), inline_wait_seconds=50.0
            )
        )
        url = await stack.enter_async_context(serving_api(ringback.app.api))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        yield AskingGateway(ringback, url, http, receiver)


def ask(tool: str = "ask", question: str = "Which colour?", **rest: Any) -> Json:
    return {"name": tool, "arguments": {"question": question, **rest.pop("arguments", {})}, **rest}


def read_response(result: Json) -> Json:
    response: Json = json.loads(result["content"][0]["text"])
    return response


@each_transport
async def test_a_rest_caller_that_accepts_input_is_asked(asking_gate: AskingGateway, upstream: str) -> None:
    body = {"upstream": upstream, "tool": "ask", "arguments": {"question": "Which colour?"}, "accepts_input": True}
    started = await asking_gate.request_rest("POST", "/v1/calls", json=body)

    assert read_response(await asking_gate.answer_over_rest(started["call"]["id"])) == BLUE


@each_transport
async def test_a_legacy_client_that_declares_elicitation_is_asked(asking_gate: AskingGateway, upstream: str) -> None:
    async with asking_gate.open_session(upstream) as session, session.open_request("tools/call", ask()) as frames:
        question = await frames.read_message("elicitation/create")
        await session.send_response(question, BLUE)
        result = await frames.read_response()

    assert question["params"]["message"] == "Which colour?"
    assert read_response(result) == BLUE


@each_transport
async def test_a_modern_client_that_declares_elicitation_gets_an_input_request(
    asking_gate: AskingGateway, upstream: str
) -> None:
    client = await asking_gate.make_modern_client(upstream)
    asked = await client.request("tools/call", ask(), declare=ELICITATION_CAPABILITY)
    ((key, request),) = asked["inputRequests"].items()
    again = ask(requestState=asked["requestState"], inputResponses={key: BLUE})
    result = await client.request("tools/call", again, declare=ELICITATION_CAPABILITY)

    assert request["params"]["message"] == "Which colour?"
    assert read_response(result) == BLUE


@each_transport
async def test_a_client_without_elicitation_is_asked_by_its_callback(asking_gate: AskingGateway, upstream: str) -> None:
    meta = {
        "ringback/callback": {"url": asking_gate.callback_receiver.url, "secret": SECRET},
        "ringback/correlationId": f"question of {upstream}",
    }
    async with asking_gate.open_session(upstream, capabilities=NO_CAPABILITIES) as session:
        pending = await session.request("tools/call", ask(_meta=meta))
    rung = await asking_gate.callback_receiver.wait_for_callback(f"question of {upstream}")

    assert rung.name == "call.input_required"
    assert rung.data["call_id"] == pending["_meta"]["ringback/callId"]
    assert read_response(await asking_gate.answer_over_rest(rung.data["call_id"])) == BLUE


@pytest.mark.parametrize("related", [True, False], ids=["on-the-requests-stream", "on-the-sessions-stream"])
async def test_principals_that_are_asked_at_once_see_their_own_question_only(
    asking_gate: AskingGateway, *, related: bool
) -> None:
    async def answer_own_question(principal: str) -> tuple[list[str], Json]:
        arguments = {"count": 2, "related": related, "group": str(related)}
        params = ask("ask_together", f"{principal}?", arguments=arguments)
        async with (
            asking_gate.open_session("remote", principal=principal) as session,
            session.open_request("tools/call", params) as frames,
        ):
            question = await frames.read_message("elicitation/create")
            await session.send_response(question, {"action": "accept", "content": {"answer": principal}})
            received: list[Json] = []
            result = await frames.read_response(received)
            questions = [each for each in [question, *received] if each.get("method") == "elicitation/create"]
            return [each["params"]["message"] for each in questions], read_response(result)

    answered = await asyncio.gather(answer_own_question("alice"), answer_own_question("bob"))

    assert [questions for questions, _ in answered] == [["alice?"], ["bob?"]]
    assert [response["content"]["answer"] for _, response in answered] == ["alice", "bob"]


async def test_principals_that_share_a_child_are_asked_nothing_while_both_run(asking_gate: AskingGateway) -> None:
    async def call_together(principal: str) -> tuple[list[Json], Json]:
        received: list[Json] = []
        params = ask("ask_together", f"{principal}?", arguments={"count": 2})
        async with asking_gate.open_session("child", principal=principal) as session:
            return received, read_response(await session.request("tools/call", params, received=received))

    answered = await asyncio.gather(call_together("alice"), call_together("bob"))

    assert [[each for each in received if each.get("method") == "elicitation/create"] for received, _ in answered] == [
        [],
        [],
    ]
    assert all("The question was not asked" in response["message"] for _, response in answered)


async def test_only_clients_that_can_elicit_see_the_tools_that_an_upstream_has_for_them(
    asking_gate: AskingGateway,
) -> None:
    modern = await asking_gate.make_modern_client("remote")
    callback = quote(asking_gate.callback_receiver.url, safe="")
    async with (
        asking_gate.open_session(f"remote?callback_url={callback}", capabilities=NO_CAPABILITIES) as has_callback,
        asking_gate.open_session("remote") as can_elicit,
        asking_gate.open_session("remote", capabilities=NO_CAPABILITIES) as cannot,
    ):
        lists = [
            await can_elicit.request("tools/list", {}),
            await has_callback.request("tools/list", {}),
            await modern.request("tools/list", {}, declare=ELICITATION_CAPABILITY),
            await asking_gate.request_rest("GET", "/v1/upstreams/remote/tools"),
            await cannot.request("tools/list", {}),
            await modern.request("tools/list", {}, declare=NO_CAPABILITIES),
        ]
        with pytest.raises(JsonRpcErrorResponse, match="only to clients that can answer questions"):
            await cannot.request("tools/call", ask())

    assert ["ask" in {tool["name"] for tool in each["tools"]} for each in lists] == [True] * 4 + [False] * 2


async def test_a_caller_that_cannot_answer_a_child_learns_that_the_question_was_not_sent(
    asking_gate: AskingGateway,
) -> None:
    received: list[Json] = []
    async with asking_gate.open_session("child", capabilities=NO_CAPABILITIES) as session:
        result = await session.request("tools/call", ask(), received=received)

    assert received == []
    assert "does not accept input" in read_response(result)["message"]
