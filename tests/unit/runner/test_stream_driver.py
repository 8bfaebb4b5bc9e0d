"""The driver for streams over a session that answers what a test wants."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import CANCELLED_COMPLETION, CallCompletion, Handle, CallOutcome
from ringback.runner.drivers.base import LeaseLost, StreamPosition, LegacySessionId
from ringback.runner.drivers.stream import RESUME_BACKOFF_SECONDS_MAX, StreamDriver
from ringback.runner.failures import ResponseLost, InvalidUpstreamResponse, RequestNotSent, UpstreamError, RequestFailed, SessionGone
from tests.support.clock import START, FakeClock
from tests.support.desks import PaperDesk
from tests.support.examples import CALL
from tests.support.sessions import Answering

SESSION = LegacySessionId(session_id="s1", protocol_version="2025-11-25")
RESULT: dict[str, Any] = {"content": []}
KEPT = replace(
    CALL,
    handle=Handle(
        driver="stream",
        data={"session_id": "s1", "protocol_version": "2025-11-25", "request_id": "r1", "event_id": "1"},
    ),
)


class Unhurried(FakeClock):
    """Its sleeps take more turns than an answer: a stream is read to its end before its time is over."""

    async def sleep(self, seconds: float) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await super().sleep(seconds)


def place(event_id: str) -> StreamPosition:
    return StreamPosition(session=SESSION, request_id="r1", event_id=event_id)


async def run(session: Answering, desk: PaperDesk, clock: FakeClock | None = None) -> CallCompletion:
    return await StreamDriver(clock=clock or Unhurried()).run_call(session, desk)


async def test_an_answer_without_a_place_leaves_no_handle() -> None:
    desk = PaperDesk(CALL)

    ending = await run(Answering(RESULT), desk)

    assert (ending.outcome, desk.kept) == (CallOutcome.RESULT, [])


async def test_a_lost_answer_without_a_place_is_unknown() -> None:
    session = Answering(ResponseLost("lost"))

    assert (await run(session, PaperDesk(CALL))).outcome is CallOutcome.UNKNOWN
    assert session.held.rejoined == 0


async def test_the_newest_place_is_kept_before_reading_on() -> None:
    session, desk = Answering(ResponseLost("lost"), RESULT), PaperDesk(CALL)
    session.places = [place("1"), place("2")]

    ending = await run(session, desk)

    assert ending.outcome is CallOutcome.RESULT
    assert desk.kept[-1] is not None
    assert desk.kept[-1].data["event_id"] == "2"
    assert [each.event_id for each in session.held.resumed] == ["2"]


async def test_many_places_are_kept_now_and_then() -> None:
    class Chatty(Answering):
        async def request(self, *args: Any, on_place: Any = None, **options: Any) -> dict[str, Any]:
            for number in range(1000):
                on_place(place(str(number)))
                await asyncio.sleep(0)
            return await super().request(*args, on_place=on_place, **options)

    desk, clock = PaperDesk(CALL), Unhurried()
    await run(Chatty(RESULT), desk, clock)

    assert 2 <= len(desk.kept) <= 1000 / 20 + 2
    assert len(desk.kept) <= clock.monotonic() + 2


async def test_reading_on_goes_on_until_the_answer_is_there_in_ever_longer_pauses() -> None:
    session, clock = Answering(*[ResponseLost("lost")] * 20, RESULT), Unhurried()

    ending = await run(session, PaperDesk(KEPT), clock)

    assert (ending.outcome, len(session.held.resumed)) == (CallOutcome.RESULT, 21)
    assert clock.monotonic() > 10 * RESUME_BACKOFF_SECONDS_MAX
    assert {each.event_id for each in session.held.resumed} == {"1"}


async def test_a_stream_that_stays_silent_is_left_and_read_again() -> None:
    class Silent(Answering):
        async def request(self, *args: Any, **options: Any) -> dict[str, Any]:
            if len(self.held.resumed) < 3:
                await asyncio.Event().wait()
            return await super().request(*args, **options)

    session = Silent(RESULT)

    assert (await run(session, PaperDesk(KEPT))).outcome is CallOutcome.RESULT
    assert len(session.held.resumed) == 3


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (SessionGone("gone"), CallOutcome.UNKNOWN),
        (UpstreamError({"code": -1, "message": "no"}), CallOutcome.UPSTREAM_ERROR),
        (InvalidUpstreamResponse("garbage"), CallOutcome.UPSTREAM_ERROR),
    ],
)
async def test_what_reading_on_brings_is_the_truth(failure: RequestFailed, outcome: CallOutcome) -> None:
    assert (await run(Answering(failure), PaperDesk(KEPT))).outcome is outcome


async def test_a_connection_that_cannot_be_had_ends_the_drive_and_not_the_call() -> None:
    with pytest.raises(RequestNotSent):
        await run(Answering(RequestNotSent("away")), PaperDesk(KEPT))


async def test_a_lost_lease_ends_the_drive() -> None:
    class Lapsed(PaperDesk):
        async def keep(self, handle: Handle | None) -> None:  # noqa: ARG002 - a Desk's name
            raise LeaseLost

    class Slow(Answering):
        async def request(self, *args: Any, on_place: Any = None, **options: Any) -> dict[str, Any]:
            on_place(place("1"))
            await asyncio.Event().wait()
            return await super().request(*args, **options)

    with pytest.raises(LeaseLost):
        await run(Slow(RESULT), Lapsed(CALL))


async def test_cancelling_says_which_request_is_meant() -> None:
    session = Answering(RESULT)
    driver = StreamDriver(clock=FakeClock(START))

    assert await driver.cancel_call(session, KEPT) == CANCELLED_COMPLETION
    assert session.held.told == [("notifications/cancelled", {"requestId": "r1"})]
    assert await driver.cancel_call(session, CALL) == CANCELLED_COMPLETION
    assert len(session.held.told) == 1
