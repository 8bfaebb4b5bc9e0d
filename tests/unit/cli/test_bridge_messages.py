"""Cancellations, questions and notifications through `ringback mcp`."""

from typing import Any

import httpx2
import pytest
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from ringback.cli.stdio_bridge.connection import CALLS_MAX, URGENT_CALLS_MAX
from tests.support.bridge_stage import MODERN_META, BridgeStage, ScriptedStream, running_bridge

CALL: dict[str, Any] = {"name": "work", "arguments": {}}
PENDING: dict[str, Any] = {"content": [], "_meta": {"ringback/callId": "call_1"}}


def cancel(stage: BridgeStage, request_id: int | str = 1) -> None:
    stage.send(method="notifications/cancelled", params={"requestId": request_id})


async def test_a_modern_client_s_cancellation_cancels_the_call_of_its_request() -> None:
    async with running_bridge() as stage:
        stage.service.script("tools/call", ScriptedStream())
        stage.send_request("tools/call", CALL | MODERN_META)
        await stage.service.wait_until(lambda: len(stage.service.requests) == 1)
        cancel(stage)
        await stage.bridge.wait_for_last_responses()
        started, cancelled = stage.service.requests

    assert cancelled.method == cancelled.headers["mcp-method"] == "ringback/cancelRequest"
    assert cancelled.headers["ringback-cancel-key"] == started.headers["ringback-cancel-key"]
    assert cancelled.message["params"] == MODERN_META
    assert stage.received == []


async def test_a_modern_call_whose_connection_is_lost_is_cancelled_when_the_service_is_back() -> None:
    stream = ScriptedStream()
    async with running_bridge() as stage:
        stage.service.script("tools/call", stream, PENDING)
        stage.service.script("ringback/cancelRequest", httpx2.ReadError("reset"))
        stage.send_request("tools/call", CALL | MODERN_META)
        await stage.service.wait_until(lambda: len(stage.service.requests) == 1)
        cancel(stage)
        await stage.bridge.wait_for_last_responses()
        started, found, cancelled = stage.service.select("tools/call")

    assert (found.idempotency_key, found.query) == (started.idempotency_key, {"wait": "0"})
    assert cancelled.message["params"]["name"] == cancelled.headers["mcp-name"] == "ringback_cancel_call"
    assert cancelled.message["params"]["arguments"] == {"call_id": "call_1"}
    assert stage.received == []


@pytest.mark.parametrize(
    "result",
    [PENDING, {"resultType": "task", "taskId": "call_1"}, {"task": {"taskId": "call_1"}}, {"content": []}],
    ids=["pending", "task", "legacy task", "ended before calls had ids"],
)
async def test_the_call_to_cancel_is_the_one_that_the_response_names(result: dict[str, Any]) -> None:
    async with running_bridge() as stage:
        stage.service.script("tools/call", httpx2.ReadError("reset"), httpx2.ConnectError("refused"), result)
        stage.send_request("tools/call", CALL | MODERN_META)
        await stage.service.wait_until(lambda: len(stage.service.requests) == 1)
        cancel(stage)
        await stage.bridge.wait_for_last_responses()
        names = [each.message["params"]["name"] for each in stage.service.select("tools/call")]

    assert names.count("ringback_cancel_call") == (result != {"content": []})


