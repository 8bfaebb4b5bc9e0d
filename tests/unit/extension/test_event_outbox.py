"""Emitted events wait for the service in their order, are retried, and do not hold one another up for ever."""

import asyncio
from collections.abc import Sequence

import pytest

from ringback.client import NewEvent
from ringback.extension.events.event_outbox import (
    BATCH_BYTES_MAX,
    BATCH_SIZE,
    WAITING_BYTES_MAX,
    WAITING_MAX,
    EventOutbox,
    OutboxFull,
)
from ringback.extension.report_outbox import ReportFailed, ReportRejected
from tests.support.clock import ManualClock
from tests.support.extension_servers import FastClock
from tests.support.limits import WAIT_SECONDS


class RecordingService:
    def __init__(self) -> None:
        self.failures = 0
        self.rejected: set[str] = set()
        self.batches: list[list[str]] = []

    async def send_events(self, events: Sequence[NewEvent]) -> None:
        ids = [event.get("id", "") for event in events]
        if self.failures:
            self.failures -= 1
            raise ReportFailed("away")
        if self.rejected & set(ids):
            raise ReportRejected("no")
        self.batches.append(ids)

    async def refuse_odd_data(self, events: Sequence[NewEvent]) -> None:
        if any(event["data"] == {"text": "odd"} for event in events):
            raise ValueError("a bug")
        await self.send_events(events)

    @property
    def arrived(self) -> list[str]:
        return [event_id for batch in self.batches for event_id in batch]


def make_outbox(service: RecordingService) -> EventOutbox:
    return EventOutbox(service.send_events, clock=FastClock(), random_fraction=lambda: 0.5)


def submit(outbox: EventOutbox, *ids: str, data: str = "") -> None:
    for event_id in ids:
        outbox.submit_event(NewEvent(name="a.b", data={"text": data}, id=event_id))


async def send_all(outbox: EventOutbox) -> None:
    sending = asyncio.create_task(outbox.run())
    await outbox.drain(60)
    sending.cancel()


async def test_events_arrive_in_their_order_and_in_full_batches() -> None:
    service = RecordingService()
    outbox = make_outbox(service)
    ids = [str(number) for number in range(BATCH_SIZE + 1)]
    submit(outbox, *ids)
    await send_all(outbox)
    assert service.arrived == ids
    assert [len(batch) for batch in service.batches] == [BATCH_SIZE, 1]


async def test_a_request_has_no_more_bytes_than_a_proxy_accepts_unless_it_is_one_event() -> None:
    service = RecordingService()
    outbox = make_outbox(service)
    half, whole = "x" * (BATCH_BYTES_MAX // 2 - 100), "x" * BATCH_BYTES_MAX
    for event_id, data in (("1", half), ("2", half), ("3", half), ("4", whole), ("5", "")):
        submit(outbox, event_id, data=data)
    await send_all(outbox)
    assert service.batches == [["1", "2"], ["3"], ["4"], ["5"]]


async def test_a_failed_batch_is_sent_again() -> None:
    service = RecordingService()
    service.failures = 5
    outbox = make_outbox(service)
    submit(outbox, "1", "2")
    await send_all(outbox)
    assert service.arrived == ["1", "2"]


async def test_events_that_wait_for_their_next_attempt_are_sent_at_once_when_the_server_stops() -> None:
    service, failed = RecordingService(), asyncio.Event()
    service.failures = 1

    async def send(events: Sequence[NewEvent]) -> None:
        try:
            await service.send_events(events)
        finally:
            failed.set()

    outbox = EventOutbox(send, clock=ManualClock(), random_fraction=lambda: 0.5)
    submit(outbox, "1", "2")
    sending = asyncio.create_task(outbox.run())
    await failed.wait()

    await outbox.drain(WAIT_SECONDS)
    sending.cancel()

    assert service.arrived == ["1", "2"]


async def test_a_rejected_event_takes_no_other_along() -> None:
    service = RecordingService()
    service.rejected = {"2"}
    outbox = make_outbox(service)
    submit(outbox, "1", "2", "3")
    await send_all(outbox)
    assert service.arrived == ["1", "3"]


async def test_an_event_that_cannot_be_sent_by_a_bug_takes_no_other_along(caplog: pytest.LogCaptureFixture) -> None:
    service = RecordingService()
    outbox = EventOutbox(service.refuse_odd_data, clock=FastClock(), random_fraction=lambda: 0.5)
    submit(outbox, "1")
    submit(outbox, "2", data="odd")
    submit(outbox, "3")
    await send_all(outbox)
    assert service.arrived == ["1", "3"]
    assert "event.lost" in caplog.messages


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_a_number_that_json_does_not_have_is_refused_at_once(number: float) -> None:
    service = RecordingService()
    outbox = make_outbox(service)
    with pytest.raises(ValueError, match="JSON"):
        outbox.submit_event(NewEvent(name="a.b", data={"amount": number}, id="1"))
    submit(outbox, "2")
    await send_all(outbox)
    assert service.arrived == ["2"]


async def test_the_number_of_events_that_wait_is_bounded() -> None:
    outbox = make_outbox(RecordingService())
    submit(outbox, *map(str, range(WAITING_MAX)))
    with pytest.raises(OutboxFull, match=str(WAITING_MAX)):
        submit(outbox, "more")


async def test_their_size_is_bounded_and_free_again_once_they_have_arrived() -> None:
    service = RecordingService()
    outbox = make_outbox(service)
    half = "x" * (WAITING_BYTES_MAX // 2)
    submit(outbox, "1", data=half)
    with pytest.raises(OutboxFull):
        submit(outbox, "2", data=half)
    await send_all(outbox)
    submit(outbox, "3", data=half)
    await send_all(outbox)
    assert service.arrived == ["1", "3"]
