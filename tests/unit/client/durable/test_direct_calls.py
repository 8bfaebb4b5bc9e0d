"""A direct call goes on from what it has saved, whatever becomes of its connection, and several processes write its state."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from ringback.client import InvalidArgument
from ringback.client.durable import DurableCaller, DurableClock, McpTarget, MemoryRequestState
from ringback.client.durable.clock import SystemDurableClock
from ringback.client.durable.direct import calls, legacy_tasks, streams, tasks
from ringback.client.durable.direct.connection import DirectConnection
from ringback.client.durable.direct.server import McpServer
from ringback.client.durable.journal import CallJournal
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import (
    CallRecord,
    Completion,
    LegacyTaskPosition,
    RoundPosition,
    StreamedPosition,
    TaskPosition,
)
from ringback.client.models import InputRequest
from ringback.protocol import tasks as protocol_tasks
from ringback.protocol.errors import ResponseLost, SessionGone
from ringback.protocol.resumable_requests import SESSION_GONE_SECONDS
from tests.support.limits import WAIT_SECONDS
from tests.support.plain_durable_callers import FastClock
from tests.unit.client.durable.test_leases import RECORD

DONE = Completion(outcome="result", result={"content": []})


async def test_a_call_that_became_a_task_is_followed_although_its_connection_breaks_while_it_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = CallJournal(MemoryRequestState())
    await journal.create(RECORD)
    call = LocalCall(RECORD, journal, SystemDurableClock(), holder="one")
    await call.acquire_lease()

    async def use_connection(*_: Any, **__: Any) -> None:
        if call.record.position is None:
            await call.save(position=TaskPosition(task_id="t1"))
            raise ResponseLost("The connection broke.")
        await call.complete(DONE)

    monkeypatch.setattr(calls, "use_connection", use_connection)
    await calls.DirectCalls(McpServer(url=RECORD.handle.target)).run_call(call)

    assert call.record.completion == DONE


class RecordingClock(FastClock):
    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await super().sleep(seconds)


class AdvancingClock(FastClock):
    """Pauses take no time, and advance the clock."""

    def __init__(self) -> None:
        super().__init__()
        self._slept_seconds = 0.0

    def now(self) -> float:
        return super().now() + self._slept_seconds

    async def sleep(self, seconds: float) -> None:
        self._slept_seconds += seconds
        await super().sleep(seconds)


POSITION = StreamedPosition(session_id="s", protocol_version="2025-11-25", request_id=1, event_id="e")
GONE = SessionGone("The upstream no longer knows the session.")


def replace_connection(monkeypatch: pytest.MonkeyPatch, connection: Any) -> None:
    """Let each call use this connection."""

    async def use_connection(_: Any, work: Any, **__: Any) -> Any:
        return await work(connection)

    monkeypatch.setattr(calls, "use_connection", use_connection)


async def test_a_server_that_asks_for_a_longer_pause_before_its_stream_is_read_on_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2025-11-25: a client MUST respect `retry`."""
    results: list[Any] = [ResponseLost("The stream ended."), {"content": []}]
    connection = SimpleNamespace(retry_seconds=45.0, resume_stream=AsyncMock(side_effect=results))
    clock = RecordingClock()
    call, _ = await open_calls(RECORD.model_copy(update={"position": POSITION, "lease_holder": None}), clock=clock)
    replace_connection(monkeypatch, connection)
    await calls.DirectCalls(McpServer(url=RECORD.handle.target)).run_call(call)

    assert call.record.completion == DONE
    assert clock.pauses == [45.0]


async def resume_with(monkeypatch: pytest.MonkeyPatch, *results: Any) -> tuple[CallRecord, float]:
    """The record of a resumed call that gets these results, and the seconds until its end."""
    connection = SimpleNamespace(retry_seconds=0.0, resume_stream=AsyncMock(side_effect=results))
    clock = AdvancingClock()
    call, _ = await open_calls(RECORD.model_copy(update={"position": POSITION, "lease_holder": None}), clock=clock)
    replace_connection(monkeypatch, connection)
    began_at = clock.now()
    await calls.DirectCalls(McpServer(url=RECORD.handle.target)).run_call(call)
    assert connection.resume_stream.await_count == len(results)
    return call.record, clock.now() - began_at


