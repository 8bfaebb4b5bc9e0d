"""Pages whose filter matches few rows: each scan is bounded, and further pages find every match once."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from ringback.domain.call import CallPhase, CallStatus
from ringback.domain.call_rows import CallFilter
from ringback.domain.cursor import Page, decode_event_time, encode_event_time
from ringback.domain.delivery import DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.event import Event, EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import CallId, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import PRINCIPAL_LENGTH_MAX, Principal
from ringback.domain.webhook import WebhookState
from tests.support.builders import make_call, make_delivery, make_event, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

SCANNED: Final = 4
CROWD: Final = 18
HOOK: Final = WebhookId("wh_1")
RARE: Final = CallId("call_rare")

ReadPage = Callable[[Transaction, Any], Awaitable[Page[Any, Any]]]


@pytest.fixture(autouse=True)
def small_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.storage.rows.paging.ROWS_SCANNED_MAX", SCANNED)
    monkeypatch.setattr("ringback.storage.rows.events.ROWS_SCANNED_MAX", SCANNED)
    monkeypatch.setattr("ringback.storage.rows.events.LATEST_SCANNED_MAX", SCANNED)
    monkeypatch.setattr("ringback.storage.rows.delivery_queue.WEBHOOKS_SCANNED_MAX", SCANNED)
    monkeypatch.setattr("ringback.storage.rows.delivery_queue.ORDER_KEYS_SCANNED_MAX", SCANNED)
    monkeypatch.setattr("ringback.storage.rows.delivery_queue.DUE_SCAN_ROWS_MAX", SCANNED)
    monkeypatch.setattr("ringback.storage.rows.delivery_queue.HELD_WEBHOOKS_SCANNED_MAX", SCANNED)


async def read_all_pages(store: Store, read: ReadPage, *, begin: Any = None) -> list[list[Any]]:
    pages: list[list[Any]] = []
    place = begin
    while True:
        page = await store.write(lambda tx, place=place: read(tx, place))
        pages.append(list(page))
        if page.next_position is None:
            return pages
        place = page.next_position


def collect_items(pages: Sequence[Sequence[Any]]) -> list[Any]:
    return [each for page in pages for each in page]


@pytest.mark.parametrize(
    "where",
    [
        CallFilter(tool="rare"),
        CallFilter(upstream="rare"),
        CallFilter(status=CallStatus.COMPLETED, tool="rare"),
        CallFilter(client_session_id="s", tool="rare"),
        CallFilter(correlation_id="c", tool="rare"),
        CallFilter(client_session_id="s", correlation_id="c", upstream="rare"),
    ],
)
async def test_calls_that_few_match_are_found_over_pages_that_may_be_empty(store: Store, where: CallFilter) -> None:
    both = {"client_session_id": "s", "correlation_id": "c", "status": CallStatus.COMPLETED}
    oldest = make_call(upstream="rare", tool="rare", **both)
    crowd = [make_call(**both) for _ in range(CROWD)]
    newest = make_call(upstream="rare", tool="rare", **both)
    for call in (oldest, *crowd, newest):
        await store.write(lambda tx, call=call: tx.calls.insert(call))

    pages = await read_all_pages(store, lambda tx, before: tx.calls.list_page(ALICE, where, position=before, limit=2))

    assert collect_items(pages) == [newest, oldest]
    assert [] in pages


@pytest.mark.parametrize("status", [CallStatus.WORKING, CallStatus.FAILED])
async def test_calls_of_a_status_are_one_page_whatever_is_between_them(store: Store, status: CallStatus) -> None:
    wanted = make_call(status=status)
    for call in (wanted, *(make_call(status=CallStatus.COMPLETED) for _ in range(CROWD))):
        await store.write(lambda tx, call=call: tx.calls.insert(call))

    where = CallFilter(status=status)
    pages = await read_all_pages(store, lambda tx, before: tx.calls.list_page(ALICE, where, position=before, limit=2))

    assert pages == [[wanted]]


async def test_what_is_stuck_is_one_page_of_all_principals_whatever_is_between(store: Store) -> None:
    calls = [
        make_call(principal=each, status=CallStatus.INPUT_REQUIRED, phase=CallPhase.PARKED) for each in (ALICE, BOB)
    ]
    ended = [make_call(status=CallStatus.COMPLETED) for _ in range(CROWD)]
    dead = [make_delivery(principal=each, state=DeliveryState.DEAD) for each in (ALICE, BOB)]
    delivered = [make_delivery(state=DeliveryState.DELIVERED) for _ in range(CROWD)]
    for call in (calls[0], *ended, calls[1]):
        await store.write(lambda tx, call=call: tx.calls.insert(call))
    await store.write(lambda tx: tx.deliveries.insert([dead[0], *delivered, dead[1]]))

    waiting, undelivered = CallFilter(status=CallStatus.INPUT_REQUIRED), DeliveryFilter(state=DeliveryState.DEAD)
    call_pages = await read_all_pages(store, lambda tx, at: tx.calls.list_page(None, waiting, position=at, limit=2))
    delivery_pages = await read_all_pages(
        store, lambda tx, at: tx.deliveries.list_page(None, undelivered, position=at, limit=2)
    )

    assert call_pages == [[calls[1], calls[0]]]
    assert delivery_pages == [[dead[1], dead[0]]]


@pytest.mark.parametrize(
    "where",
    [
        DeliveryFilter(state=DeliveryState.HELD),
        DeliveryFilter(state=DeliveryState.HELD, webhook_id=HOOK),
        DeliveryFilter(state=DeliveryState.HELD, call_id=RARE),
    ],
)
async def test_deliveries_that_few_match_are_found_over_pages_that_may_be_empty(
    store: Store, where: DeliveryFilter
) -> None:
    held = make_delivery(webhook_id=HOOK, call_id=RARE, state=DeliveryState.HELD)
    crowd = [make_delivery(webhook_id=HOOK, call_id=RARE, state=DeliveryState.DELIVERED) for _ in range(CROWD)]
    await store.write(lambda tx: tx.deliveries.insert([held, *crowd]))

    pages = await read_all_pages(
        store, lambda tx, before: tx.deliveries.list_page(ALICE, where, position=before, limit=2)
    )

    assert collect_items(pages) == [held]
    assert pages.count([]) > CROWD // SCANNED - 2


@pytest.mark.parametrize("where", [DeliveryFilter(webhook_id=HOOK), DeliveryFilter(call_id=RARE)])
async def test_a_page_of_a_foreign_principals_deliveries_is_empty(store: Store, where: DeliveryFilter) -> None:
    crowd = [make_delivery(webhook_id=HOOK, call_id=RARE) for _ in range(CROWD)]
    await store.write(lambda tx: tx.deliveries.insert(crowd))

    page = await store.read(lambda tx: tx.deliveries.list_page(BOB, where, position=None, limit=2))

    assert (list(page), page.next_position) == ([], None)


@pytest.mark.parametrize(
    "where",
    [
        EventFilter(name=EventName.CALL_FINISHED),
        EventFilter(client_session_id="rare"),
        EventFilter(correlation_id="rare"),
        EventFilter(upstream="rare"),
        EventFilter(tool="rare"),
        EventFilter(call_id=RARE, name=EventName.CALL_FINISHED),
        EventFilter(call_id=RARE, tool="rare"),
    ],
)
async def test_events_that_few_match_are_found_over_pages_that_may_be_empty(store: Store, where: EventFilter) -> None:
    def event(seq: int, name: EventName, label: str) -> Any:
        labels = dict.fromkeys(("client_session_id", "correlation_id", "upstream", "tool"), label)
        return make_event(seq=seq, name=name, call_id=RARE, **labels)

    events = [event(seq, EventName.CALL_PROGRESS, "crowd") for seq in range(1, CROWD + 1)]
    last = event(CROWD + 1, EventName.CALL_FINISHED, "rare")
    await store.write(lambda tx: tx.events.reserve_seqs(ALICE, CROWD + 1))
    await store.write(lambda tx: tx.events.insert([*events, last]))

    pages = await read_all_pages(store, lambda tx, seq: tx.events.list_page(ALICE, seq, where, limit=2), begin=0)

    assert collect_items(pages) == [last]
    assert pages[0] == []


async def test_events_of_all_principals_are_found_once_beside_many_of_the_same_instant(store: Store) -> None:
    owners = [BOB, ALICE, Principal("ä" * PRINCIPAL_LENGTH_MAX)]
    events = [make_event(seq=seq, principal=owner, created_at=START) for owner in owners for seq in range(1, CROWD + 1)]
    events[CROWD] = replace(events[CROWD], name=EventName.CALL_INPUT_REQUIRED)
    await store.write(lambda tx: tx.events.insert(events))

    async def read(tx: Transaction, cursor: str | None, where: EventFilter) -> Page[Event, str]:
        page = await tx.events.list_latest(
            where, position=None if cursor is None else decode_event_time(cursor), limit=3
        )
        place = page.next_position
        return Page(page, next_position=None if place is None else encode_event_time(place))

    pages = await read_all_pages(store, lambda tx, at: read(tx, at, EventFilter()))
    of_name = await read_all_pages(store, lambda tx, at: read(tx, at, EventFilter(name=EventName.CALL_INPUT_REQUIRED)))

    newest_first = sorted(events, key=lambda each: (each.principal, each.seq), reverse=True)
    assert [each.id for each in collect_items(pages)] == [each.id for each in newest_first]
    assert [each.id for each in collect_items(of_name)] == [events[CROWD].id]


async def test_a_page_of_a_foreign_principals_events_is_empty(store: Store) -> None:
    events = [make_event(seq=seq, call_id=RARE) for seq in range(1, CROWD + 1)]
    for principal in (ALICE, BOB):
        await store.write(lambda tx, principal=principal: tx.events.reserve_seqs(principal, CROWD))
    await store.write(lambda tx: tx.events.insert(events))

    page = await store.read(lambda tx: tx.events.list_page(BOB, 0, EventFilter(call_id=RARE), limit=2))

    assert (list(page), page.next_position) == ([], None)


async def test_dead_deliveries_are_found_behind_many_that_were_replayed(store: Store) -> None:
    dead = [
        make_delivery(webhook_id=HOOK, seq=seq, state=DeliveryState.DEAD, finished_at=START)
        for seq in range(1, CROWD + 1)
    ]
    again = [
        make_delivery(webhook_id=HOOK, event_id=each.event_id, generation=2, state=DeliveryState.DELIVERED)
        for each in dead[:-1]
    ]
    await store.write(lambda tx: tx.deliveries.insert([*dead, *again]))

    pages = await read_all_pages(
        store, lambda tx, after: tx.webhook_deliveries.list_dead(HOOK, limit=2, after=after), begin=""
    )

    assert collect_items(pages) == dead[-1:]
    assert pages[0] == []


async def test_a_due_webhook_is_found_behind_many_that_wait_for_later(store: Store) -> None:
    later = START + timedelta(hours=1)
    loud = WebhookId("wh_0")
    await store.write(
        lambda tx: tx.deliveries.insert(
            [
                *(make_delivery(webhook_id=loud) for _ in range(SCANNED)),
                *(make_delivery(webhook_id=WebhookId(f"wh_m{number:02}"), due_at=later) for number in range(CROWD)),
                make_delivery(webhook_id=WebhookId("wh_z")),
            ]
        )
    )

    pages = await read_all_pages(
        store,
        lambda tx, after: tx.delivery_queue.list_due_webhooks(now=START, excluding={loud}, limit=2, after=after),
        begin="",
    )

    assert collect_items(pages) == ["wh_z"]
    assert pages[0] == []


async def test_a_due_key_is_found_behind_many_that_wait_for_later(store: Store) -> None:
    later = START + timedelta(hours=1)
    blocked = [
        make_delivery(webhook_id=HOOK, order_key=f"session-{number:02}", seq=seq, due_at=due_at)
        for number in range(CROWD)
        for seq, due_at in ((number, later), (number + CROWD, START))
    ]
    due = make_delivery(webhook_id=HOOK, order_key="session-z", seq=99)
    await store.write(lambda tx: tx.deliveries.insert([*blocked, due]))

    async def lease(tx: Transaction, after: str) -> Page[Any, str]:
        return await tx.delivery_queue.lease_due(
            HOOK, now=START, owner="dispatcher-1", token="lease_1", until=later, limit=2, ordered=True, after=after
        )

    pages = await read_all_pages(store, lease, begin="")

    assert [each.id for each in collect_items(pages)] == [due.id]
    assert pages[0] == []


async def test_more_keys_than_are_leased_at_once_are_all_leased_in_the_end(store: Store) -> None:
    due = [make_delivery(webhook_id=HOOK, order_key=f"session-{number:02}", seq=number) for number in range(CROWD)]
    await store.write(lambda tx: tx.deliveries.insert(due))

    async def lease(tx: Transaction, after: str) -> Page[Any, str]:
        return await tx.delivery_queue.lease_due(
            HOOK, now=START, owner="dispatcher-1", token="lease_1", until=START, limit=3, ordered=True, after=after
        )

    leased: list[str] = []
    while len(leased) < CROWD:
        before = len(leased)
        leased += [each.id for each in collect_items(await read_all_pages(store, lease, begin=""))]
        assert len(leased) > before

    assert sorted(leased) == [each.id for each in due]


@pytest.mark.parametrize("state", [WebhookState.ACTIVE, WebhookState.SUSPENDED])
async def test_a_webhook_to_release_or_to_probe_is_found_behind_many_that_stay_as_they_are(
    store: Store, state: WebhookState
) -> None:
    crowd = [make_webhook(state=WebhookState.PENDING_VERIFICATION) for _ in range(CROWD)]
    wanted = make_webhook(state=state)
    for webhook in (*crowd, wanted):
        await store.write(lambda tx, webhook=webhook: tx.webhooks.insert(webhook))
        held = make_delivery(webhook_id=webhook.id, state=DeliveryState.HELD)
        await store.write(lambda tx, held=held: tx.deliveries.insert([held]))

    async def read(tx: Transaction, after: str) -> Page[WebhookId, str]:
        if state is WebhookState.ACTIVE:
            return await tx.delivery_maintenance.list_webhooks_to_release(limit=2, after=after)
        return await tx.delivery_maintenance.list_webhooks_to_probe(now=START, limit=2, after=after)

    pages = await read_all_pages(store, read, begin="")

    assert collect_items(pages) == [wanted.id]
    assert pages[0] == []
