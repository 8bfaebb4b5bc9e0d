"""Questions of a legacy upstream reach the call that asks, with default settings, and no other call."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

from ringback.domain import inputs
from ringback.domain.call import Call, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.inputs import INPUT_BYTES_MAX
from ringback.domain.principal import Principal
from ringback.upstreams import session_dispatcher
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.transports import stdio
from tests.support.asking_upstream import AskingUpstream
from tests.support.calls import (
    answer_call,
    insert_call_to,
    make_call_to,
    request_cancel,
    running_runner,
    running_with_app,
    wait_for_call,
    wait_for_input_request,
)
from tests.support.engine import Engine
from tests.support.upstreams import make_http_config, make_legacy_app, make_python_config, open_upstreams, serving

STDIO_SERVER: Final = Path(__file__).parents[2] / "support" / "asking_stdio_upstream.py"
STDIO: Final = make_python_config(str(STDIO_SERVER))

pytestmark = pytest.mark.requirement("R32")


@asynccontextmanager
async def serving_asking_upstream(transport: str) -> AsyncGenerator[UpstreamConfig]:
    if transport == "stdio":
        yield STDIO
    else:
        async with serving(AskingUpstream().app()) as server:
            yield make_http_config(server.url)


def accept(text: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"answer": text}}


def ask(engine: Engine, question: str, *, tool: str = "ask", principal: str = "alice", **over: Any) -> Call:
    arguments = {"question": question, **over.pop("arguments", {})}
    return make_call_to(engine, tool, arguments=arguments, principal=Principal(principal), **over)


async def read_response(engine: Engine, call: Call) -> Any:
    """What the tool returned: the response to its request."""
    (ended,) = await engine.wait_until_final(call)
    assert ended.outcome is CallOutcome.RESULT, ended.error
    result = json.loads(await engine.read_result(call) or b"")
    return json.loads(result["content"][0]["text"])


async def answer_with_own_question(engine: Engine, call: Call) -> None:
    """Answer the only question of the call with the question's own text."""
    asked = await wait_for_input_request(engine, call)
    ((key, request),) = asked.input_requests.items()
    await answer_call(engine, call, {key: accept(request.params["message"])})


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_question_reaches_the_call_that_asks_and_its_answer_the_tool(engine: Engine, transport: str) -> None:
    call = ask(engine, "Which colour?")
    await engine.insert_calls(call)

    async with serving_asking_upstream(transport) as config, running_runner(engine, config):
        asked = await wait_for_input_request(engine, call)
        await answer_call(engine, call, {"r1.1": accept("blue")})
        response = await read_response(engine, call)

    assert asked.input_requests["r1.1"].params["message"] == "Which colour?"
    assert response == accept("blue")


async def test_a_question_is_answered_in_a_session_that_takes_no_new_requests(engine: Engine) -> None:
    """It is replaced after one failed request, for example. The answer ended the call as rejected, although its tool ran."""
    call = ask(engine, "Which colour?")
    await engine.insert_calls(call)

    async with open_upstreams(STDIO) as upstreams, engine.running_runner(upstreams):
        await wait_for_input_request(engine, call)
        session = upstreams.connections.shared[STDIO.name].get_open_session()
        assert session is not None
        session.close_to_new_requests()
        await answer_call(engine, call, {"r1.1": accept("blue")})
        response = await read_response(engine, call)

    assert response == accept("blue")


@pytest.mark.parametrize("related", [True, False], ids=["on-the-requests-stream", "on-the-sessions-stream"])
async def test_principals_that_are_asked_at_once_over_http_get_their_own_questions(
    engine: Engine, *, related: bool
) -> None:
    names = ("alice", "bob", "carol")
    arguments = {"count": len(names), "related": related}
    calls = [ask(engine, name, tool="ask_together", principal=name, arguments=arguments) for name in names]
    await engine.insert_calls(*calls)

    async with serving_asking_upstream("http") as config, running_runner(engine, config):
        for call in calls:
            await answer_with_own_question(engine, call)
        responses = [await read_response(engine, call) for call in calls]

    assert responses == [accept(name) for name in names]


async def test_concurrent_calls_of_one_principal_over_http_get_their_own_questions(engine: Engine) -> None:
    calls = [ask(engine, f"q{number}", tool="ask_together", arguments={"count": 5}) for number in range(5)]
    await engine.insert_calls(*calls)

    async with serving_asking_upstream("http") as config, running_runner(engine, config):
        for call in calls:
            await answer_with_own_question(engine, call)
        responses = [await read_response(engine, call) for call in calls]

    assert responses == [accept(f"q{number}") for number in range(5)]


