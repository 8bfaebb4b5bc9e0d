"""The index by which the store finds webhooks proposes exactly those for which `matches_event` is true.

One exception: the webhook that came with a call is proposed for all events of that call. There is one for each call.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.catch_up import CatchUp
from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.webhook import Webhook, WebhookOrigin, WebhookState, matches_event
from ringback.domain.webhook_rows import WebhookPart
from tests.support.builders import make_event, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

EXAMPLES: Final = max(20, settings().max_examples // 2)
"""On each of the two stores."""

# Few words for everything, so that much fits by chance; some that could be confused once they are joined.
words = st.sampled_from(["a", "b", "aa", "ä 'quoted\"", ""])
maybe = st.none() | words
names = st.sampled_from([*EventName, "order.paid", "git/pushed"])
expiries = st.none() | st.integers(-1, 1).map(lambda seconds: START + timedelta(seconds=seconds))

filters: dict[str, st.SearchStrategy[Any]] = {
    "events": st.frozensets(names),
    "topic": maybe,
    "upstream": maybe,
    "tool": maybe,
    "call_id": maybe,
    "client_session_id": maybe,
    "correlation_id": maybe,
    "match_correlation": st.booleans(),
    "resource_uri": maybe,
    "outcomes": st.none() | st.frozensets(st.sampled_from(CallOutcome), min_size=1),
    "state": st.sampled_from(WebhookState),
    "expires_at": expiries,
}
registered_webhooks = st.fixed_dictionaries(
    filters
    | {"principal": st.sampled_from([ALICE, BOB]), "origin": st.sampled_from([WebhookOrigin.REST, WebhookOrigin.MCP])}
)
call_ids = st.fixed_dictionaries(filters | {"origin": st.just(WebhookOrigin.CALL), "call_id": words.map(CallId)})
events: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "name": names,
        "topic": maybe,
        "call_id": maybe,
        "client_session_id": maybe,
        "correlation_id": maybe,
        "upstream": maybe,
        "tool": maybe,
        "data": st.fixed_dictionaries({}, optional={"uri": words, "outcome": st.sampled_from(CallOutcome).map(str)}),
    }
)
changes = st.lists(st.tuples(st.integers(0, 11), st.none() | st.fixed_dictionaries({}, optional=filters)), max_size=8)
"""Which webhook, and what of it becomes otherwise; None: it is removed."""


class _RollbackError(Exception):
    pass


@pytest.mark.requirement("R25")
@settings(max_examples=EXAMPLES)
@given(
    born=st.lists(registered_webhooks | call_ids, max_size=12),
    changes=changes,
    happened=st.lists(events, min_size=1, max_size=4),
    behind=st.sets(st.integers(0, 11)),
)
async def test_the_store_lists_exactly_the_webhooks_that_match_an_event(
    store: Store,
    born: list[dict[str, Any]],
    changes: list[tuple[int, dict[str, Any] | None]],
    happened: list[dict[str, Any]],
    behind: set[int],
) -> None:
    webhooks = {number: make_webhook(**each) for number, each in enumerate(born)}
    happened_events = [make_event(seq=seq, **each) for seq, each in enumerate(happened, 1)]
    bobs_events = [replace(event, principal=BOB) for event in happened_events]

    async def live(tx: Transaction) -> None:
        for webhook in webhooks.values():
            await tx.webhooks.insert(webhook)
        for number, change in changes:
            await _change(tx, webhooks, number, change)
        late = {webhook.id for number, webhook in webhooks.items() if number in behind and _may_catch_up(webhook)}
        for webhook_id in late:
            await tx.catch_ups.save(CatchUp(webhook_id=webhook_id, principal=ALICE, seq=1))
        found = await tx.webhooks.find_candidates(happened_events, catching_up=True)
        in_time = await tx.webhooks.find_candidates(happened_events, catching_up=False)
        for event, proposed, proposed_in_time in zip(happened_events, found, in_time, strict=True):
            registered_ones = [each for each in proposed if each.origin is not WebhookOrigin.CALL]
            own = [each for each in proposed if each.origin is WebhookOrigin.CALL]
            assert _ids([*registered_ones, *_matching_ids(own, event)]) == _ids(_matching_ids(webhooks.values(), event))
            assert all(each.call_id == event.call_id for each in own)
            assert set(_ids(proposed_in_time)) == set(_ids(proposed)) - late
        receivers = await tx.log_appends.find_receivers([*happened_events, *bobs_events])
        bobs = await tx.webhooks.find_candidates(bobs_events, catching_up=False)
        for event, proposed in zip([*happened_events, *bobs_events], [*in_time, *bobs], strict=True):
            assert _by_id(receivers.webhooks[event.principal, event.seq]) == _by_id(proposed)
        raise _RollbackError

    with pytest.raises(_RollbackError):
        await store.write(live)


async def test_a_value_that_contains_the_separator_of_keys_loses_no_match(store: Store) -> None:
    matching = make_webhook(client_session_id="a\x1fa", topic="a")
    confusable = make_webhook(client_session_id="a", topic="a\x1fa")
    event = make_event(seq=1, client_session_id="a\x1fa", topic="a")

    async def find(tx: Transaction) -> list[str]:
        for webhook in (matching, confusable):
            await tx.webhooks.insert(webhook)
        (found,) = await tx.webhooks.find_candidates([event], catching_up=True)
        return _ids(_matching_ids(found, event))

    assert await store.write(find) == [matching.id]


async def _change(tx: Transaction, webhooks: dict[int, Webhook], number: int, change: dict[str, Any] | None) -> None:
    webhook = webhooks.get(number)
    if webhook is None:
        return
    if change is None:
        del webhooks[number]
        await tx.webhooks.delete(webhook.id)
        return
    lasting = {"topic", "call_id"} if webhook.origin is WebhookOrigin.CALL else {"topic"}
    change = {name: value for name, value in change.items() if name not in lasting}
    webhooks[number] = replace(webhook, **change)
    await tx.webhooks.update(webhooks[number], *WebhookPart)


def _may_catch_up(webhook: Webhook) -> bool:
    return webhook.origin is not WebhookOrigin.CALL and webhook.state is not WebhookState.DISABLED


def _matching_ids(webhooks: Iterable[Webhook], event: Event) -> list[Webhook]:
    return [webhook for webhook in webhooks if matches_event(webhook, event, now=START)]


def _by_id(webhooks: Iterable[Webhook]) -> list[Webhook]:
    return sorted(webhooks, key=lambda webhook: webhook.id)


def _ids(webhooks: Iterable[Webhook]) -> list[str]:
    return sorted(webhook.id for webhook in webhooks)
