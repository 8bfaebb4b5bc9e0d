"""Texts that PostgreSQL treats in its own way: U+0000, which it cannot store, and texts longer than an index entry."""

from datetime import timedelta

import pytest

from ringback.domain.call import Handle
from ringback.domain.call_rows import CallChange
from ringback.domain.event import EventName
from ringback.domain.ids import EventId
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from ringback.storage.postgres.store import PostgresStore
from tests.support.builders import make_call, make_event, make_webhook
from tests.support.clock import START

LONG = "".join(chr(0x1F300 + number % 700) for number in range(2000))
"""8,000 bytes that cannot be compressed much. An index entry has 2,700 at most."""
ODD_TASK_IDS = ["plain", 'quote " and \\ backslash', "line\nbreak\ttab \x1b", "Grüße 🔔", "\\u0000", LONG[:1000]]


@pytest.mark.parametrize("task_id", ODD_TASK_IDS)
async def test_a_call_is_found_by_any_task_id(store: PostgresStore, task_id: str) -> None:
    other = make_call(handle=Handle(driver="task", data={"task_id": "other"}))
    call = make_call(handle=Handle(driver="task", data={"task_id": task_id, "state": "zero \0 byte"}))
    for each in (other, call):
        await store.write(lambda tx, each=each: tx.calls.insert(each))

    found = await store.read(lambda tx: tx.call_queue.find_by_task(call.upstream, task_id))

    assert found == call
    assert await store.read(lambda tx: tx.call_queue.find_by_task("elsewhere", task_id)) is None


async def test_a_handle_and_input_with_u_0000_are_stored_as_they_are(store: PostgresStore) -> None:
    call = make_call(arguments={"text": "a\0b"}, meta={"k\0": 1})
    handle = Handle(driver="mrtr", data={"request_state": "\0 \\u0000 \x1f", "task_id": "t\0"})

    async def work(tx: Transaction) -> None:
        await tx.calls.insert(call)
        changed = make_call(id=call.id, handle=handle)
        assert await tx.calls.update(changed, CallChange.HANDLE, expected=call.status, lease_token=None)

    await store.write(work)

    stored = await store.read(lambda tx: tx.calls.get_whole(call.id))
    assert stored is not None
    assert (stored.handle, stored.arguments, stored.meta) == (handle, call.arguments, call.meta)


async def test_a_changed_resource_whose_uri_contains_u_0000_matches_no_webhook_and_no_error(
    store: PostgresStore,
) -> None:
    webhook = make_webhook(events=frozenset({EventName.UPSTREAM_CHANGED}), upstream="git", resource_uri="file:///a")
    await store.write(lambda tx: tx.webhooks.insert(webhook))
    events = [
        make_event(
            id=EventId(f"evt_{number}"),
            name=EventName.UPSTREAM_CHANGED,
            call_id=None,
            upstream="git",
            data={"change": "resources/updated", "uri": uri},
            seq=number,
        )
        for number, uri in enumerate(["file:///a", "file:///\0"], 1)
    ]

    found = await store.write(lambda tx: tx.webhooks.find_candidates(events, catching_up=False))

    assert [[each.id for each in webhooks] for webhooks in found] == [[webhook.id], []]


async def test_an_event_whose_texts_contain_a_backslash_and_u0000_finds_its_webhooks(store: PostgresStore) -> None:
    """Six characters, as a client may choose them for its ids: JSON text escapes the backslash."""
    text = r"C:\u0000"
    webhook = make_webhook(correlation_id=text, match_correlation=True, client_session_id=text)
    await store.write(lambda tx: tx.webhooks.insert(webhook))
    event = make_event(correlation_id=text, client_session_id=text, seq=1)

    (found,) = await store.write(lambda tx: tx.webhooks.find_candidates([event], catching_up=False))
    receivers = await store.write(lambda tx: tx.log_appends.find_receivers([event]))

    assert [each.id for each in found] == [each.id for each in receivers.webhooks[event.principal, 1]] == [webhook.id]


async def test_urls_and_filters_of_any_length_are_found(store: PostgresStore) -> None:
    url = f"https://example.com/{LONG[:1900]}"
    webhook = make_webhook(
        url=url,
        events=frozenset({EventName.CALL_FINISHED, EventName.UPSTREAM_CHANGED}),
        client_session_id=LONG[:256],
        correlation_id=LONG[256:512],
        match_correlation=True,
    )
    event = make_event(
        principal=webhook.principal, client_session_id=webhook.client_session_id, correlation_id=webhook.correlation_id
    )

    async def work(tx: Transaction) -> tuple[list[Webhook], list[Webhook]]:
        await tx.webhooks.insert(webhook)
        await tx.proofs.save(webhook.principal, url, now=START)
        await tx.proofs.save(webhook.principal, url, now=START + timedelta(seconds=1))
        same = await tx.call_webhooks.list_of_target(
            webhook.principal, url=url, client_session_id=webhook.client_session_id, call_id=None, limit=2
        )
        (candidates,) = await tx.webhooks.find_candidates([event], catching_up=False)
        return list(same), list(candidates)

    assert await store.write(work) == ([webhook], [webhook])
    proven_at = await store.read(lambda tx: tx.proofs.get_proven_at(webhook.principal, url))
    assert proven_at == START + timedelta(seconds=1)
