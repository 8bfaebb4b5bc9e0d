"""RingbackClient with the real API, services and store in this process, to confirm the mocks of tests/unit/client."""

import asyncio
import hashlib
import json
from contextlib import aclosing
from datetime import timedelta

import pytest

from ringback.client import (
    CallOptions,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    RingbackClient,
    SyncRingbackClient,
    Unauthenticated,
    Unavailable,
)
from ringback.domain.call import Progress
from ringback.domain.call_outcome import CallOutcome, failed_completion
from tests.support.api_server import serving_api
from tests.support.client_calls import ARGUMENTS, make_client, start_call
from tests.support.limits import WAIT_SECONDS
from tests.support.service import CALLBACK_URL, ServiceUnderTest
from tests.support.stores import FOREVER


async def test_a_call_is_started_waited_for_and_its_result_pulled(
    alice: RingbackClient, service: ServiceUnderTest
) -> None:
    started = await start_call(alice, client_session_id="s1", correlation_id="c1", timeout_seconds=60)
    await service.finish_call(started.call.id)

    call = await alice.wait(started.call.id, timeout_seconds=WAIT_SECONDS)

    assert (call.status, call.outcome) == ("completed", "result")
    assert (call.client_session_id, call.correlation_id) == ("s1", "c1")
    assert await alice.result(call.id) == {"content": [{"type": "text", "text": "done"}], "isError": False}


@pytest.mark.requirement("R13")
async def test_the_same_key_is_the_same_call_and_another_request_a_conflict(alice: RingbackClient) -> None:
    first = await start_call(alice, idempotency_key="today's report")
    again = await start_call(alice, idempotency_key="today's report")

    assert again.call.id == first.call.id
    with pytest.raises(Conflict) as caught:
        await alice.start_call("git", "git_status", idempotency_key="today's report")
    assert caught.value.slug == "idempotency-conflict"


async def test_a_result_that_is_not_there_yet_is_a_conflict(alice: RingbackClient) -> None:
    started = await start_call(alice)

    with pytest.raises(Conflict) as caught:
        await alice.result(started.call.id)

    assert (caught.value.slug, caught.value.extra["call_status"]) == ("result-not-ready", "working")


@pytest.mark.requirement("R33")
async def test_a_failed_call_carries_its_error(alice: RingbackClient, service: ServiceUnderTest) -> None:
    started = await start_call(alice)
    await service.finish_call(started.call.id, failed_completion(CallOutcome.UNKNOWN, "The upstream was lost."))

    call = await alice.call(started.call.id)

    assert (call.status, call.outcome) == ("failed", "unknown")
    assert call.error is not None
    assert call.error.message == "The upstream was lost."


async def test_calls_are_started_together_and_later(alice: RingbackClient, service: ServiceUnderTest) -> None:
    not_before = service.clock.now() + timedelta(hours=1)
    one: CallOptions = {"upstream": "git", "tool": "git_log", "arguments": ARGUMENTS}

    first, second = await alice.start_calls([one, {**one, "not_before": not_before.isoformat()}])
    later = await start_call(alice, not_before=not_before)

    assert (first.call_id, first.replayed) == (first.call.id, False)
    assert [each.call.not_before for each in (first, second, later)] == [None, not_before, not_before]


async def test_a_refused_call_of_a_batch_is_named(alice: RingbackClient) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await alice.start_calls([{"upstream": "git", "tool": "git_status"}, {"upstream": "git", "tool": "git_lgo"}])

    assert (caught.value.slug, caught.value.extra["index"]) == ("unknown-tool", 1)


async def test_progress_is_seen(alice: RingbackClient, service: ServiceUnderTest) -> None:
    started = await start_call(alice)
    await service.mark_dispatched(started.call.id)
    await service.record_progress(started.call.id, Progress(progress=3, total=10, message="reading"))

    call = await alice.call(started.call.id)

    assert call.progress is not None
    assert (call.progress.progress, call.progress.total, call.progress.message) == (3, 10, "reading")
    assert call.dispatched_at is not None


