"""Ended deliveries by filter, for redeliveries of many webhooks."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.delivery_rows import RedeliveryFilter
from ringback.domain.ids import CallId, DeliveryId, EventId, WebhookId, first_id_at
from ringback.domain.ports import Store, Transaction
from tests.support.builders import make_delivery, make_event
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

pytestmark = pytest.mark.requirement("R22")

HOOK, OTHER = WebhookId("wh_1"), WebhookId("wh_2")
LATER = START + timedelta(days=1)


def make_ended(seq: int, state: DeliveryState = DeliveryState.DEAD, **over: Any) -> Delivery:
    """A delivery that was created so many minutes after the start."""
    created_at = START + timedelta(minutes=seq)
    return make_delivery(
        **{
            "id": DeliveryId(f"{first_id_at('dlv', created_at)}{seq:016}"),
            "event_id": EventId(f"evt_{seq}"),
            "webhook_id": HOOK,
            "seq": seq,
            "state": state,
            "created_at": created_at,
            "finished_at": None if state is DeliveryState.PENDING else created_at,
        }
        | over
    )


async def insert(store: Store, *deliveries: Delivery, **event: Any) -> None:
    async def work(tx: Transaction) -> None:
        await tx.deliveries.insert(deliveries)
        await tx.events.insert(
            [make_event(id=EventId(f"evt_{each.seq}"), principal=ALICE, seq=each.seq, **event) for each in deliveries]
        )

    await store.write(work)


async def find(store: Store, **where: Any) -> Sequence[int | None]:
    """The positions of all matching events, page by page."""
    wanted: dict[str, Any] = {"until": LATER} | where
    found: list[int | None] = []
    after: str | None = ""
    while after is not None:
        page = await store.read(
            lambda tx, after=after: tx.ended_deliveries.find(ALICE, RedeliveryFilter(**wanted), after=after, limit=2)
        )
        found += [each.seq for each in page]
        after = page.next_position
    return found


async def test_the_dead_ones_are_found_oldest_first_without_open_replayed_and_foreign_ones(store: Store) -> None:
    replayed = make_ended(3)
    await insert(
        store,
        *[make_ended(seq) for seq in (5, 2, 1)],
        replayed,
        make_ended(4, webhook_id=OTHER),
        make_ended(6, DeliveryState.PENDING),
        make_ended(7, DeliveryState.DELIVERED),
        make_ended(8, principal=BOB),
    )
    await store.write(lambda tx: tx.deliveries.insert([replace(replayed, id=make_ended(9).id, generation=2)]))

    assert await find(store) == [1, 2, 4, 5, 3]
    assert await find(store, webhook_id=HOOK) == [1, 2, 5, 3]
    assert await find(store, state=DeliveryState.DELIVERED) == [7]
    assert await find(store, state=DeliveryState.DELIVERED, webhook_id=OTHER) == []
    assert await find(store, state=DeliveryState.CANCELLED) == []


@pytest.mark.parametrize("state", [DeliveryState.DEAD, DeliveryState.CANCELLED])
@pytest.mark.parametrize("webhook_id", [None, HOOK])
async def test_every_filter_restricts_what_is_found(
    store: Store, monkeypatch: pytest.MonkeyPatch, state: DeliveryState, webhook_id: WebhookId | None
) -> None:
    monkeypatch.setattr("ringback.storage.rows.paging.ROWS_SCANNED_MAX", 3)
    await insert(store, *[make_ended(seq, state) for seq in range(1, 9)], client_session_id=None, correlation_id=None)
    await insert(store, make_ended(9, state, call_id=CallId("call_9")), client_session_id="s", correlation_id="c")
    await insert(store, make_ended(10, state, last_category=AttemptCategory.TIMEOUT), client_session_id="s")

    async def matching(**where: Any) -> Sequence[int | None]:
        return await find(store, state=state, webhook_id=webhook_id, **where)

    assert await matching(call_id=CallId("call_9")) == [9]
    assert await matching(category=AttemptCategory.TIMEOUT) == [10]
    assert await matching(client_session_id="s") == [9, 10]
    assert await matching(client_session_id="s", correlation_id="c") == [9]
    assert await matching(since=START + timedelta(minutes=8)) == [8, 9, 10]
    assert await matching(until=START + timedelta(minutes=3)) == [1, 2]
    assert await matching(call_id=CallId("call_8")) == []


async def test_the_search_ends_soon_after_its_last_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was created later is not visited: a request would say for each batch of it that there is more."""
    monkeypatch.setattr("ringback.storage.rows.paging.ROWS_SCANNED_MAX", 3)
    await insert(store, *[make_ended(seq) for seq in (1, 200, 201, 202, 203, 204)])
    where = RedeliveryFilter(until=START + timedelta(minutes=2))

    page = await store.read(lambda tx: tx.ended_deliveries.find(ALICE, where, after="", limit=2))

    assert ([each.seq for each in page], page.next_position) == ([1], None)
