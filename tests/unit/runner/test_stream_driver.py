"""The stream driver over a session with scripted responses."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import CallStatus, Handle, InputRequest
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion, CallOutcome
from ringback.protocol.errors import (
    InvalidUpstreamResponse,
    RequestFailed,
    RequestNotSent,
    ResponseLost,
    SessionGone,
    UpstreamError,
)
from ringback.protocol.resumable_requests import SESSION_GONE_SECONDS
from ringback.protocol.sessions import LegacySessionId, StreamPosition
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from ringback.runner.drivers.driver import LeaseLost
from ringback.runner.drivers.stream import RESUME_BACKOFF, StreamDriver
from tests.support.clock import START, FakeClock
from tests.support.examples import CALL
from tests.support.limits import WAIT_SECONDS
from tests.support.recording_call_context import RecordingCallContext
from tests.support.scripted_sessions import ScriptedSession

SESSION = LegacySessionId(session_id="s1", protocol_version="2025-11-25")
RESULT: dict[str, Any] = {"content": []}
SAVED_HANDLE = replace(
    CALL,
    handle=Handle(
        driver="stream",
        data={"session_id": "s1", "protocol_version": "2025-11-25", "request_id": "r1", "event_id": "1"},
    ),
)


class YieldingClock(FakeClock):
    """A sleep takes more turns of the event loop than a response, so a stream is read to its end before its timeout."""

    async def sleep(self, seconds: float) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await super().sleep(seconds)


def make_stream_position(event_id: str) -> StreamPosition:
    return StreamPosition(session=SESSION, request_id="r1", event_id=event_id)


async def run(
    session: ScriptedSession, context: RecordingCallContext, clock: FakeClock | None = None
) -> CallCompletion:
    return await StreamDriver(clock=clock or YieldingClock()).run_call(session, context)


async def test_a_response_without_event_ids_saves_no_handle() -> None:
    context = RecordingCallContext(CALL)

    completion = await run(ScriptedSession(RESULT), context)

    assert (completion.outcome, context.saved_handles) == (CallOutcome.RESULT, [])


async def test_a_lost_response_without_event_ids_is_unknown() -> None:
    session = ScriptedSession(ResponseLost("lost"))

    assert (await run(session, RecordingCallContext(CALL))).outcome is CallOutcome.UNKNOWN
    assert session.scripted_legacy_session.rejoin_count == 0


class AskingSession(ScriptedSession):
    """A session whose tools/call asks, and gets no response before the answer fails."""

    async def send_request(self, method: str, params: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        if method != "tools/call":
            return await super().send_request(method, params, **options)
        for position in self.stream_positions:
            options["on_position"](position)
        assert self.scripted_legacy_session.on_elicitation is not None
        self.scripted_legacy_session.on_elicitation("7", {"method": "elicitation/create", "params": {}})
        await asyncio.Event().wait()
        return {}


class AnsweringContext(RecordingCallContext):
    """Its caller answers each question at once."""

    async def request_input(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        await super().request_input(requests)
        self.answer_input({key: {"action": "cancel"} for key in self.call.input_requests})


@pytest.mark.requirement("R32")
async def test_a_call_whose_answer_may_be_lost_is_unknown_if_no_session_can_go_on_with_it() -> None:
    """The log called it a bug of Ringback."""
    session, context = AskingSession(RESULT), AnsweringContext(replace(CALL, accepts_input=True))
    session.scripted_legacy_session.answer_failures = [ResponseLost("lost")]

    completion = await asyncio.wait_for(run(session, context), WAIT_SECONDS)

    assert completion.outcome is CallOutcome.UNKNOWN


async def test_the_newest_position_is_saved_before_the_stream_is_resumed() -> None:
    session, context = ScriptedSession(ResponseLost("lost"), RESULT), RecordingCallContext(CALL)
    session.stream_positions = [make_stream_position("1"), make_stream_position("2")]

    completion = await run(session, context)

    assert completion.outcome is CallOutcome.RESULT
    assert context.saved_handles[-1] is not None
    assert context.saved_handles[-1].data["event_id"] == "2"
    assert [each.event_id for each in session.scripted_legacy_session.resumed_positions] == ["2"]


async def test_positions_are_saved_at_most_once_an_interval() -> None:
    class ManyPositions(ScriptedSession):
        async def send_request(self, *args: Any, on_position: Any = None, **options: Any) -> dict[str, Any]:
            for number in range(1000):
                on_position(make_stream_position(str(number)))
                await asyncio.sleep(0)
            return await super().send_request(*args, on_position=on_position, **options)

    context, clock = RecordingCallContext(CALL), YieldingClock()
    await run(ManyPositions(RESULT), context, clock)

    assert 2 <= len(context.saved_handles) <= 1000 / 20 + 2
    assert len(context.saved_handles) <= clock.monotonic() + 2


async def test_the_stream_is_resumed_with_growing_pauses_until_the_response_arrives() -> None:
    session, clock = ScriptedSession(*[ResponseLost("lost")] * 20, RESULT), YieldingClock()

    completion = await run(session, RecordingCallContext(SAVED_HANDLE), clock)

    assert (completion.outcome, len(session.scripted_legacy_session.resumed_positions)) == (CallOutcome.RESULT, 21)
    assert clock.monotonic() > 10 * RESUME_BACKOFF.longest_seconds
    assert {each.event_id for each in session.scripted_legacy_session.resumed_positions} == {"1"}


async def test_the_stream_is_not_resumed_sooner_than_the_upstream_asks_for() -> None:
    session, clock = ScriptedSession(*[ResponseLost("lost")] * 5, RESULT), YieldingClock()
    session.scripted_legacy_session.retry_seconds = 600.0

    await run(session, RecordingCallContext(SAVED_HANDLE), clock)

    assert clock.monotonic() >= 5 * 600.0


async def test_a_silent_stream_is_closed_and_resumed() -> None:
    class Silent(ScriptedSession):
        async def send_request(self, *args: Any, **options: Any) -> dict[str, Any]:
            if len(self.scripted_legacy_session.resumed_positions) < 3:
                await asyncio.Event().wait()
            return await super().send_request(*args, **options)

    session = Silent(RESULT)

    assert (await run(session, RecordingCallContext(SAVED_HANDLE))).outcome is CallOutcome.RESULT
    assert len(session.scripted_legacy_session.resumed_positions) == 3


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (UpstreamError({"code": -1, "message": "no"}), CallOutcome.UPSTREAM_ERROR),
        (InvalidUpstreamResponse("garbage"), CallOutcome.UPSTREAM_ERROR),
    ],
)
async def test_the_outcome_of_the_resumed_stream_is_the_outcome_of_the_call(
    failure: RequestFailed, outcome: CallOutcome
) -> None:
    assert (await run(ScriptedSession(failure), RecordingCallContext(SAVED_HANDLE))).outcome is outcome


@pytest.mark.requirement("R33")
async def test_a_call_whose_session_is_gone_for_some_seconds_is_unknown() -> None:
    session, clock = ScriptedSession(*[SessionGone("gone")] * 20, RESULT), YieldingClock()

    assert (await run(session, RecordingCallContext(SAVED_HANDLE), clock)).outcome is CallOutcome.UNKNOWN
    assert SESSION_GONE_SECONDS <= clock.monotonic() < 60


@pytest.mark.requirement("R33")
async def test_a_call_outlives_a_proxy_that_finds_no_server_for_a_moment() -> None:
    """Its tool ran on, and its result was there to be read."""
    session, clock = ScriptedSession(SessionGone("gone"), SessionGone("gone"), RESULT), YieldingClock()

    assert (await run(session, RecordingCallContext(SAVED_HANDLE), clock)).outcome is CallOutcome.RESULT


async def test_an_unsent_request_is_raised_and_does_not_end_the_call() -> None:
    with pytest.raises(RequestNotSent):
        await run(ScriptedSession(RequestNotSent("away")), RecordingCallContext(SAVED_HANDLE))


async def test_a_lost_lease_ends_the_execution() -> None:
    class Lapsed(RecordingCallContext):
        async def save_handle(self, handle: Handle | None) -> None:  # noqa: ARG002 - the name of CallContext
            raise LeaseLost

    class Slow(ScriptedSession):
        async def send_request(self, *args: Any, on_position: Any = None, **options: Any) -> dict[str, Any]:
            on_position(make_stream_position("1"))
            await asyncio.Event().wait()
            return await super().send_request(*args, **options)

    with pytest.raises(LeaseLost):
        await run(Slow(RESULT), Lapsed(CALL))


async def test_a_cancel_request_names_the_request_id() -> None:
    session = ScriptedSession(RESULT)
    driver = StreamDriver(clock=FakeClock(START))

    assert await driver.cancel_call(session, SAVED_HANDLE) == CANCELLED_COMPLETION
    assert session.scripted_legacy_session.sent_notifications == [("notifications/cancelled", {"requestId": "r1"})]
    assert await driver.cancel_call(session, CALL) == CANCELLED_COMPLETION
    assert len(session.scripted_legacy_session.sent_notifications) == 1


@pytest.mark.requirement("R33")
async def test_a_call_whose_stream_has_begun_without_the_login_that_it_waits_for_asks_for_none_any_more() -> None:
    login = InputRequest(
        name=LOGIN_REQUEST_KEY, method="elicitation/create", params={"mode": "url", "url": "https://a"}
    )
    waiting = replace(CALL, status=CallStatus.INPUT_REQUIRED, input_requests={LOGIN_REQUEST_KEY: login})
    session, context = ScriptedSession(ResponseLost("lost"), RESULT), RecordingCallContext(waiting)
    session.stream_positions = [make_stream_position("1")]

    completion = await run(session, context)

    assert (completion.outcome, dict(context.call.input_requests)) == (CallOutcome.RESULT, {})
