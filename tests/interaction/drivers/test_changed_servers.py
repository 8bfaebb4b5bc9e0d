"""The name of an upstream gets another server: a call goes on only at the server that ran it, and never at the new one."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ringback.domain.call import Call, CallStatus, Handle, ServerFingerprint
from ringback.domain.call_outcome import CallOutcome
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.calls import (
    answer_call,
    make_call_to,
    request_cancel,
    running_runner,
    wait_for_handle,
    wait_for_input_request,
)
from tests.support.engine import Engine
from tests.support.legacy_upstream import LegacyTask, LegacyUpstream
from tests.support.task_upstream import ACCEPTED_ANSWER, TaskUpstream, UpstreamTask
from tests.support.upstreams import WAIT_SECONDS, App, HttpServer, make_http_config, open_upstreams, serving

CHANGED = (
    "The upstream 'stage' is another server now than the one that ran this call (its URL has changed). Nothing of the call "
    "was sent to it. The tool may have done its work: find out before you start the call again."
)


@asynccontextmanager
async def serving_two(before: App, after: App) -> AsyncGenerator[tuple[HttpServer, HttpServer]]:
    async with serving(before) as first, serving(after) as second:
        yield first, second


async def run_until_handle(
    engine: Engine, config: UpstreamConfig, call: Call, wait: Callable[[Engine, Call], Awaitable[Call]]
) -> Call:
    """One run of a process, which stops once the call has the handle that the test wants."""
    await engine.insert_calls(call)
    async with running_runner(engine, config, drain_seconds=0.01):
        await wait(engine, call)
    stored = await engine.read_call(call)
    assert stored.handle is not None
    return stored


async def run_until_end(engine: Engine, config: UpstreamConfig, call: Call) -> Call:
    async with running_runner(engine, config):
        (ended,) = await engine.wait_until_final(call)
    return ended


def read_message(call: Call) -> str:
    return (call.error or {})["message"]


async def test_a_process_with_another_url_polls_no_task_of_the_earlier_server(engine: Engine) -> None:
    old, new, call = TaskUpstream(), TaskUpstream(), make_call_to(engine, "work")
    new.tasks["task-1"] = UpstreamTask("task-1", new)
    new.tasks["task-1"].complete_task("the result of another principal")

    async with serving_two(old.app(), new.app()) as (before, after):
        await run_until_handle(engine, make_http_config(before.url), call, wait_for_handle)
        ended = await run_until_end(engine, make_http_config(after.url), call)

    assert (ended.outcome, read_message(ended)) == (CallOutcome.UNKNOWN, CHANGED)
    assert (new.requests, old.tasks["task-1"].cancels) == ([], 0)


async def test_a_process_with_another_url_resumes_no_stream_of_the_earlier_server(engine: Engine) -> None:
    old, new, call = LegacyUpstream(), LegacyUpstream(), make_call_to(engine, "work")

    async with serving_two(old.app(), new.app()) as (before, after):
        kept = await run_until_handle(engine, make_http_config(before.url), call, wait_for_handle)
        ended = await run_until_end(engine, make_http_config(after.url), call)

    assert kept.handle is not None
    assert (ended.outcome, read_message(ended)) == (CallOutcome.UNKNOWN, CHANGED)
    assert kept.handle.data["session_id"] not in new.sessions
    assert new.count("GET", resuming=True) == 0


async def test_a_process_with_another_url_polls_no_legacy_task_of_the_earlier_server(engine: Engine) -> None:
    old, new, call = LegacyUpstream(bound=False), LegacyUpstream(bound=False), make_call_to(engine, "long")

    async with serving_two(old.app(), new.app()) as (before, after):
        kept = await run_until_handle(engine, make_http_config(before.url), call, wait_for_handle)
        new.tasks["task-1"] = LegacyTask("task-1", None, ttl=1)
        ended = await run_until_end(engine, make_http_config(after.url), call)

    assert kept.handle is not None
    assert (ended.outcome, read_message(ended)) == (CallOutcome.UNKNOWN, CHANGED)
    assert new.tasks["task-1"].polls == 0
    assert kept.handle.data["session"]["id"] not in new.sessions


@pytest.mark.parametrize("rerun_allowed", [False, True])
async def test_an_answer_given_after_two_names_were_swapped_reaches_neither_server(
    engine: Engine, *, rerun_allowed: bool
) -> None:
    old, new = TaskUpstream(), TaskUpstream()
    call = make_call_to(engine, "confirm", rerun_allowed=rerun_allowed)
    await engine.insert_calls(call)

    async with (
        serving_two(old.app(), new.app()) as (one, two),
        open_upstreams(*make_pair(one, two)) as upstreams,
        engine.running_runner(upstreams),
    ):
        await wait_for_input_request(engine, call)
        upstreams.reconfigure(make_pair(two, one))
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, read_message(ended)) == (CallOutcome.UNKNOWN, CHANGED)
    assert (old.count_requests("tools/call"), new.requests) == (1, [])


def make_pair(stage: HttpServer, other: HttpServer) -> list[UpstreamConfig]:
    return [make_http_config(stage.url), make_http_config(other.url, name="other")]


async def test_a_task_that_runs_during_a_reload_goes_on_at_its_server(engine: Engine) -> None:
    old, new, call = TaskUpstream(), TaskUpstream(), make_call_to(engine, "work")
    await engine.insert_calls(call)

    async with serving_two(old.app(), new.app()) as (before, after), running(engine, before) as upstreams:
        task = await old.wait_for_task(1)
        await wait_for_handle(engine, call)
        upstreams.reconfigure([make_http_config(after.url)])
        polls = old.count_requests("tasks/get")
        await old.wait_until(lambda: old.count_requests("tasks/get") > polls)
        task.complete_task("done")
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, new.requests) == (CallOutcome.RESULT, [])


@asynccontextmanager
async def running(engine: Engine, server: HttpServer) -> AsyncGenerator[UpstreamRegistry]:
    async with open_upstreams(make_http_config(server.url)) as upstreams, engine.running_runner(upstreams):
        yield upstreams


async def test_a_reload_that_is_taken_back_has_ended_no_question(engine: Engine) -> None:
    stage, other, call = TaskUpstream(), TaskUpstream(), make_call_to(engine, "confirm")
    await engine.insert_calls(call)

    async with serving_two(stage.app(), other.app()) as (right, wrong), running(engine, right) as upstreams:
        await wait_for_input_request(engine, call)
        upstreams.reconfigure([make_http_config(wrong.url)])
        asked = await engine.read_call(call)
        upstreams.reconfigure([make_http_config(right.url)])
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        (ended,) = await engine.wait_until_final(call)

    assert (asked.status, ended.outcome, other.requests) == (CallStatus.INPUT_REQUIRED, CallOutcome.RESULT, [])


async def test_a_question_belongs_to_the_server_that_asked_it_also_after_a_reload_in_between(engine: Engine) -> None:
    """The call waits for its response from the earlier server while the name gets the new one."""
    old, new, call = TaskUpstream(), TaskUpstream(), make_call_to(engine, "confirm")
    old.questions_may_go.clear()
    await engine.insert_calls(call)

    async with serving_two(old.app(), new.app()) as (before, after), running(engine, before) as upstreams:
        await old.wait_until(lambda: old.count_requests("tools/call") == 1)
        upstreams.reconfigure([make_http_config(after.url)])
        old.questions_may_go.set()
        await wait_for_input_request(engine, call)
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, read_message(ended)) == (CallOutcome.UNKNOWN, CHANGED)
    assert (old.count_requests("tools/call"), new.requests) == (1, [])


async def test_a_cancellation_is_not_sent_to_another_server(engine: Engine) -> None:
    old, new, call = TaskUpstream(), TaskUpstream(), make_call_to(engine, "work")
    new.tasks["task-1"] = UpstreamTask("task-1", new)

    async with serving_two(old.app(), new.app()) as (before, after):
        await run_until_handle(engine, make_http_config(before.url), call, wait_for_handle)
        await request_cancel(engine, call)
        ended = await run_until_end(engine, make_http_config(after.url), call)

    assert (ended.outcome, new.requests) == (CallOutcome.UNKNOWN, [])


async def test_a_call_past_its_deadline_cancels_nothing_at_another_server(engine: Engine) -> None:
    new = TaskUpstream()
    new.tasks["task-1"] = UpstreamTask("task-1", new)
    call = make_dispatched(engine, server_fingerprint=ServerFingerprint("http:of-another-server"), deadline_in=-1.0)
    await engine.insert_calls(call)

    async with serving(new.app()) as server:
        ended = await run_until_end(engine, make_http_config(server.url), call)

    assert (ended.outcome, new.requests) == (CallOutcome.TIMED_OUT, [])


def make_dispatched(
    engine: Engine, *, server_fingerprint: ServerFingerprint | None, deadline_in: float = 3600.0
) -> Call:
    """A call that another process has begun."""
    handle = Handle(driver="task", data={"task_id": "task-1"}, server_fingerprint=server_fingerprint)
    now = engine.clock.now()
    return make_call_to(engine, "work", handle=handle, dispatched_at=now, runs=1, deadline_in=deadline_in)


async def test_a_handle_of_an_older_version_goes_on_at_the_configured_server(engine: Engine) -> None:
    stage = TaskUpstream()
    task = stage.tasks["task-1"] = UpstreamTask("task-1", stage)
    task.complete_task("done")
    call = make_dispatched(engine, server_fingerprint=None)
    await engine.insert_calls(call)

    async with serving(stage.app()) as server:
        ended = await run_until_end(engine, make_http_config(server.url), call)

    assert ended.outcome is CallOutcome.RESULT


@pytest.mark.parametrize("form", ["http://localhost:{port}/mcp", "http://127.0.0.1:{port}/mcp/", "{url}?key=rotated"])
async def test_a_url_that_is_written_another_way_is_the_same_server(engine: Engine, form: str) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "confirm")

    async with serving(stage.app(host="127.0.0.1")) as server:
        await run_until_handle(engine, make_http_config(server.url), call, wait_for_input_request)
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        url = form.format(port=server.port, url=server.url)
        async with asyncio.timeout(WAIT_SECONDS):
            ended = await run_until_end(engine, make_http_config(url), call)

    assert ended.outcome is CallOutcome.RESULT


@pytest.mark.parametrize(
    ("before", "after", "goes_on"),
    [
        pytest.param(("here", "billing-1"), ("there", "billing-1"), True, id="moved"),
        pytest.param(("here", None), ("here", "billing-1"), True, id="gets an id"),
        pytest.param(("here", "billing-1"), ("here", None), True, id="taken over by a node whose entry has no id yet"),
        pytest.param(("here", "billing-1"), ("here", "billing-2"), False, id="another id"),
        pytest.param(("here", None), ("there", "billing-1"), False, id="moved in the step that gives it an id"),
        pytest.param(("here", "billing-1"), ("there", None), False, id="moved in the step that takes its id away"),
    ],
)
async def test_a_call_goes_on_at_a_server_that_has_moved_if_the_operator_says_that_it_is_the_same(
    engine: Engine, before: tuple[str, str | None], after: tuple[str, str | None], *, goes_on: bool
) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "confirm")

    async with serving_two(stage.app(), stage.app()) as (here, there):

        def make_config(place: str, server_id: str | None) -> UpstreamConfig:
            url = {"here": here, "there": there}[place].url
            return replace(make_http_config(url), server_id=server_id)

        await run_until_handle(engine, make_config(*before), call, wait_for_input_request)
        await answer_call(engine, call, {"r1.1": ACCEPTED_ANSWER})
        ended = await run_until_end(engine, make_config(*after), call)

    assert ended.outcome is (CallOutcome.RESULT if goes_on else CallOutcome.UNKNOWN)
    assert stage.count_requests("tools/call") == (2 if goes_on else 1)


async def test_a_call_of_a_server_with_another_id_says_what_has_changed(engine: Engine) -> None:
    stage, call = TaskUpstream(), make_call_to(engine, "work")

    async with serving(stage.app()) as server:
        config = replace(make_http_config(server.url), server_id="billing-1")
        await run_until_handle(engine, config, call, wait_for_handle)
        ended = await run_until_end(engine, replace(config, server_id="billing-2"), call)

    assert read_message(ended) == CHANGED.replace("its URL has changed", "its server_id has changed")