async def test_cancelling_twice_is_as_good_as_once(alice: RingbackClient) -> None:
    started = await start_call(alice)

    cancelled = await alice.cancel(started.call.id)

    assert cancelled.status == "cancelled"
    assert await alice.cancel(started.call.id) == cancelled


@pytest.mark.requirement("R24")
async def test_a_token_is_resumed_with_its_events_and_a_fresh_token(
    alice: RingbackClient, service: ServiceUnderTest
) -> None:
    started = await start_call(alice)
    await service.finish_call(started.call.id)

    resumed = await alice.resume(started.resume_token, wait_seconds=60)
    later = await alice.resume(resumed.resume_token)

    assert resumed.call.final
    assert resumed.result is not None
    assert [event.name for event in resumed.events] == ["call.finished"]
    assert later.events == ()


@pytest.mark.requirement("R25")
async def test_a_foreign_resource_is_not_found(alice: RingbackClient, bob: RingbackClient) -> None:
    started = await start_call(alice)
    webhook = await alice.register_webhook(CALLBACK_URL)

    for attempt in (
        bob.call(started.call.id),
        bob.result(started.call.id),
        bob.cancel(started.call.id),
        bob.resume(started.resume_token),
        bob.webhook(webhook.id),
        bob.delete_webhook(webhook.id),
    ):
        with pytest.raises(NotFound):
            await attempt
    assert [call async for call in bob.calls()] == []


async def test_lists_are_read_over_all_their_pages(alice: RingbackClient, service: ServiceUnderTest) -> None:
    ids = [(await start_call(alice, client_session_id="s1")).call.id for _ in range(52)]
    await start_call(alice, client_session_id="s2")
    for call_id in ids:
        await service.finish_call(call_id)

    found = [call.id async for call in alice.calls(client_session_id="s1", status="completed", upstream="git")]
    events = [event.data["call_id"] async for event in alice.events(name="call.finished", client_session_id="s1")]

    assert sorted(found) == sorted(ids)
    assert events == ids


async def test_every_filter_of_a_list_is_understood(alice: RingbackClient) -> None:
    started = await start_call(alice, client_session_id="s1", correlation_id="c1")
    labels = {"client_session_id": "s1", "correlation_id": "c1"}

    listed = alice.calls(client_session_id="s1", correlation_id="c1", status="working", upstream="git", tool="git_log")
    calls = [call async for call in listed]
    page = await alice.poll_events(**labels, limit=1, name="call.finished", call_id=started.call.id, wait_seconds=0)

    assert [call.id for call in calls] == [started.call.id]
    assert (page.events, page.truncated, page.has_more) == ((), False, False)


async def test_upstreams_and_tools_are_listed(alice: RingbackClient) -> None:
    upstreams = await alice.upstreams()
    tools = await alice.tools("git")

    assert [(upstream.name, upstream.transport, upstream.state) for upstream in upstreams] == [
        ("git", "stdio", "ready"),
        ("time", "stdio", "ready"),
    ]
    assert [tool.name for tool in tools] == ["git_log", "git_status"]
    assert "repo_path" in tools[0].input_schema["properties"]


async def test_an_error_comes_with_a_suggestion(alice: RingbackClient) -> None:
    with pytest.raises(InvalidRequest, match="Did you mean 'git_log'") as caught:
        await alice.start_call("git", "git_lgo")

    assert caught.value.slug == "unknown-tool"


async def test_the_error_for_a_missing_key_explains_how_to_create_one(service: ServiceUnderTest) -> None:
    async with make_client(service, None) as stranger:
        assert await stranger.healthy()
        with pytest.raises(Unauthenticated, match="ringback keys create"):
            await stranger.upstreams()


async def test_a_full_disk_is_unavailable_and_says_when_to_try_again(
    alice: RingbackClient, service: ServiceUnderTest
) -> None:
    service.store.refusals = FOREVER

    with pytest.raises(Unavailable) as caught:
        await alice.register_webhook(CALLBACK_URL)

    assert caught.value.slug == "store-unavailable"
    assert caught.value.retry_after_seconds is not None


