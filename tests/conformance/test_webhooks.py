"""Webhooks: written, read, proposed for an event, and removed."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.catch_up import CatchUp
from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.delivery import DeliveryState
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.retry import RetryProfile
from ringback.domain.webhook import DeliveryCondition, Webhook, WebhookOrigin, WebhookSecret, WebhookState
from ringback.domain.webhook_rows import WebhookPart, changed_parts
from ringback.storage.rows import paging
from tests.support.builders import make_delivery, make_event, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

LATER = START + timedelta(minutes=1, milliseconds=7)


async def insert(store: Store, *webhooks: Webhook) -> None:
    async def work(tx: Transaction) -> None:
        for webhook in webhooks:
            await tx.webhooks.insert(webhook)

    await store.write(work)


async def list_candidates(store: Store, event: Event, *, catching_up: bool = True) -> Sequence[Webhook]:
    (found,) = await store.read(lambda tx: tx.webhooks.find_candidates([event], catching_up=catching_up))
    return found


async def get(store: Store, webhook: Webhook) -> Webhook | None:
    return await store.read(lambda tx: tx.webhooks.get(webhook.id))


FULL = {
    "events": frozenset({EventName.CALL_PROGRESS}),
    "outcomes": frozenset({CallOutcome.UNKNOWN, CallOutcome.TIMED_OUT}),
    "upstream": "git",
    "tool": "git_log",
    "call_id": CallId("call_1"),
    "client_session_id": "s",
    "correlation_id": "c",
    "match_correlation": True,
    "secrets": (WebhookSecret(value="whsec_new"), WebhookSecret(value="whsec_old", ends_at=LATER)),
    "headers": (("authorization", "Bearer of-a-gateway"), ("x-tenant", "reports")),
    "retries": RetryProfile.MINUTES,
    "include_result": True,
    "when": DeliveryCondition.DETACHED,
    "ordered": True,
    "rate_per_second": 2.5,
    "description": "mine",
    "state": WebhookState.SUSPENDED,
    "updated_at": LATER,
    "expires_at": LATER,
    "last_delivery_at": LATER,
    "last_error": "http_3xx",
    "last_error_detail": "status 302, Location: https://moved.example/hook",
    "failing_since": LATER,
    "alerted_percent": 70,
    "breaker": CircuitBreaker(failures=7, openings=2, paused_until=LATER),
    "missed_from": 17,
}


REGISTERED = {"name": "reports", "idempotency_key": "boot-1", "request_hash": "0" * 64}


@pytest.mark.parametrize("over", [{}, FULL | {"origin": WebhookOrigin.CALL}, REGISTERED])
async def test_a_webhook_is_read_back_as_it_was_written(store: Store, over: dict[str, object]) -> None:
    webhook = make_webhook(**over)

    await insert(store, webhook)

    assert await get(store, webhook) == webhook


async def test_a_webhook_is_found_by_its_name_and_by_its_key_within_its_principal(store: Store) -> None:
    hers, his = make_webhook(**REGISTERED), make_webhook(**REGISTERED, principal=BOB)
    await insert(store, hers, his, make_webhook())

    async def find(tx: Transaction) -> list[Webhook | None]:
        by_name, by_key = tx.registered_webhooks.find_by_name, tx.registered_webhooks.find_by_idempotency_key
        return [
            *(await by_name(ALICE, "reports"), await by_key(ALICE, "boot-1")),
            *(await by_name(BOB, "reports"), await by_key(BOB, "boot-1")),
            *(await by_name(ALICE, "boot-1"), await by_key(ALICE, "reports")),
        ]

    assert await store.read(find) == [hers, hers, his, his, None, None]


async def test_an_unknown_webhook_is_none_and_is_neither_updated_nor_deleted(store: Store) -> None:
    webhook = make_webhook()

    assert await get(store, webhook) is None
    assert not await store.write(lambda tx: tx.webhooks.update(webhook, *WebhookPart))
    assert not await store.write(lambda tx: tx.webhooks.delete(webhook.id))


HEALTH = ("last_delivery_at", "last_error", "last_error_detail", "failing_since", "alerted_percent", "breaker")
INDEPENDENT_PARTS = {"secrets", "headers", "state", "missed_from", *HEALTH}


@pytest.mark.parametrize("part", WebhookPart)
async def test_an_update_of_one_part_leaves_the_others_as_they_are(store: Store, part: WebhookPart) -> None:
    webhook = make_webhook()
    await insert(store, webhook)
    other = replace(webhook, url="https://other.example/", **FULL)
    decided = {
        WebhookPart.SETTINGS: {"url", *FULL} - INDEPENDENT_PARTS - {"origin"},
        WebhookPart.SECRETS: {"secrets", "headers", "updated_at"} & FULL.keys(),
        WebhookPart.STATE: {"state", "updated_at"} & FULL.keys(),
        WebhookPart.HEALTH: set(HEALTH),
        WebhookPart.MISSED: {"missed_from"},
    }[part]

    assert await store.write(lambda tx: tx.webhooks.update(other, part))

    assert await get(store, webhook) == replace(webhook, **{name: getattr(other, name) for name in decided})


async def test_the_columns_that_differ_are_the_columns_that_a_transition_decides() -> None:
    webhook = make_webhook()

    assert changed_parts(webhook, webhook) == []
    assert changed_parts(webhook, replace(webhook, missed_from=1)) == [WebhookPart.MISSED]
    assert changed_parts(webhook, replace(webhook, url="https://other.example/", **FULL)) == list(WebhookPart)


async def test_an_update_writes_every_column_that_changes(store: Store) -> None:
    webhook = make_webhook()
    await insert(store, webhook)
    changed = replace(webhook, url="https://other.example/", **FULL)

    assert await store.write(lambda tx: tx.webhooks.update(changed, *WebhookPart))
    assert await get(store, webhook) == changed


async def test_pages_lead_from_the_newest_webhook_to_the_oldest_without_foreign_ones(store: Store) -> None:
    webhooks = [make_webhook() for _ in range(3)]
    await insert(store, *webhooks, make_webhook(principal=BOB))

    first = await store.read(lambda tx: tx.webhooks.list_page(ALICE, None, position=None, limit=2))
    second = await store.read(lambda tx: tx.webhooks.list_page(ALICE, None, position=first[-1].id, limit=2))

    assert [*first, *second] == list(reversed(webhooks))


async def test_a_list_of_one_state_reads_a_bounded_number_of_webhooks_for_a_page(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "ROWS_SCANNED_MAX", 3)
    states = (WebhookState.SUSPENDED, *[WebhookState.ACTIVE] * 3, WebhookState.SUSPENDED)
    webhooks = [make_webhook(state=state) for state in states]
    await insert(store, *webhooks, make_webhook(principal=BOB, state=WebhookState.SUSPENDED))
    found: list[list[Webhook]] = []
    position = None
    while not found or position is not None:
        page = await store.read(
            lambda tx, after=position: tx.webhooks.list_page(
                ALICE, None, state=WebhookState.SUSPENDED, position=after, limit=2
            )
        )
        found.append(list(page))
        position = page.next_position

    assert found == [[webhooks[4]], [webhooks[0]]]


async def test_candidates_include_every_webhook_that_may_match_the_event(store: Store) -> None:
    event = make_event(client_session_id="s")
    hearing = [
        make_webhook(),
        make_webhook(call_id=event.call_id),
        make_webhook(call_id=event.call_id, client_session_id="s"),
        make_webhook(client_session_id="s"),
        make_webhook(upstream=event.upstream, state=WebhookState.SUSPENDED),
    ]
    deaf = [
        make_webhook(principal=BOB),
        make_webhook(call_id=CallId("call_other")),
        make_webhook(client_session_id="other"),
        make_webhook(state=WebhookState.DISABLED),
    ]
    await insert(store, *hearing, *deaf)

    found = await list_candidates(store, event)

    assert sorted(found, key=lambda webhook: webhook.id) == hearing


async def test_an_event_without_a_session_is_proposed_to_webhooks_without_one(store: Store) -> None:
    webhook = make_webhook()
    await insert(store, webhook, make_webhook(client_session_id="s"))

    assert await list_candidates(store, make_event(client_session_id=None)) == [webhook]


async def test_each_of_several_events_lists_the_webhooks_that_may_match_it(store: Store) -> None:
    one = make_event(call_id=CallId("call_one"), client_session_id="one")
    other = make_event(call_id=CallId("call_other"), client_session_id="other")
    of_one, of_other, of_all = (
        make_webhook(client_session_id="one"),
        make_webhook(call_id=other.call_id),
        make_webhook(),
    )
    await insert(store, of_one, of_other, of_all)

    proposed = await store.read(lambda tx: tx.webhooks.find_candidates([one, other, one], catching_up=True))

    assert [{webhook.id for webhook in webhooks} for webhooks in proposed] == [
        {of_one.id, of_all.id},
        {of_other.id, of_all.id},
        {of_one.id, of_all.id},
    ]


async def test_a_webhook_that_catches_up_is_no_candidate(store: Store) -> None:
    webhook, other = make_webhook(), make_webhook()
    await insert(store, webhook, other)
    await store.write(lambda tx: tx.catch_ups.save(CatchUp(webhook_id=webhook.id, principal=webhook.principal, seq=1)))

    assert await list_candidates(store, make_event(), catching_up=False) == [other]
    assert await list_candidates(store, make_event(), catching_up=True) == [webhook, other]

    await store.write(lambda tx: tx.catch_ups.remove(webhook.id))

    assert await list_candidates(store, make_event(), catching_up=False) == [webhook, other]


async def test_deleting_a_webhook_cancels_what_of_it_is_open(store: Store) -> None:
    webhook, other = make_webhook(), make_webhook()
    await insert(store, webhook, other)
    open_ones = [
        make_delivery(webhook_id=webhook.id, state=DeliveryState.HELD),
        make_delivery(webhook_id=webhook.id),
        make_delivery(webhook_id=webhook.id, state=DeliveryState.LEASED, lease_token="lease_1", lease_until=LATER),
    ]
    untouched = [
        make_delivery(webhook_id=webhook.id, state=DeliveryState.DELIVERED, finished_at=START),
        make_delivery(webhook_id=other.id),
    ]
    await store.write(lambda tx: tx.deliveries.insert([*open_ones, *untouched]))

    async def delete(tx: Transaction) -> tuple[bool, datetime]:
        return await tx.webhooks.delete(webhook.id), tx.now()

    deleted, now = await store.write(delete)

    assert deleted
    assert await get(store, webhook) is None
    for delivery in open_ones:
        cancelled = replace(
            delivery, state=DeliveryState.CANCELLED, finished_at=now, lease_token=None, lease_until=None
        )
        assert await store.read(lambda tx, delivery=delivery: tx.deliveries.get(delivery.id)) == cancelled
    for delivery in untouched:
        assert await store.read(lambda tx, delivery=delivery: tx.deliveries.get(delivery.id)) == delivery


async def test_an_expired_webhook_goes_when_nothing_of_it_is_open_any_more(store: Store) -> None:
    expired, busy = make_webhook(expires_at=LATER), make_webhook(expires_at=LATER)
    kept = [make_webhook(expires_at=LATER + timedelta(milliseconds=1)), make_webhook()]
    await insert(store, expired, busy, *kept)
    await store.write(lambda tx: tx.deliveries.insert([make_delivery(webhook_id=busy.id)]))

    removed = await store.write(lambda tx: tx.webhooks.remove_expired(now=LATER, limit=10))

    assert removed == [expired.id]
    assert await get(store, expired) is None
    for webhook in [busy, *kept]:
        assert await get(store, webhook) == webhook


async def test_expired_webhooks_go_in_bounded_steps(store: Store) -> None:
    await insert(store, *(make_webhook(expires_at=LATER) for _ in range(3)))

    removed = [await store.write(lambda tx: tx.webhooks.remove_expired(now=LATER, limit=2)) for _ in range(3)]

    assert [len(step) for step in removed] == [2, 1, 0]


async def test_expired_webhooks_with_open_deliveries_do_not_block_other_removals(store: Store) -> None:
    busy, expired = [make_webhook(expires_at=LATER) for _ in range(2)], make_webhook(expires_at=LATER)
    await insert(store, *busy, expired)
    await store.write(lambda tx: tx.deliveries.insert([make_delivery(webhook_id=each.id) for each in busy]))

    first = await store.write(lambda tx: tx.webhooks.remove_expired(now=LATER, limit=2))
    second = await store.write(lambda tx: tx.webhooks.remove_expired(now=LATER, limit=2, after=first.next_position))

    assert (first, second) == ([], [expired.id])
    assert second.next_position is None


async def test_webhooks_are_found_by_their_ids_with_their_latest_values(store: Store) -> None:
    webhooks = [make_webhook() for _ in range(3)]
    await insert(store, *webhooks)
    changed = replace(webhooks[0], secrets=(WebhookSecret(value="whsec_new"),), failing_since=LATER)

    async def by_ids() -> dict[str, Webhook]:
        wanted = [webhooks[0].id, webhooks[2].id, WebhookId("wh_unknown")]
        return {each.id: each for each in await store.read(lambda tx: tx.webhooks.get_many(wanted))}

    assert await by_ids() == {webhooks[0].id: webhooks[0], webhooks[2].id: webhooks[2]}
    await store.write(lambda tx: tx.webhooks.update(changed, *WebhookPart))
    assert await by_ids() == {webhooks[0].id: changed, webhooks[2].id: webhooks[2]}


async def test_a_change_that_was_undone_is_not_seen(store: Store) -> None:
    webhook = make_webhook()
    await insert(store, webhook)

    async def change_and_fail(tx: Transaction) -> None:
        await tx.webhooks.update(replace(webhook, description="never"), WebhookPart.SETTINGS)
        assert await tx.webhooks.get(webhook.id) == replace(webhook, description="never")
        raise LookupError

    with pytest.raises(LookupError):
        await store.write(change_and_fail)

    assert await get(store, webhook) == webhook
