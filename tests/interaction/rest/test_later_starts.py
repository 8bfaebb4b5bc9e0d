"""A call that starts later: stored at once, visible, and cancelled like any other."""

from datetime import datetime, timedelta

import httpx
import pytest

from ringback.domain.call import CallPhase
from ringback.domain.clock import format_iso
from ringback.domain.principal import Principal
from tests.support.service import CALL_BODY, ServiceUnderTest


def later(service: ServiceUnderTest, **duration: float) -> str:
    return format_iso(service.clock.now() + timedelta(**duration))


@pytest.mark.usefixtures("shared_service")
async def test_a_later_start_is_stored_at_once_and_counts_its_deadline_from_then(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    not_before = later(service, hours=6)

    answer = await alice.post("/v1/calls", json=CALL_BODY | {"not_before": not_before, "timeout_seconds": 60})

    call = answer.json()["call"]
    assert (answer.status_code, call["status"], call["not_before"]) == (202, "working", not_before)
    assert call["dispatched_at"] is None
    assert datetime.fromisoformat(call["deadline_at"]) == datetime.fromisoformat(not_before) + timedelta(seconds=60)
    assert (await alice.get(f"/v1/calls/{call['id']}")).json() == call


@pytest.mark.usefixtures("shared_service")
async def test_a_start_whose_time_has_passed_is_queued_at_once(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    call = (await alice.post("/v1/calls", json=CALL_BODY | {"not_before": "1970-01-01T00:00:00+02:00"})).json()["call"]

    assert call["not_before"] is None
    assert (await service.read_call(call["id"])).phase is CallPhase.QUEUED


async def test_a_scheduled_call_is_cancelled_at_once(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    body = CALL_BODY | {"not_before": later(service, hours=1)}
    call_id = (await alice.post("/v1/calls", json=body)).json()["call_id"]

    cancelled = (await alice.post(f"/v1/calls/{call_id}/cancel")).json()

    assert (cancelled["status"], cancelled["outcome"], cancelled["runs"]) == ("cancelled", "cancelled", 0)
    assert await service.store.write(lambda tx: tx.scheduled_calls.queue_due(now=tx.now(), limit=1)) is None


async def test_a_scheduled_call_counts_as_open(service: ServiceUnderTest, alice: httpx.AsyncClient) -> None:
    await alice.post("/v1/calls", json=CALL_BODY | {"not_before": later(service, hours=1)})

    usage = await service.store.read(lambda tx: tx.usage.get_usage(Principal("alice")))
    assert usage.open_calls == 1


@pytest.mark.usefixtures("shared_service")
async def test_a_repeated_start_with_another_time_is_the_same_call(
    service: ServiceUnderTest, alice: httpx.AsyncClient
) -> None:
    key = {"Idempotency-Key": "tomorrow's report"}
    first = await alice.post("/v1/calls", json=CALL_BODY | {"not_before": later(service, hours=1)}, headers=key)
    again = await alice.post("/v1/calls", json=CALL_BODY | {"not_before": later(service, hours=2)}, headers=key)

    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["call"] == first.json()["call"]


@pytest.mark.parametrize(
    ("not_before", "reason"),
    [
        ("9999-12-31T23:59:59.999Z", "at most 30 days from now"),
        ("2026-11-20T17:00:00", "UTC offset"),
        ("tomorrow", "not_before"),
    ],
)
async def test_an_impossible_time_is_refused_and_stores_nothing(
    service: ServiceUnderTest, alice: httpx.AsyncClient, not_before: str, reason: str
) -> None:
    answer = await alice.post("/v1/calls", json=CALL_BODY | {"not_before": not_before})

    assert answer.status_code == 422
    assert reason in answer.json()["detail"]
    assert service.count_rows()["calls"] == 0


@pytest.mark.usefixtures("shared_service")
@pytest.mark.parametrize("not_before", [1, 1796361600.0, "1796361600", "2026-11-20", "20:00:00Z"])
async def test_a_number_or_half_an_instant_is_refused(alice: httpx.AsyncClient, not_before: object) -> None:
    """Pydantic takes a number for seconds or for milliseconds, by its size."""
    answer = await alice.post("/v1/calls", json=CALL_BODY | {"not_before": not_before})

    assert answer.status_code == 422
    assert "Write the date and the time" in answer.text
