"""Durable calls on a Ringback: the real service in this process, with real upstreams."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.client import Gone, RingbackClient
from ringback.client.durable import (
    CallCancelled,
    CallNotStarted,
    DurableCaller,
    IdempotencyConflict,
    InputRequired,
    RequestStateManager,
    SQLiteRequestState,
    StartUnknown,
    UnknownHandle,
)
from ringback.client.models import Progress
from ringback.domain.principal import DEFAULT_SCOPES, Scope
from tests.support.application import PUBLIC_URL, RunningApplication, running_application
from tests.support.legacy_upstream import ACCEPTED_ANSWER, LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

CORRELATED: Any = {"correlation_id": "c1", "client_session_id": "s1"}


@pytest.fixture
async def upstream() -> ControlledUpstream:
    return ControlledUpstream()


@pytest.fixture
async def service(tmp_path: Path, upstream: ControlledUpstream) -> AsyncGenerator[RunningApplication]:
    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving(upstream.app()) as server,
        running_application(tmp_path, make_http_config(server.url)) as service,
    ):
        yield service


@pytest.fixture
def state(tmp_path: Path) -> RequestStateManager:
    return SQLiteRequestState(tmp_path / "calls.db")


@pytest.fixture
async def caller(service: RunningApplication, state: RequestStateManager) -> AsyncGenerator[DurableCaller]:
    async with DurableCaller(await service.create_agent_client("alice"), state=state) as caller:
        yield caller


async def request_call(caller: DurableCaller, tool: str, **options: Any) -> Any:
    options = {"start_timeout_seconds": WAIT_SECONDS, **CORRELATED, **options}
    return await caller.request_call_tool(tool, {"text": "hello"}, upstream="stage", **options)


@pytest.mark.requirement("R01")
@pytest.mark.requirement("R02")
async def test_a_call_is_requested_and_joined_after_a_timeout(
    caller: DurableCaller, upstream: ControlledUpstream
) -> None:
    handle = await request_call(caller, "hold")
    assert (handle.kind, handle.rejoinable) == ("ringback", True)
    assert handle.call_id is not None
    assert handle.call_id.startswith("call_")
    assert await caller.join_call_tool(handle, timeout_seconds=0.1) is None
    await upstream.wait_until_held(1)
    upstream.release.set()
    result = await caller.join_call_tool(handle)
    assert result == await caller.join_call_tool(handle)
    assert len(upstream.calls) == 1


@pytest.mark.requirement("R03")
async def test_progress_of_the_service_reaches_the_join_while_it_waits(
    caller: DurableCaller, upstream: ControlledUpstream
) -> None:
    handle = await request_call(caller, "halfway")
    seen: asyncio.Queue[Progress] = asyncio.Queue()
    joining = asyncio.create_task(caller.join_call_tool(handle, on_progress=seen.put))
    assert (await seen.get()).message == "half"
    upstream.release.set()
    assert await joining is not None


@pytest.mark.requirement("R02")
async def test_the_last_join_forgets_the_call_when_it_times_out(
    caller: DurableCaller, upstream: ControlledUpstream
) -> None:
    handle = await request_call(caller, "hold")
    assert await caller.join_call_tool(handle, timeout_seconds=0.1, forget_on_timeout=True) is None
    with pytest.raises(UnknownHandle, match="forgotten"):
        await caller.join_call_tool(handle)
    assert await caller.list_calls() == []
    assert not upstream.cancelled.is_set()


@pytest.mark.requirement("R06")
async def test_a_call_is_cancelled_and_a_later_cancel_is_too_late_only_after_a_result(
    caller: DurableCaller, upstream: ControlledUpstream
) -> None:
    held, ended = await request_call(caller, "hold"), await request_call(caller, "echo")
    assert await caller.join_call_tool(ended) is not None
    assert await caller.cancel_call_tool(held)
    assert await caller.cancel_call_tool(held)
    assert not await caller.cancel_call_tool(ended)
    with pytest.raises(CallCancelled):
        await caller.join_call_tool(held)


async def test_calls_are_listed_by_your_own_ids_newest_first(caller: DurableCaller) -> None:
    first = await request_call(caller, "echo")
    second = await request_call(caller, "echo", correlation_id="c2")
    await caller.join_all([first, second])

    assert [each.handle.id for each in await caller.list_calls()] == [second.id, first.id]
    (found,) = await caller.list_calls(correlation_id="c1", client_session_id="s1")
    assert (found.handle.id, found.status, found.outcome) == (first.id, "completed", "result")


async def test_the_same_idempotency_key_is_the_same_call_and_another_request_a_conflict(
    caller: DurableCaller, upstream: ControlledUpstream
) -> None:
    first = await request_call(caller, "echo", idempotency_key="k1")
    assert (await request_call(caller, "echo", idempotency_key="k1")).id == first.id
    with pytest.raises(IdempotencyConflict, match="'echo'"):
        await request_call(caller, "fail", idempotency_key="k1")
    await caller.join_call_tool(first)
    assert len(upstream.calls) == 1


async def test_an_unknown_tool_is_said_at_once_and_leaves_no_state(caller: DurableCaller) -> None:
    with pytest.raises(CallNotStarted, match="Did you mean 'echo'"):
        await request_call(caller, "ecko")
    assert await caller.list_calls() == []


async def test_a_ringback_needs_the_name_of_an_upstream(caller: DurableCaller) -> None:
    with pytest.raises(ValueError, match="upstream='git'"):
        await caller.request_call_tool("echo")


class LosingTransport(httpx.AsyncBaseTransport):
    """Passes requests to the service, and drops the responses while `loses_responses`."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.loses_responses = True

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if self.loses_responses:
            raise httpx.ReadTimeout("lost", request=request)
        return response