async def test_a_lost_call_that_has_ended_with_an_error_needs_no_cancellation() -> None:
    failed = httpx2.Response(200, json={"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "It failed."}})
    async with running_bridge() as stage:
        stage.service.script("tools/call", ScriptedStream(), failed)
        stage.service.script("ringback/cancelRequest", httpx2.ReadError("reset"))
        stage.send_request("tools/call", CALL | MODERN_META)
        await stage.service.wait_until(lambda: len(stage.service.requests) == 1)
        cancel(stage)
        await stage.bridge.wait_for_last_responses()

        assert len(stage.service.select("tools/call")) == 2


async def test_the_cancellation_of_a_lost_call_waits_for_the_service() -> None:
    async with running_bridge() as stage:
        outage = [httpx2.ConnectError("refused")] * 20
        stage.service.script("tools/call", ScriptedStream(), *outage, PENDING)
        stage.service.script("ringback/cancelRequest", httpx2.ReadError("reset"))
        stage.send_request("tools/call", CALL | MODERN_META)
        await stage.service.wait_until(lambda: len(stage.service.requests) == 1)
        cancel(stage)
        await stage.service.wait_until(lambda: len(stage.service.select("tools/call")) == len(outage) + 3)

        assert stage.service.requests[-1].message["params"]["name"] == "ringback_cancel_call"


async def test_cancelling_a_wait_for_a_call_does_not_cancel_the_call() -> None:
    async with running_bridge() as stage:
        stage.service.script("tools/call", ScriptedStream())
        stage.send_request("tools/call", {"name": "ringback_wait_for_call"} | MODERN_META)
        await stage.service.wait_until(lambda: len(stage.service.requests) == 1)
        cancel(stage)
        await stage.request("ping", MODERN_META, request_id=2)

        assert [each.method for each in stage.service.requests] == ["tools/call", "ping"]


async def test_a_request_that_never_arrived_is_dropped_by_its_cancellation() -> None:
    async with running_bridge() as stage:
        stage.service.is_down = True
        stage.send_request("tools/call", CALL | MODERN_META)
        cancel(stage)
        await stage.bridge.wait_for_last_responses()

    assert (stage.service.requests, stage.received) == ([], [])


async def test_a_legacy_cancellation_names_the_request_as_it_was_sent_last() -> None:
    broken, open_stream = ScriptedStream(), ScriptedStream()
    broken.break_off()
    async with running_bridge() as stage:
        await stage.begin_session()
        stage.service.script("tools/call", broken, open_stream)
        stage.send_request("tools/call", CALL)
        await stage.service.wait_until(lambda: len(stage.service.select("tools/call")) == 2)
        cancel(stage)
        await stage.service.wait_until(lambda: bool(stage.service.select("notifications/cancelled")))
        sent, cancelled = stage.service.select("tools/call")[1], stage.service.select("notifications/cancelled")[0]

    assert cancelled.message["params"]["requestId"] == sent.message["id"] != 1
    assert len(stage.service.select("tools/call")) == 2


async def test_a_legacy_call_whose_connection_is_lost_is_cancelled_when_the_service_is_back() -> None:
    broken = ScriptedStream()
    async with running_bridge() as stage:
        await stage.begin_session()
        stage.service.script("tools/call", broken, PENDING)
        stage.service.script("notifications/cancelled", httpx2.ConnectError("refused"))
        stage.send_request("tools/call", CALL)
        await stage.service.wait_until(lambda: bool(stage.service.select("tools/call")))
        cancel(stage)
        await stage.service.wait_until(lambda: len(stage.service.select("tools/call")) == 3)
        cancelled = stage.service.select("tools/call")[2].message["params"]

    assert cancelled["arguments"] == {"call_id": "call_1"}


@pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "legacy"])
async def test_a_lost_call_is_cancelled_before_it_is_sent_again(*, is_modern: bool) -> None:
    """A request that never arrived must not start its tool only to be cancelled."""
    async with running_bridge() as stage:
        if not is_modern:
            await stage.begin_session()
        cancellation = "ringback/cancelRequest" if is_modern else "notifications/cancelled"
        stage.service.script("tools/call", ScriptedStream(), PENDING)
        stage.service.script(cancellation, httpx2.ReadError("reset"))
        stage.send_request("tools/call", CALL | (MODERN_META if is_modern else {}))
        await stage.service.wait_until(lambda: len(stage.service.select("tools/call")) == 1)
        before = len(stage.service.requests)
        cancel(stage)
        await stage.service.wait_until(lambda: len(stage.service.select("tools/call")) == 3)
        lost, cancelled, repeated = stage.service.requests[before : before + 3]

    assert [each.method for each in (lost, cancelled, repeated)] == [cancellation, cancellation, "tools/call"]
    if is_modern:
        assert cancelled.headers["ringback-cancel-key"] == repeated.headers["ringback-cancel-key"]
    else:
        assert cancelled.message["params"]["requestId"] == repeated.message["id"]


@pytest.mark.parametrize("request_id", [7, "x", None, {"id": 1}, [1]], ids=repr)
async def test_a_cancellation_of_no_request_is_ignored(request_id: Any) -> None:
    async with running_bridge() as stage:
        cancel(stage, request_id)
        await stage.bridge.wait_for_last_responses()

    assert stage.service.requests == []


# -- questions of the service ------------------------------------------------------------------------------------------------


