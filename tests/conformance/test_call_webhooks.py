"""Webhooks that calls name: proposed for the events of these calls, once each, whatever they filter by."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ringback.domain.catch_up import CatchUp
from ringback.domain.event import Event
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.webhook import Webhook, WebhookOrigin, WebhookState, matches_event, webhook_for_call
from tests.support.builders import make_call, make_event, make_tombstone, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

CALL_ID = CallId("call_named")


async def insert(store: Store, *webhooks: Webhook, naming: Sequence[CallId] = (CALL_ID,)) -> None:
    """Insert webhooks that these calls name."""

    async def work(tx: Transaction) -> None:
        for webhook in webhooks:
            await tx.webhooks.insert(webhook)
            for call_id in naming:
                await tx.call_webhooks.add(call_id, webhook.id)
                await tx.call_webhooks.add(call_id, webhook.id)

    await store.write(work)


async def list_candidates(store: Store, event: Event, *, catching_up: bool = False) -> Sequence[Webhook]:
    (found,) = await store.read(lambda tx: tx.webhooks.find_candidates([event], catching_up=catching_up))
    return found


@pytest.mark.parametrize("filters", [{}, {"upstream": "other"}, {"client_session_id": "other", "tool": "other"}])
async def test_a_named_webhook_is_proposed_once_and_matches(store: Store, filters: dict[str, str]) -> None:
    webhook = make_webhook(**filters)
    await insert(store, webhook)
    event = make_event(call_id=CALL_ID)

    assert await list_candidates(store, event) == [webhook_for_call(webhook, CALL_ID)]
    assert matches_event(webhook_for_call(webhook, CALL_ID), event, now=START)
    others = await list_candidates(store, make_event(call_id=CallId("call_other")))
    assert [matches_event(each, make_event(call_id=CallId("call_other")), now=START) for each in others] == [
        True for _ in others
    ]
    assert len(others) == (0 if filters else 1)


async def test_a_disabled_or_removed_webhook_is_not_proposed(store: Store) -> None:
    removed, disabled = make_webhook(), make_webhook(state=WebhookState.DISABLED)
    await insert(store, removed, disabled)
    await store.write(lambda tx: tx.webhooks.delete(removed.id))

    assert await list_candidates(store, make_event(call_id=CALL_ID)) == []


async def test_a_named_webhook_that_catches_up_is_no_candidate_meanwhile(store: Store) -> None:
    webhook = make_webhook(client_session_id="other")
    await insert(store, webhook)
    await store.write(lambda tx: tx.catch_ups.save(CatchUp(webhook_id=webhook.id, principal=ALICE, seq=1)))
    event = make_event(call_id=CALL_ID)

    assert await list_candidates(store, event) == []
    assert [each.id for each in await list_candidates(store, event, catching_up=True)] == [webhook.id]


async def test_the_calls_that_name_a_webhook_are_known_until_they_are_deleted(store: Store) -> None:
    call, webhook = make_call(), make_webhook()
    await store.write(lambda tx: tx.calls.insert(call))
    await insert(store, webhook, naming=[call.id])

    async def read(tx: Transaction) -> tuple[bool, set[CallId]]:
        selected = await tx.call_webhooks.select_calls(webhook.id, [call.id, CALL_ID])
        return await tx.call_webhooks.has_calls(webhook.id), set(selected)

    assert await store.read(read) == (True, {call.id})
    await store.write(lambda tx: tx.tombstones.archive(make_tombstone(call_id=call.id)))
    assert await store.read(read) == (False, set())


async def test_webhooks_of_a_target_are_the_newest_with_exactly_this_url_and_these_filters(store: Store) -> None:
    url = "https://agent.example/target"
    shared = [make_webhook(url=url, client_session_id="s", origin=WebhookOrigin.CALL) for _ in range(3)]
    others = [
        make_webhook(url=url),
        make_webhook(url=url, client_session_id="other"),
        make_webhook(url=url, client_session_id="s", principal=BOB),
        make_webhook(client_session_id="s"),
        make_webhook(url=url, client_session_id="s", call_id=CALL_ID, origin=WebhookOrigin.CALL),
    ]
    await insert(store, *shared, *others, naming=[])

    async def read(tx: Transaction, call_id: CallId | None = None, limit: int = 2) -> Sequence[Webhook]:
        return await tx.call_webhooks.list_of_target(
            ALICE, url=url, client_session_id="s", call_id=call_id, limit=limit
        )

    assert await store.read(read) == [shared[2], shared[1]]
    assert await store.read(lambda tx: read(tx, CALL_ID)) == []
    registered = replace(others[-1], id=make_webhook().id, origin=WebhookOrigin.MCP)
    await insert(store, registered, naming=[])
    assert await store.read(lambda tx: read(tx, CALL_ID)) == [registered]