@pytest.mark.requirement("R08")
async def test_a_start_whose_response_is_lost_is_joined_and_runs_once(
    service: RunningApplication, state: RequestStateManager, upstream: ControlledUpstream
) -> None:
    transport = LosingTransport(httpx.ASGITransport(app=service.app.api))
    _, key = await service.app.services.api_keys.create_key("alice", name="test", scopes=DEFAULT_SCOPES, upstreams=None)
    async with RingbackClient(PUBLIC_URL, api_key=key, transport=transport) as client:
        async with DurableCaller(client, state=state) as caller:
            with pytest.raises(StartUnknown, match="join the handle") as unknown:
                await request_call(caller, "echo")
        (found,) = await DurableCaller(client, state=state).list_calls()
        assert (found.status, found.handle.id) == ("starting", unknown.value.handle.id)

        transport.loses_responses = False
        async with DurableCaller(client, state=state) as other:
            assert await other.join_call_tool(unknown.value.handle) is not None
    assert len(upstream.calls) == 1


@pytest.mark.requirement("R08")
async def test_a_repeated_start_that_is_refused_for_another_reason_does_not_say_that_the_tool_has_not_run(
    service: RunningApplication, state: RequestStateManager, upstream: ControlledUpstream
) -> None:
    transport = LosingTransport(httpx.ASGITransport(app=service.app.api))
    keys = service.app.services.api_keys
    _, key = await keys.create_key("alice", name="test", scopes=DEFAULT_SCOPES, upstreams=None)
    async with (
        RingbackClient(PUBLIC_URL, api_key=key, transport=transport) as client,
        RingbackClient(PUBLIC_URL, api_key="rbk_ended", transport=httpx.ASGITransport(app=service.app.api)) as ended,
    ):
        async with DurableCaller(client, state=state) as caller:
            with pytest.raises(StartUnknown):
                await request_call(caller, "echo", idempotency_key="k1")
        transport.loses_responses = False
        async with DurableCaller(ended, state=state) as other:
            with pytest.raises(StartUnknown, match="API key") as unknown:
                await request_call(other, "echo", idempotency_key="k1")
            with pytest.raises(StartUnknown, match="API key"):
                await other.join_call_tool(unknown.value.handle)
        async with DurableCaller(client, state=state) as caller:
            assert await caller.join_call_tool(unknown.value.handle) is not None
    assert len(upstream.calls) == 1


async def test_a_first_start_that_is_refused_has_not_started_the_call(
    service: RunningApplication, state: RequestStateManager
) -> None:
    transport = httpx.ASGITransport(app=service.app.api)
    async with (
        RingbackClient(PUBLIC_URL, api_key="rbk_ended", transport=transport) as client,
        DurableCaller(client, state=state) as caller,
    ):
        with pytest.raises(CallNotStarted, match="API key"):
            await request_call(caller, "echo")
        assert await caller.list_calls() == []


async def test_a_key_whose_call_was_erased_is_not_said_to_have_started_nothing(
    service: RunningApplication, caller: DurableCaller
) -> None:
    first = await request_call(caller, "echo", idempotency_key="k1")
    await caller.join_call_tool(first)
    await (await service.create_agent_client("alice", scopes=frozenset({Scope.ADMIN}))).erase_call(first.call_id)

    async with DurableCaller(await service.create_agent_client("alice")) as other:
        with pytest.raises(Gone, match="was erased"):
            await request_call(other, "echo", idempotency_key="k1")


class StalledTransport(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError(request)


@pytest.mark.requirement("R01")
async def test_a_silent_service_delays_a_start_by_the_start_timeout_at_most(state: RequestStateManager) -> None:
    async with (
        RingbackClient(PUBLIC_URL, transport=StalledTransport()) as client,
        DurableCaller(client, state=state) as caller,
    ):
        with pytest.raises(StartUnknown, match="did not confirm"):
            await request_call(caller, "echo", start_timeout_seconds=0.1)


async def test_questions_reach_the_join_and_are_answered(tmp_path: Path, state: RequestStateManager) -> None:
    upstream = LegacyUpstream()
    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving(upstream.app()) as server,
        running_application(tmp_path, make_http_config(server.url)) as service,
        DurableCaller(await service.create_agent_client("alice"), state=state) as caller,
    ):
        handle = await request_call(caller, "ask", accepts_input=True)
        with pytest.raises(InputRequired) as asked:
            await caller.join_call_tool(handle)
        (key,) = asked.value.input_requests
        with pytest.raises(ValueError, match=f"It asks for: {key}"):
            await caller.answer_call_tool(handle, {"other": ACCEPTED_ANSWER})
        await caller.answer_call_tool(handle, {key: ACCEPTED_ANSWER})
        upstream.release.set()
        assert await caller.join_call_tool(handle) is not None


async def test_a_service_that_does_not_answer_is_tried_again_until_the_timeout(
    service: RunningApplication, state: RequestStateManager
) -> None:
    transport = LosingTransport(httpx.ASGITransport(app=service.app.api))
    transport.loses_responses = False
    _, key = await service.app.services.api_keys.create_key("alice", name="test", scopes=DEFAULT_SCOPES, upstreams=None)
    async with (
        RingbackClient(PUBLIC_URL, api_key=key, transport=transport) as client,
        DurableCaller(client, state=state) as caller,
    ):
        handle = await request_call(caller, "echo")
        transport.loses_responses = True
        assert await caller.join_call_tool(handle, timeout_seconds=0.5) is None
        transport.loses_responses = False
        assert await caller.join_call_tool(handle) is not None