def make_question(request_id: int | str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": "elicitation/create", "params": {"message": "Sure?"}}


async def test_an_answer_reaches_the_question_of_the_service_under_its_own_id() -> None:
    stream = ScriptedStream()
    stream.write_event(make_question(0))
    async with running_bridge() as stage:
        await stage.begin_session()
        stage.service.script("tools/call", stream)
        stage.send_request("tools/call", CALL)
        question = await stage.wait_for_notification("elicitation/create")
        for _ in range(2):  # the second answer is to no open question
            stage.send(id=question["id"], result={"action": "accept"})
        await stage.service.wait_until(lambda: bool(stage.service.answers))
        await stage.request("ping", request_id="last")
        answers = stage.service.answers

    assert answers == [{"jsonrpc": "2.0", "id": 0, "result": {"action": "accept"}}]
    assert question["params"] == {"message": "Sure?"}


async def answer_while_the_service_is_away(stage: BridgeStage, question_id: int | str) -> None:
    """Answer this question of the service; the first two sendings of the answer fail."""
    stream = ScriptedStream()
    stream.write_event(make_question(question_id))
    await stage.begin_session()
    stage.service.script("tools/call", stream)
    stage.service.script("POST", httpx2.ConnectError("refused"), httpx2.Response(503))
    stage.send_request("tools/call", CALL)
    question = await stage.wait_for_notification("elicitation/create")
    stage.send(id=question["id"], result={"action": "accept"})
    await stage.service.wait_until(lambda: bool(stage.service.answers))


async def test_an_answer_to_a_question_that_any_process_finds_is_sent_until_it_arrives() -> None:
    """The id names the call and its question: a service that was restarted stores the answer, too."""
    async with running_bridge() as stage:
        await answer_while_the_service_is_away(stage, "elicit:call_1:r1.1:00ff")
        await stage.service.wait_until(lambda: len(stage.service.answers) == 3)
        await stage.request("ping", request_id="last")
        answers = stage.service.answers

    assert answers == [{"jsonrpc": "2.0", "id": "elicit:call_1:r1.1:00ff", "result": {"action": "accept"}}] * 3


async def test_an_answer_to_a_question_with_any_other_id_is_sent_once() -> None:
    """A service that was restarted may have asked another question under the same id."""
    async with running_bridge() as stage:
        await answer_while_the_service_is_away(stage, 0)
        for number in range(3):
            await stage.request("ping", request_id=f"ping-{number}")
        answers = stage.service.answers

    assert len(answers) == 1


async def test_a_question_on_a_lost_connection_is_cancelled_and_asked_again() -> None:
    broken, stream = ScriptedStream(), ScriptedStream()
    for each in (broken, stream):
        each.write_event(make_question(0))
    broken.break_off()
    async with running_bridge() as stage:
        await stage.begin_session()
        stage.service.script("tools/call", broken, stream)
        stage.send_request("tools/call", CALL)
        await stage.service.wait_until(lambda: len(stage.select("elicitation/create")) == 2)
        first, second = stage.select("elicitation/create")
        (cancelled,) = stage.select("notifications/cancelled")
        for question in (first, second):
            stage.send(id=question["id"], result={"action": "accept", "content": {"asked": question["id"]}})
        await stage.service.wait_until(lambda: bool(stage.service.answers))
        await stage.request("ping", request_id="last")
        answers = stage.service.answers

    assert cancelled["params"]["requestId"] == first["id"] != second["id"]
    assert answers == [{"jsonrpc": "2.0", "id": 0, "result": {"action": "accept", "content": {"asked": second["id"]}}}]


async def test_the_service_s_cancellation_of_a_question_reaches_the_client_under_the_question_s_id() -> None:
    stream = ScriptedStream()
    stream.write_event(make_question(5))
    for request_id in (5, 6):  # no question has the id 6
        stream.write_event({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
    stream.write_event({"jsonrpc": "2.0", "id": 1, "result": {}})
    async with running_bridge() as stage:
        await stage.begin_session()
        stage.service.script("tools/call", stream)
        await stage.request("tools/call", CALL)
        (question,) = stage.select("elicitation/create")
        (cancelled,) = stage.select("notifications/cancelled")

    assert cancelled["params"]["requestId"] == question["id"] != 5


# -- notifications and odd messages ------------------------------------------------------------------------------------------


async def test_requests_wait_until_the_handshake_has_arrived() -> None:
    async with running_bridge() as stage:
        await stage.request("initialize", {"protocolVersion": "2025-11-25"}, request_id=0)
        stage.service.script("notifications/initialized", *[httpx2.ConnectError("refused")] * 5)
        stage.send(method="notifications/initialized")
        await stage.request("tools/list")
        methods = [each.method for each in stage.service.requests if each.http_method == "POST"]

    assert methods == ["initialize", *["notifications/initialized"] * 6, "tools/list"]


async def test_more_calls_than_the_connections_of_an_address_wait_for_each_other_and_nothing_else_waits() -> None:
    streams = [ScriptedStream() for _ in range(CALLS_MAX)]
    async with running_bridge() as stage:
        stage.service.script("tools/call", *streams)
        for number in range(CALLS_MAX + 1):
            stage.send_request("tools/call", {"name": "echo"} | MODERN_META, request_id=number)
        await stage.service.wait_until(lambda: len(stage.service.select("tools/call")) >= CALLS_MAX)
        await stage.request("ping", MODERN_META, request_id="ping")
        sent_at_once = len(stage.service.select("tools/call"))
        streams[0].write_event({"jsonrpc": "2.0", "id": 0, "result": {}})
        await stage.wait_for_response(CALLS_MAX)

    assert sent_at_once == CALLS_MAX


@pytest.mark.parametrize(
    "params",
    [
        {"name": "ringback_cancel_call", "arguments": {"call_id": "call_1"}},
        {"name": "ringback_answer_call", "arguments": {"call_id": "call_1", "responses": {}}},
        {"name": "echo", "requestState": "state", "inputResponses": {}},
    ],
    ids=["a cancellation", "an answer by a tool", "an answer of 2026-07-28"],
)
async def test_what_ends_or_answers_a_call_waits_for_no_other_call(params: dict[str, Any]) -> None:
    async with running_bridge() as stage:
        stage.service.script("tools/call", *[ScriptedStream() for _ in range(CALLS_MAX)])
        for number in range(CALLS_MAX):
            stage.send_request("tools/call", {"name": "echo"} | MODERN_META, request_id=number)
        await stage.service.wait_until(lambda: len(stage.service.select("tools/call")) == CALLS_MAX)
        await stage.request("tools/call", params | MODERN_META, request_id="now")


async def test_a_cancellation_does_not_wait_for_answered_calls_that_go_on() -> None:
    """The service responds to an answer of 2026-07-28 with the end of the call, or after 45 s."""
    answered: dict[str, Any] = {"name": "echo", "requestState": "state", "inputResponses": {}}
    async with running_bridge() as stage:
        stage.service.script("tools/call", *[ScriptedStream() for _ in range(URGENT_CALLS_MAX)])
        for number in range(URGENT_CALLS_MAX):
            stage.send_request("tools/call", answered | MODERN_META, request_id=number)
        await stage.service.wait_until(lambda: len(stage.service.select("tools/call")) == URGENT_CALLS_MAX)
        cancel: dict[str, Any] = {"name": "ringback_cancel_call", "arguments": {"call_id": "call_1"}}
        await stage.request("tools/call", cancel | MODERN_META, request_id="now")


async def test_notifications_of_the_client_are_forwarded() -> None:
    async with running_bridge() as stage:
        await stage.begin_session()
        stage.send(method="notifications/roots/list_changed")
        await stage.service.wait_until(lambda: bool(stage.service.select("notifications/roots/list_changed")))

        assert stage.service.requests[-1].session_id == "session-1"


async def test_a_line_that_is_no_message_gets_a_parse_error() -> None:
    async with running_bridge() as stage:
        stage.bridge.handle_line(ValueError("no JSON"))
        await stage.bridge.wait_for_last_responses()

    assert [each["error"]["code"] for each in stage.received] == [-32700]


@pytest.mark.parametrize(
    ("line", "request_id", "code"),
    [
        ('{"jsonrpc": "2.0", "id": "b", "method": "ping", "params": {"text": "\\ud83d"}}', "b", -32600),
        ('{"jsonrpc": "2.0", "id": 4, "method": "ping", "params": [1]}', 4, -32600),
        ('{"id": 4, "method": "ping"}', 4, -32600),
        ('{"jsonrpc": "2.0", "id": 4, "result": {"text": "\\ud83d"}}', None, -32700),
        ('{"jsonrpc": "2.0", "id": "\\ud83d", "method": "ping"}', None, -32700),
        ("[" * 100_000, None, -32700),
        ("9" * 5_000, None, -32700),
        ('"text"', None, -32700),
    ],
)
async def test_a_request_that_cannot_be_read_gets_its_error_under_its_id(
    line: str, request_id: int | str | None, code: int
) -> None:
    with pytest.raises(ValidationError) as unreadable:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    async with running_bridge() as stage:
        stage.bridge.handle_line(unreadable.value)
        await stage.bridge.wait_for_last_responses()

    assert [(each["id"], each["error"]["code"]) for each in stage.received] == [(request_id, code)]


async def test_a_bug_in_one_request_is_an_error_for_that_request(caplog: pytest.LogCaptureFixture) -> None:
    async with running_bridge() as stage:
        stage.service.script("tools/list", RuntimeError("a bug"))
        response = await stage.request("tools/list", MODERN_META)
        other = await stage.request("ping", MODERN_META, request_id=2)

    assert (response["error"]["code"], other["result"]) == (-32603, {})
    assert "bridge.request_failed" in caplog.text