async def test_calls_that_share_a_child_and_are_asked_at_once_are_not_asked(engine: Engine) -> None:
    calls = [
        ask(engine, name, tool="ask_together", principal=name, arguments={"count": 2}) for name in ("alice", "bob")
    ]
    await engine.insert_calls(*calls)

    async with running_runner(engine, STDIO):
        responses = [await read_response(engine, call) for call in calls]
    ended = [await engine.read_call(call) for call in calls]

    assert [call.input_round for call in ended] == [0, 0]
    assert all("cannot tell which" in response["message"] for response in responses)
    assert all("isolation" in response["message"] for response in responses)


@pytest.mark.parametrize(("next_principal", "is_named"), [("alice", True), ("bob", False)])
async def test_a_question_without_an_answer_is_named_to_the_next_call_of_its_principal_only(
    engine: Engine, next_principal: str, *, is_named: bool
) -> None:
    waiting, following = ask(engine, "Which colour?"), ask(engine, "Which size?", principal=next_principal)
    await engine.insert_calls(waiting)

    async with running_runner(engine, STDIO):
        await wait_for_input_request(engine, waiting)
        await engine.insert_calls(following)
        response = await read_response(engine, following)
        await answer_with_own_question(engine, waiting)
        await engine.wait_until_final(waiting)

    assert (f"{waiting.id} waits for an answer: answer it (" in response["message"]) is is_named
    assert (waiting.id in response["message"]) is is_named


@pytest.mark.parametrize(("next_principal", "is_asked"), [("alice", True), ("bob", False)])
async def test_a_cancelled_tool_that_goes_on_asks_no_other_principal(
    engine: Engine, next_principal: str, *, is_asked: bool
) -> None:
    cancelled = ask(engine, "Delete alice's files?", tool="ask_later", deadline_in=3600.0)
    following = ask(engine, "unused", tool="whoami", principal=next_principal)
    await engine.insert_calls(cancelled)

    async with running_runner(engine, STDIO):
        await wait_for_call(engine, cancelled, lambda found: found.progress is not None)
        await request_cancel(engine, cancelled)
        await engine.wait_until_final(cancelled)
        await engine.insert_calls(following)
        if is_asked:
            await answer_with_own_question(engine, following)
        response = await read_response(engine, following)

    assert ("action" in response) is is_asked


async def test_after_a_cancelled_tool_has_responded_other_principals_are_asked_again(engine: Engine) -> None:
    """Servers on the SDK for Python respond to a cancelled request, which proves that its tool has ended."""
    cancelled = ask(engine, "unused", tool="obey", deadline_in=3600.0)
    following = ask(engine, "Which colour?", principal="bob")
    await engine.insert_calls(cancelled)

    async with running_runner(engine, STDIO):
        await wait_for_call(engine, cancelled, lambda found: found.progress is not None)
        await request_cancel(engine, cancelled)
        await engine.wait_until_final(cancelled)
        await engine.insert_calls(following)
        await answer_with_own_question(engine, following)
        response = await read_response(engine, following)

    assert response["action"] == "accept"


async def test_a_question_that_its_tool_withdraws_is_closed(engine: Engine) -> None:
    asking, call = AskingUpstream(), ask(engine, "Which colour?", tool="ask_briefly")
    await engine.insert_calls(call)

    async with serving(asking.app()) as server, running_runner(engine, make_http_config(server.url)):
        await wait_for_input_request(engine, call)
        asking.withdraw.set()
        working = await wait_for_call(engine, call, lambda found: found.status is CallStatus.WORKING)
        asking.release.set()
        response = await read_response(engine, call)

    assert working.input_requests == {}
    assert response == "withdrawn"