async def test_a_session_that_is_unknown_for_a_moment_does_not_end_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that restarts says 404 for a moment, and the tool runs on behind it."""
    record, _ = await resume_with(monkeypatch, GONE, ResponseLost("The stream ended."), GONE, {"content": []})

    assert record.completion == DONE


async def test_a_session_that_stays_unknown_ends_its_call_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    record, seconds = await resume_with(monkeypatch, GONE, GONE, GONE)

    assert record.completion is not None
    assert record.completion.outcome == "unknown"
    assert SESSION_GONE_SECONDS <= seconds < 10


async def test_joins_that_are_shorter_than_the_doubt_end_the_call_together() -> None:
    connection = SimpleNamespace(retry_seconds=0.0, resume_stream=AsyncMock(side_effect=GONE))
    clock = AdvancingClock()
    call, other = await open_calls(RECORD.model_copy(update={"position": POSITION, "lease_holder": None}), clock=clock)
    await streams.resume_stream(cast("DirectConnection", connection), call, POSITION, read_seconds=5)
    assert call.record.completion is None
    await clock.sleep(SESSION_GONE_SECONDS)
    await other.refresh()
    await streams.resume_stream(cast("DirectConnection", connection), other, POSITION, read_seconds=5)

    assert other.record.completion is not None


class SilentAtFirst:
    """Does not respond to the first request."""

    answers_input = False

    def __init__(self, *responses: dict[str, Any]) -> None:
        self._responses = list(responses)
        self._has_been_asked = False

    async def send_request(self, *_: Any, **__: Any) -> dict[str, Any]:
        if not self._has_been_asked:
            self._has_been_asked = True
            await asyncio.Event().wait()
        return self._responses.pop(0)


async def test_a_poll_of_a_task_without_any_response_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_tasks, "POLL_TIMEOUT_SECONDS", 0.01)
    result: dict[str, Any] = {"content": []}
    modern = SilentAtFirst({"taskId": "t1", "status": "completed", "result": result})
    legacy = SilentAtFirst({"taskId": "t1", "status": "completed"}, result)
    position = TaskPosition(task_id="t1")
    legacy_position = LegacyTaskPosition(task_id="t1", session_id=None, protocol_version="2025-11-25")

    async with asyncio.timeout(WAIT_SECONDS):
        followed, _ = await open_calls(RECORD, clock=FastClock())
        await tasks.follow_task(cast("DirectConnection", modern), followed, position)
        legacy_followed, _ = await open_calls(RECORD, clock=FastClock())
        await legacy_tasks.follow_legacy_task(cast("DirectConnection", legacy), legacy_followed, legacy_position)

    assert (followed.record.completion, legacy_followed.record.completion) == (DONE, DONE)


async def test_a_call_never_ends_with_the_result_of_another_task() -> None:
    theirs: dict[str, Any] = {"content": [{"type": "text", "text": "theirs"}]}
    result: dict[str, Any] = {"content": []}
    related = {"io.modelcontextprotocol/related-task": {"taskId": "t2"}}
    ended: dict[str, Any] = {"taskId": "t1", "status": "completed"}
    modern = AsyncMock(side_effect=[{**ended, "taskId": "t2", "result": theirs}, {**ended, "result": result}])
    legacy = AsyncMock(side_effect=[{**ended, "taskId": "t2"}, ended, {**theirs, "_meta": related}, ended, result])
    legacy_position = LegacyTaskPosition(task_id="t1", session_id=None, protocol_version="2025-11-25")

    followed, _ = await open_calls(RECORD, clock=FastClock())
    connection = cast("DirectConnection", SimpleNamespace(send_request=modern))
    await tasks.follow_task(connection, followed, TaskPosition(task_id="t1"))
    legacy_followed, _ = await open_calls(RECORD, clock=FastClock())
    connection = cast("DirectConnection", SimpleNamespace(send_request=legacy, answers_input=False))
    await legacy_tasks.follow_legacy_task(connection, legacy_followed, legacy_position)

    assert (followed.record.completion, legacy_followed.record.completion) == (DONE, DONE)


@pytest.mark.parametrize("error", [{}, {"code": "E1", "message": "no"}, {"code": True, "message": "no"}, {"code": 1}])
async def test_a_task_that_failed_with_an_error_of_the_wrong_shape_has_one_that_callers_can_read(
    error: dict[str, Any],
) -> None:
    call, _ = await open_calls(RECORD)

    await tasks.apply_task(call, {"taskId": "t1", "status": "failed", "error": error}, TaskPosition(task_id="t1"))

    completion = call.record.completion
    assert completion is not None
    assert completion.error is not None
    assert (completion.outcome, completion.error["code"]) == ("upstream_error", -32603)
    assert "may have run" in completion.error["message"]


# -- several processes --

QUESTIONS = {key: InputRequest(method="elicitation/create", params={}) for key in ("a", "b")}
ACCEPTED: dict[str, Any] = {"action": "accept", "content": {}}


async def open_calls(record: CallRecord, *, clock: DurableClock | None = None) -> tuple[LocalCall, LocalCall]:
    """The call in two processes, both of which have read this record."""
    journal = CallJournal(MemoryRequestState())
    await journal.create(record)
    first, second = (
        LocalCall(record, journal, clock or SystemDurableClock(), holder=name) for name in ("first", "second")
    )
    return first, second


async def test_answers_of_two_processes_to_two_questions_of_a_round_are_both_kept() -> None:
    position = RoundPosition(request_state=None, round=1)
    first, second = await open_calls(RECORD.model_copy(update={"position": position, "input_requests": QUESTIONS}))
    direct = calls.DirectCalls(McpServer(url=RECORD.handle.target))

    await direct.answer_call(first, {"a": ACCEPTED})
    await direct.answer_call(second, {"b": ACCEPTED})

    assert second.record.input_requests == {}
    assert second.record.input_responses == {"a": ACCEPTED, "b": ACCEPTED}


async def test_an_answer_that_is_not_json_is_refused_and_not_stored() -> None:
    """The state would have null in the place of NaN, and the tool would get another answer."""
    position = RoundPosition(request_state=None, round=1)
    record = RECORD.model_copy(update={"position": position, "input_requests": QUESTIONS})
    state = MemoryRequestState()
    await CallJournal(state).create(record)
    answer = {"a": {"action": "accept", "content": {"amount": float("nan")}}}

    async with DurableCaller(McpTarget(record.handle.target), state=state) as caller:
        with pytest.raises(InvalidArgument, match="`responses` cannot be sent as JSON"):
            await caller.answer_call_tool(record.handle, answer)
        (listed,) = await caller.list_calls()

    assert set(listed.input_requests) == {"a", "b"}


async def test_an_answer_that_comes_after_another_to_the_same_question_does_not_replace_it() -> None:
    position = RoundPosition(request_state=None, round=1)
    first, second = await open_calls(RECORD.model_copy(update={"position": position, "input_requests": QUESTIONS}))
    direct = calls.DirectCalls(McpServer(url=RECORD.handle.target))

    await direct.answer_call(first, {"a": ACCEPTED})
    await direct.answer_call(second, {"a": {"action": "decline"}})

    assert second.record.input_responses == {"a": ACCEPTED}


async def test_a_task_s_question_that_another_process_has_answered_meanwhile_is_not_asked_again() -> None:
    position = TaskPosition(task_id="t1")
    first, second = await open_calls(RECORD.model_copy(update={"position": position, "input_requests": QUESTIONS}))
    connection = cast("DirectConnection", SimpleNamespace(send_request=AsyncMock(return_value={})))

    await tasks.answer_task(connection, first, position, {"a": ACCEPTED})
    await tasks.answer_task(connection, second, position, {"b": ACCEPTED})
    assert (second.record.input_requests, second.record.answered_keys) == ({}, ("a", "b"))

    listed: dict[str, Any] = {key: {"method": "elicitation/create", "params": {}} for key in ("a", "b", "c")}
    await tasks.apply_task(first, {"taskId": "t1", "status": "input_required", "inputRequests": listed}, position)
    assert list(first.record.input_requests) == ["c"]