@pytest.mark.requirement("R11")
async def test_several_calls_are_joined(alice: RingbackClient, service: ServiceUnderTest) -> None:
    calls = [(await start_call(alice)).call.id for _ in range(2)]
    await service.finish_call(calls[1])

    some = await alice.wait_any(calls, timeout_seconds=WAIT_SECONDS)
    every = await alice.wait_all(calls, timeout_seconds=0.05)

    assert [call.status for call in some] == [call.status for call in every] == ["working", "completed"]


@pytest.mark.requirement("R11")
async def test_calls_that_match_are_waited_for(alice: RingbackClient, service: ServiceUnderTest) -> None:
    """Of more pages than one, and more than one request may wait for."""
    ids = [(await start_call(alice, correlation_id="batch-7")).call.id for _ in range(120)]
    await start_call(alice, correlation_id="another")
    await asyncio.gather(*map(service.finish_call, ids[1:]))
    waiting = asyncio.create_task(alice.wait_calls(correlation_id="batch-7", timeout_seconds=WAIT_SECONDS))
    await service.finish_call(ids[0])

    calls = await waiting

    assert [call.id for call in calls] == ids[::-1]
    assert {call.status for call in calls} == {"completed"}


@pytest.mark.requirement("R24")
async def test_a_fresh_token_revokes_earlier_ones(alice: RingbackClient) -> None:
    started = await start_call(alice)

    fresh = await alice.fresh_resume_token(started.call.id, revoke_older=True)

    assert (await alice.resume(fresh)).call.id == started.call.id
    with pytest.raises(NotFound):
        await alice.resume(started.resume_token)


@pytest.mark.requirement("R20")
async def test_events_are_streamed_as_they_happen(alice: RingbackClient, service: ServiceUnderTest) -> None:
    key = await service.create_api_key("alice")
    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving_api(service.app) as url,
        RingbackClient(url, api_key=key) as client,
    ):
        async with aclosing(client.stream_events(name="call.finished")) as stream:
            for _ in range(3):
                call_id = (await start_call(alice)).call.id
                await service.finish_call(call_id)
                assert (await anext(stream)).data["call_id"] == call_id
        service.services.lifecycle.begin_shutdown()


async def test_a_result_is_read_in_parts_that_make_up_its_hash(
    alice: RingbackClient, service: ServiceUnderTest
) -> None:
    call_id = (await start_call(alice)).call.id
    await service.finish_call(call_id)

    info = await alice.result_info(call_id)
    whole = await alice.result_part(call_id, 0, 7) + await alice.result_part(call_id, 7)

    assert (len(whole), hashlib.sha256(whole).hexdigest()) == (info.bytes, info.sha256)
    assert json.loads(whole) == await alice.result(call_id)


async def test_the_service_describes_itself(alice: RingbackClient) -> None:
    with pytest.raises(NotFound) as caught:
        await alice.call("call_unknown")

    assert (await alice.problem_type(caught.value.slug)).status == 404
    assert (await alice.readiness()).degraded == ()
    assert await alice.public_keys() == ()
    with pytest.raises(Forbidden, match="metrics"):
        await alice.metrics()


async def test_the_synchronous_client_speaks_to_the_same_service(service: ServiceUnderTest) -> None:
    key = await service.create_api_key("alice")
    async with asyncio.timeout(WAIT_SECONDS), serving_api(service.app) as url:

        def start() -> str:
            with SyncRingbackClient(url, api_key=key) as ringback:
                return ringback.start_call("git", "git_log", ARGUMENTS, client_session_id="s1").call.id

        def join(call_id: str) -> tuple[str | None, list[str]]:
            with SyncRingbackClient(url, api_key=key) as ringback:
                return ringback.wait(call_id).outcome, [call.id for call in ringback.calls(client_session_id="s1")]

        call_id = await asyncio.to_thread(start)
        joining = asyncio.create_task(asyncio.to_thread(join, call_id))
        await service.finish_call(call_id)

        assert await joining == ("result", [call_id])
        service.services.lifecycle.begin_shutdown()
