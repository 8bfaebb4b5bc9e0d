"""Durable calls on MCP servers without a service in between: tasks, legacy tasks, resumable streams, and plain calls."""

import asyncio
import json
from pathlib import Path

import pytest

from ringback.client.durable import (
    CallCancelled,
    DurableCaller,
    MemoryRequestState,
    NotRejoinable,
    StoredState,
    UnknownHandle,
)
from ringback.client.durable.clock import SystemDurableClock
from ringback.client.durable.local_call import SAVE_SECONDS
from ringback.client.durable.record import CallRecord, StreamedPosition
from ringback.client.models import Progress
from tests.support.durable_calls import TIME_LIMIT_SECONDS, calling, join_until_progress, request_call
from tests.support.legacy_upstream import LegacyUpstream, ReplayOfAllStreams
from tests.support.task_upstream import TaskUpstream, text_result
from tests.support.upstreams import App, ControlledUpstream, Message, Receive, Scope, Send, make_legacy_app

DONE = {"type": "text", "text": "done"}


@pytest.mark.requirement("R01")
@pytest.mark.requirement("R09")
async def test_a_task_is_requested_by_one_caller_and_joined_by_another(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        requester = make_caller()
        handle = await request_call(requester, "work", {"n": 1}, correlation_id="c1")
        await requester.aclose()
        assert (handle.kind, handle.rejoinable, handle.correlation_id) == ("task", True, "c1")

        other = make_caller()
        assert await other.join_call_tool(handle, timeout_seconds=0.3) is None
        upstream.tasks["task-1"].complete_task("done")
        result = await make_caller().join_call_tool(handle)

    assert result == text_result("done")
    assert upstream.side_effects == ["work"]


class ImpatientClock(SystemDurableClock):
    """Writes to the state follow each other at once."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0.0 if seconds == SAVE_SECONDS else seconds)


class RecordingState(MemoryRequestState):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[CallRecord] = []

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        self.written.append(CallRecord.model_validate_json(state.text))
        return await super().write(state, replaces=replaces)


@pytest.mark.requirement("R03")
async def test_no_stored_position_is_after_progress_that_is_not_stored(tmp_path: Path) -> None:
    """A process that joins after a kill resumes at the position: the server does not repeat what comes before it."""
    upstream, state = LegacyUpstream(), RecordingState()
    async with (
        calling(upstream.app(), tmp_path) as (server, _),
        DurableCaller(server.url, state=state, clock=ImpatientClock()) as caller,
    ):
        handle = await request_call(caller, "work")
        assert [each.message for each in await join_until_progress(caller, handle)] == ["begun"]
        upstream.release.set()
        await caller.join_call_tool(handle)

    event_ids = {
        record.position.event_id
        for record in state.written
        if record.progress is None and isinstance(record.position, StreamedPosition)
    }
    assert len(event_ids) == 1, "the first event has no data, and the second one reports progress"


@pytest.mark.requirement("R03")
async def test_a_join_gets_the_last_stored_progress_first_and_then_live_progress(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        requester = make_caller()
        handle = await request_call(requester, "work")
        task = upstream.tasks["task-1"]
        task.set_state(status="working", statusMessage="fetching")
        assert [each.message for each in await join_until_progress(requester, handle)] == ["fetching"]
        await requester.aclose()

        seen: asyncio.Queue[Progress] = asyncio.Queue()
        joining = asyncio.create_task(make_caller().join_call_tool(handle, on_progress=seen.put))
        assert (await seen.get()).message == "fetching"
        task.set_state(status="working", statusMessage="writing")
        assert (await seen.get()).message == "writing"
        task.complete_task("done")
        assert await joining == text_result("done")


class RareClock(SystemDurableClock):
    """The first write to the state is the only periodic one."""

    async def sleep(self, seconds: float) -> None:
        await (asyncio.Event().wait() if seconds == SAVE_SECONDS else super().sleep(seconds))


@pytest.mark.requirement("R03")
async def test_progress_that_a_join_has_seen_is_stored_when_nothing_follows_the_call_any_more(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path, clock=RareClock()) as (_, make_caller):
        joiner, seen, later = make_caller(), asyncio.Queue[Progress](), list[Progress]()
        handle = await request_call(joiner, "work")
        joining = asyncio.create_task(joiner.join_call_tool(handle, on_progress=seen.put))
        for message in ("fetching", "writing"):
            upstream.tasks["task-1"].set_state(status="working", statusMessage=message)
            assert (await seen.get()).message == message
        joining.cancel()
        await joiner.aclose()

        upstream.tasks["task-1"].complete_task("done")
        await make_caller().join_call_tool(handle, on_progress=later.append)

    assert [each.message for each in later] == ["writing"]


@pytest.mark.requirement("R09")
async def test_a_legacy_task_is_joined_in_the_session_that_started_it(tmp_path: Path) -> None:
    upstream = LegacyUpstream(bound=True)
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        requester = make_caller()
        handle = await request_call(requester, "long")
        await requester.aclose()
        assert (handle.kind, handle.rejoinable) == ("legacy_task", True)

        other = make_caller()
        assert await other.join_call_tool(handle, timeout_seconds=0.3) is None
        task = await upstream.wait_for_task()
        task.end_task()
        result = await make_caller().join_call_tool(handle)

    assert result is not None
    assert result["content"] == [DONE]
    assert upstream.effects == ["long"]


@pytest.mark.requirement("R08")
@pytest.mark.requirement("R09")
async def test_a_stream_is_resumed_by_another_caller(tmp_path: Path) -> None:
    upstream = LegacyUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        requester = make_caller()
        handle = await request_call(requester, "work", {"n": 1})
        await requester.aclose()
        assert (handle.kind, handle.rejoinable) == ("stream", True)

        assert [each.message for each in await join_until_progress(make_caller(), handle)] == ["begun"]
        upstream.release.set()
        seen: list[Progress] = []
        result = await make_caller().join_call_tool(handle, on_progress=seen.append)

    assert result is not None
    assert json.loads(result["content"][0]["text"]) == {"n": 1}
    assert [each.message for each in seen] == ["begun", "nearly done"]
    assert (upstream.effects, upstream.cancelled.is_set()) == (["work"], False)


@pytest.mark.requirement("R08")
async def test_a_join_takes_only_the_response_to_its_own_call_of_a_server_that_replays_all_streams(
    tmp_path: Path,
) -> None:
    upstream = LegacyUpstream()
    async with calling(upstream.app(events=ReplayOfAllStreams()), tmp_path) as (_, make_caller):
        requester = make_caller()
        handles = [await request_call(requester, "work", {"n": number}) for number in range(2)]
        await requester.aclose()
        upstream.release.set()
        results = [await make_caller().join_call_tool(handle) for handle in handles]

    assert [result and result["content"][0]["text"] for result in results] == ['{"n": 0}', '{"n": 1}']


async def test_a_stream_whose_connection_broke_is_resumed_by_the_same_caller(tmp_path: Path) -> None:
    upstream = LegacyUpstream()
    async with calling(upstream.app(), tmp_path) as (server, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "work", {"n": 1})
        server.drop_connections()
        upstream.release.set()
        result = await caller.join_call_tool(handle)

    assert result is not None
    assert upstream.effects == ["work"]


async def test_a_call_without_tasks_or_sessions_says_that_it_cannot_be_rejoined(tmp_path: Path) -> None:
    upstream = ControlledUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "hold")
        assert (handle.kind, handle.rejoinable) == ("plain", False)
        await upstream.wait_until_held(1)

        assert await caller.join_call_tool(handle, timeout_seconds=0.1) is None
        joining = asyncio.create_task(make_caller().join_call_tool(handle))
        upstream.release.set()
        assert await caller.join_call_tool(handle) == await joining is not None


async def test_a_plain_call_is_lost_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    upstream = ControlledUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "hold")
        await upstream.wait_until_held(1)
        with pytest.raises(NotRejoinable, match="Only the process that requested"):
            await make_caller().cancel_call_tool(handle)
        await caller.aclose()
        with pytest.raises(NotRejoinable, match="The tool may have run"):
            await make_caller().join_call_tool(handle)


async def test_a_call_that_must_be_rejoinable_is_not_sent_to_a_server_that_cannot_keep_it(tmp_path: Path) -> None:
    upstream = ControlledUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        with pytest.raises(NotRejoinable, match="was not called"):
            await request_call(caller, "echo", cancel_if_not_resumable=True)
        assert await caller.list_calls() == []

    assert upstream.calls == []


@pytest.mark.requirement("R01")
async def test_a_call_that_proves_not_rejoinable_within_the_start_timeout_is_cancelled(tmp_path: Path) -> None:
    upstream = LegacyUpstream()
    async with calling(upstream.app(keeps_events=False), tmp_path) as (_, make_caller):
        with pytest.raises(NotRejoinable, match="was cancelled"):
            await request_call(make_caller(), "work", start_timeout_seconds=1, cancel_if_not_resumable=True)
        if upstream.effects:
            await upstream.cancelled.wait()


@pytest.mark.requirement("R01")
async def test_a_server_that_does_not_answer_in_time_gives_a_handle_that_becomes_rejoinable(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    upstream.tools_may_respond.clear()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "work", start_timeout_seconds=0.2)
        assert (handle.kind, handle.rejoinable) == ("plain", False)
        upstream.tools_may_respond.set()
        task = await upstream.wait_for_task(1)
        task.complete_task("done")
        assert await caller.join_call_tool(handle) == text_result("done")
        (found,) = await caller.list_calls()

    assert (found.handle.kind, found.handle.rejoinable, found.status) == ("task", True, "completed")


@pytest.mark.requirement("R11")
async def test_several_calls_are_joined_with_any_and_all(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        caller = make_caller()
        handles = [await request_call(caller, "work") for _ in range(3)]
        upstream.tasks["task-2"].complete_task("second")
        any_done = await caller.join_any(handles)
        assert [joined.is_settled for joined in any_done] == [False, True, False]
        assert not all(joined.is_settled for joined in await caller.join_all(handles, timeout_seconds=0.3))
        upstream.tasks["task-1"].set_state(status="cancelled")
        upstream.tasks["task-3"].complete_task("third")
        all_done = await caller.join_all(handles)

    assert [joined.result for joined in all_done] == [None, text_result("second"), text_result("third")]
    assert isinstance(all_done[0].error, CallCancelled)


async def test_a_server_of_the_old_protocol_without_events_waits_for_its_result_on_the_connection(
    tmp_path: Path,
) -> None:
    upstream = ControlledUpstream()
    async with calling(make_legacy_app(upstream.app(stateless_http=True)), tmp_path) as (_, make_caller):
        caller = make_caller()
        handle = await request_call(caller, "echo", {"text": "hello"})
        assert not handle.rejoinable or handle.kind == "plain"
        result = await caller.join_call_tool(handle)

    assert result is not None
    assert json.loads(result["content"][0]["text"]) == {"text": "hello"}


async def test_the_same_idempotency_key_returns_the_same_call(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (_, make_caller):
        first = await request_call(make_caller(), "work", {"n": 1}, idempotency_key="k1")
        second = await request_call(make_caller(), "work", {"n": 1}, idempotency_key="k1")

    assert first.id == second.id
    assert upstream.side_effects == ["work"]


@pytest.mark.requirement("R04")
async def test_without_a_state_only_the_same_caller_joins(tmp_path: Path) -> None:
    upstream = TaskUpstream()
    async with calling(upstream.app(), tmp_path) as (server, _), DurableCaller(server.url) as caller:
        handle = await request_call(caller, "work")
        assert not handle.state_is_shared
        upstream.tasks["task-1"].complete_task("done")
        async with DurableCaller(server.url) as other:
            with pytest.raises(UnknownHandle, match="another process cannot join"):
                await other.join_call_tool(handle)
        assert await caller.join_call_tool(handle) == text_result("done")


def behind_load_balancer(app: App, received: list[bytes | None]) -> App:
    """Its cookies say which of its servers has the session. Collects the cookies that it receives."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_cookies(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2; Path=/")]
            await send(message)

        if scope["type"] == "http":
            received.append(dict(scope["headers"]).get(b"cookie"))
        await app(scope, receive, send_with_cookies)

    return serve