async def test_a_question_whose_call_was_cancelled_leaves_room_for_that_of_the_next_call(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers on the SDK for Python 1.x do not withdraw it."""
    monkeypatch.setattr(stdio, "CHILD_REQUESTS_MAX", 1)
    cancelled, following = ask(engine, "Which colour?"), ask(engine, "Which size?")
    await engine.insert_calls(cancelled)

    async with running_runner(engine, STDIO):
        await wait_for_input_request(engine, cancelled)
        await request_cancel(engine, cancelled)
        await engine.wait_until_final(cancelled)
        await engine.insert_calls(following)
        await answer_with_own_question(engine, following)
        response = await read_response(engine, following)

    assert response == accept("Which size?")


async def test_too_many_open_questions_of_a_principal_are_refused_and_no_question_of_others(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_dispatcher, "OPEN_ELICITATIONS_MAX", 1)
    first, second, of_bob = ask(engine, "first"), ask(engine, "second"), ask(engine, "bob", principal="bob")

    async with serving_asking_upstream("http") as config, running_runner(engine, config):
        await engine.insert_calls(first)
        await wait_for_input_request(engine, first)
        await engine.insert_calls(second, of_bob)
        refused = await read_response(engine, second)
        for call in (of_bob, first):
            await answer_with_own_question(engine, call)
        responses = [await read_response(engine, call) for call in (of_bob, first)]

    assert "too many earlier questions" in refused["message"]
    assert responses == [accept("bob"), accept("first")]


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_question_that_is_too_large_is_refused_and_its_tool_goes_on(engine: Engine, transport: str) -> None:
    """The call ended, and a tool that runs as a task or on a resumable stream waited for an answer for ever."""
    call = ask(engine, "x" * INPUT_BYTES_MAX)
    await engine.insert_calls(call)

    async with serving_asking_upstream(transport) as config, running_runner(engine, config):
        response = await read_response(engine, call)

    assert f"The upstream's questions are larger than {INPUT_BYTES_MAX} bytes" in response["message"]


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_call_that_accepts_no_input_is_not_asked(engine: Engine, transport: str) -> None:
    call = ask(engine, "Which colour?", accepts_input=False)
    await engine.insert_calls(call)

    async with serving_asking_upstream(transport) as config, running_runner(engine, config):
        response = await read_response(engine, call)

    assert (await engine.read_call(call)).input_round == 0
    assert response["code"] in {-32600, -32601}


class Choice(BaseModel):
    answer: str


async def test_the_error_of_a_tool_that_asks_as_another_era_does_says_what_an_operator_can_do(engine: Engine) -> None:
    server = MCPServer[Any]("asking", log_level="ERROR")

    @server.tool()
    async def choose(context: Context[Any]) -> str:  # pyright: ignore[reportUnusedFunction] - the server calls it
        await context.elicit("Which one?", Choice)
        return "chosen"

    call = await insert_call_to(engine, "choose")
    async with running_with_app(engine, server.streamable_http_app()):
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.UPSTREAM_ERROR
    assert ended.error is not None
    assert (
        "no back-channel for server-initiated requests. The tool asks as only 2025-11-25 allows"
        in ended.error["message"]
    )
    assert '"protocol": "legacy"' in ended.error["message"]


async def test_a_question_of_a_tool_that_asks_without_end_is_refused(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "INPUT_ROUNDS_MAX", 1)
    server = MCPServer[Any]("asking", log_level="ERROR")

    @server.tool()
    async def insist(context: Context[Any]) -> str:  # pyright: ignore[reportUnusedFunction] - the server calls it
        await context.elicit("Which one?", Choice)
        await context.elicit("Are you sure?", Choice)
        return "chosen"

    call = make_call_to(engine, "insist")
    await engine.insert_calls(call)
    async with running_with_app(engine, make_legacy_app(server.streamable_http_app())):
        await wait_for_input_request(engine, call)
        await answer_call(engine, call, {"r1.1": {"action": "decline"}})
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.UPSTREAM_ERROR
    assert "asked for input more than 1 times" in (ended.error or {})["message"]


async def test_a_tool_error_of_fastmcp_about_the_era_is_followed_by_what_an_operator_can_do(engine: Engine) -> None:
    own = "elicitation via server-initiated requests is unavailable on 2026-07-28 connections."
    server = MCPServer[Any]("asking", log_level="ERROR")

    @server.tool()
    async def choose() -> str:  # pyright: ignore[reportUnusedFunction] - the server calls it
        raise ToolError(own)

    call = await insert_call_to(engine, "choose")
    async with running_with_app(engine, server.streamable_http_app()):
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is CallOutcome.TOOL_ERROR
    first, second = json.loads(await engine.read_result(call) or b"")["content"]
    assert own in first["text"]
    assert '"protocol": "legacy"' in second["text"]