async def test_a_session_keeps_to_the_server_that_a_load_balancer_has_chosen(tmp_path: Path) -> None:
    received: list[bytes | None] = []
    app = make_legacy_app(ControlledUpstream().app(json_response=True))
    async with calling(behind_load_balancer(app, received), tmp_path) as (_, make_caller):
        caller = make_caller()
        await caller.join_call_tool(await request_call(caller, "echo"))

    assert received[0] is None
    assert {frozenset((each or b"").split(b"; ")) for each in received[1:]} == {frozenset({b"a=1", b"b=2"})}


class LateClock(SystemDurableClock):
    """An hour ahead, once the test says so."""

    is_late = False

    def now(self) -> float:
        return super().now() + (TIME_LIMIT_SECONDS if self.is_late else 0.0)


@pytest.mark.parametrize("tool", ["work", "long"], ids=["stream", "task"])
async def test_a_result_that_came_in_time_is_returned_to_a_join_after_the_time_limit(tmp_path: Path, tool: str) -> None:
    """No process followed the call at the time limit. The first join after it cancelled the call, which had ended."""
    upstream, clock = LegacyUpstream(), LateClock()
    async with calling(upstream.app(), tmp_path, clock=clock) as (_, make_caller):
        requester = make_caller()
        handle = await request_call(requester, tool, {"n": 1}, timeout_seconds=TIME_LIMIT_SECONDS)
        await requester.aclose()
        upstream.release.set()
        if tool == "long":
            (await upstream.wait_for_task()).end_task()
        clock.is_late = True

        result = await make_caller().join_call_tool(handle)

    assert result is not None
