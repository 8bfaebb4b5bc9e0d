"""The demand for events of an upstream: how many different ones there may be, and when a webhook demands them again."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.domain.errors import InvalidRequest, QuotaExceeded
from ringback.domain.event_rows import EventFilter
from ringback.domain.event_types import DEMAND_SECONDS, EventDemand, EventFollowing, EventType, arguments_topic
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Caller, Principal
from ringback.domain.webhook import WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.services.events import event_types
from ringback.services.events.event_demands import PRINCIPAL_SHARE_MAX, UPSTREAM_DEMANDS_MAX
from ringback.services.events.event_publishing import PublishedEvent
from ringback.services.events.event_types import FOLLOW_WAIT_SECONDS
from ringback.services.webhooks.registrations import WebhookRegistration
from ringback.services.webhooks.webhook_changes import WebhookChange
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from tests.support.builders import make_webhook
from tests.support.clock import START, FakeClock
from tests.support.event_demands import remove_ended_demands
from tests.support.examples import ALICE, BOB
from tests.support.interleaving import CALLER, OTHER_CALLER, Node, Nodes, make_caller, open_nodes
from tests.support.subscriptions import make_request

CAROL: Final = make_caller(Principal("carol"))
FOLLOWING: Final = EventFollowing(event_name="git/pushed", topic="", cursor=None, updated_at=START)
PUSHED: Final = EventType(
    name="git/pushed", own_name="pushed", upstream="git", description="", input_schema={}, payload_schema={}
)
URL: Final = "http://127.0.0.1:1/callback"


@pytest.fixture
async def nodes(tmp_path: Path, clock: FakeClock) -> AsyncGenerator[Nodes]:
    """Nodes that challenge no URL."""
    async with open_nodes(tmp_path, clock, callback_allowlist=("http://127.0.0.1:1",)) as opened:
        yield opened


async def demand(node: Node, number: int, caller: Caller = CALLER, upstream: str = "git") -> None:
    """Demand the events for these arguments, which the upstream is asked for already: nothing waits for it."""
    event_type = replace(PUSHED, name=f"{upstream}/pushed", upstream=upstream)
    arguments = f'{{"number":{number}}}'
    following = replace(FOLLOWING, event_name=event_type.name, topic=arguments_topic(arguments) or "")
    await node.store.write(lambda tx: tx.event_followings.save(following))
    await node.services.event_types.demand_events(caller, event_type, arguments)


async def refuse(node: Node, number: int, caller: Caller = CALLER) -> str:
    """The quota that refuses the demand."""
    with pytest.raises(QuotaExceeded) as refused:
        await demand(node, number, caller)
    return str(refused.value.extra["quota"])


async def test_one_principal_cannot_use_up_an_upstream_for_the_others(nodes: Nodes) -> None:
    for number in range(PRINCIPAL_SHARE_MAX):
        await demand(nodes.first, number)

    assert await refuse(nodes.first, PRINCIPAL_SHARE_MAX) == "upstream_events"
    await demand(nodes.first, 0)
    await demand(nodes.first, 0, upstream="git2")
    await demand(nodes.first, PRINCIPAL_SHARE_MAX, OTHER_CALLER)


async def test_a_demand_that_a_full_upstream_would_not_be_asked_for_is_refused(nodes: Nodes) -> None:
    for number in range(UPSTREAM_DEMANDS_MAX):
        await demand(nodes.first, number, CALLER if number < PRINCIPAL_SHARE_MAX else OTHER_CALLER)

    assert await refuse(nodes.first, UPSTREAM_DEMANDS_MAX, CAROL) == "events_of_upstream"
    await demand(nodes.first, 0, CAROL)


async def test_a_demand_that_has_ended_leaves_its_place_and_must_find_a_new_one(nodes: Nodes, clock: FakeClock) -> None:
    await demand(nodes.first, 0)
    clock.advance(DEMAND_SECONDS)
    for number in range(1, PRINCIPAL_SHARE_MAX + 1):
        await demand(nodes.first, number)

    assert await refuse(nodes.first, 0) == "upstream_events"


async def test_the_events_of_an_upstream_are_counted_once_for_all_principals(nodes: Nodes) -> None:
    for caller in (CALLER, OTHER_CALLER):
        await demand(nodes.first, 1, caller)
    await demand(nodes.first, 2, OTHER_CALLER)
    await demand(nodes.first, 3, upstream="git-2")

    demanded = await nodes.first.store.read(lambda tx: tx.event_demands.list_of_upstream("git", ALICE, now=tx.now()))

    assert sorted(each.is_own for each in demanded) == [False, True]
    assert {each.event_name for each in demanded} == {"git/pushed"}


async def test_a_webhook_that_is_enabled_again_after_a_long_time_receives_an_upstreams_events_again(
    nodes: Nodes, clock: FakeClock
) -> None:
    node = nodes.first
    registered = await node.services.registrations.register_webhook(CALLER, WebhookRegistration(url=URL))
    webhook_id = registered.webhook.id
    await node.store.write(lambda tx: subscribe_to_pushes(tx, webhook_id))

    async def change_state(state: WebhookState) -> int:
        """The number of current demands after the change. The upstream is asked already: nothing waits for it."""
        await node.store.write(lambda tx: tx.event_followings.save(FOLLOWING))
        await node.services.webhooks.change_webhook(CALLER, webhook_id, WebhookChange(state=state))
        await remove_ended_demands(node.store)
        return len(await node.store.read(lambda tx: tx.event_demands.list_current(now=tx.now())))

    assert await change_state(WebhookState.ACTIVE) == 1
    clock.advance(DEMAND_SECONDS)
    assert await change_state(WebhookState.DISABLED) == 0
    assert await change_state(WebhookState.ACTIVE) == 1


@pytest.mark.parametrize("has_webhook", [True, False])
async def test_a_poll_after_a_long_time_has_missed_events_unless_a_webhook_demanded_them_meanwhile(
    nodes: Nodes, clock: FakeClock, *, has_webhook: bool
) -> None:
    node = nodes.first
    await node.store.write(lambda tx: tx.event_followings.save(FOLLOWING))
    first = await node.services.event_types.demand_events(CALLER, PUSHED, "{}")
    if has_webhook:
        registered = await node.services.registrations.register_webhook(CALLER, WebhookRegistration(url=URL))
        await node.store.write(lambda tx: subscribe_to_pushes(tx, registered.webhook.id))
    clock.advance(2 * DEMAND_SECONDS)

    later = await node.services.event_types.demand_events(CALLER, PUSHED, "{}")
    again = await node.services.event_types.demand_events(CALLER, PUSHED, "{}")

    assert (first.is_new, later.is_new, again.is_new) == (True, not has_webhook, False)


@pytest.mark.parametrize("is_removed", [True, False])
async def test_every_reader_with_an_older_cursor_learns_that_no_client_demanded_the_events_for_a_time(
    nodes: Nodes, clock: FakeClock, *, is_removed: bool
) -> None:
    node = nodes.first
    await node.store.write(lambda tx: tx.event_followings.save(FOLLOWING))
    await publish(node)
    await node.services.event_types.demand_events(CALLER, PUSHED, "{}")
    older = await read_cursor(node)
    clock.advance(2 * DEMAND_SECONDS)
    if is_removed:
        await remove_ended_demands(node.store)
        await node.store.write(lambda tx: tx.event_followings.save(FOLLOWING))

    first = await node.services.event_types.demand_events(CALLER, PUSHED, "{}")
    second = await nodes.second.services.event_types.demand_events(CALLER, PUSHED, "{}")
    newer = await read_cursor(node)

    assert first.has_missed_events(older)
    assert second.has_missed_events(older)
    assert not second.has_missed_events(newer)


async def test_a_demand_that_begins_with_an_empty_log_adds_nothing_to_it(nodes: Nodes) -> None:
    node = nodes.first
    await node.store.write(lambda tx: tx.event_followings.save(FOLLOWING))

    await node.services.event_types.demand_events(CALLER, PUSHED, "{}")

    assert await node.store.read(lambda tx: tx.event_log.get_head(ALICE)) == 0


@pytest.mark.parametrize("has_cursor", [True, False])
async def test_a_subscription_that_had_lapsed_says_that_no_client_demanded_an_upstreams_events_meanwhile(
    nodes: Nodes, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, has_cursor: bool
) -> None:
    async def find_event_type(*_: Any) -> EventType:
        return PUSHED

    monkeypatch.setattr(event_types.EventTypes, "find_event_type", find_event_type)
    node = nodes.first
    await publish(node)
    ttl_seconds = 2 * DEMAND_SECONDS

    async def subscribe(cursor: str | None) -> bool:
        await node.store.write(lambda tx: tx.event_followings.save(FOLLOWING))
        request = make_request(PUSHED.name, url=URL, cursor=cursor, ttl=ttl_seconds)
        return (await node.services.event_subscriptions.subscribe(CALLER, request)).truncated

    answers = [await subscribe(None)]
    cursor = await read_cursor(node) if has_cursor else None
    clock.advance(ttl_seconds / 2)
    answers.append(await subscribe(cursor))
    clock.advance(ttl_seconds + 1)
    answers.append(await subscribe(cursor))

    assert answers == [False, False, True]


async def test_a_subscription_to_changes_says_that_no_client_demanded_them_before(
    nodes: Nodes, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_upstream(*_: Any) -> bool:
        return True

    monkeypatch.setattr(UpstreamToolCatalog, "has_upstream", has_upstream)
    node = nodes.first
    await publish(node)
    cursor, ttl_seconds = await read_cursor(node), 3600.0

    async def subscribe(cursor: str | None, path: str) -> bool:
        arguments = {"upstream": "git"}
        request = make_request("upstream.changed", arguments=arguments, url=URL + path, cursor=cursor, ttl=ttl_seconds)
        return (await node.services.event_subscriptions.subscribe(CALLER, request)).truncated

    answers = [await subscribe(None, "/a"), await subscribe(cursor, "/b")]
    clock.advance(ttl_seconds + 1)
    answers += [await subscribe(cursor, "/c"), await subscribe(cursor, "/c"), await subscribe(None, "/a")]
    clock.advance(ttl_seconds + 1)
    answers.append(await subscribe(None, "/a"))

    assert answers == [False, False, True, False, False, True]


async def test_a_webhook_names_an_event_type_that_only_the_new_list_of_its_upstream_has(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    types = nodes.first.services.event_types

    async def list_event_types(_: Caller) -> list[EventType]:
        return [PUSHED]

    monkeypatch.setattr(types, "list_event_types", list_event_types)

    await types.check_event_names(CALLER, [PUSHED.name])
    with pytest.raises(InvalidRequest):
        await types.check_event_names(CALLER, ["git/pulled"])


async def publish(node: Node) -> None:
    await node.services.event_publishing.publish_events(CALLER, [PublishedEvent(name="order.paid", data={})])


async def read_cursor(node: Node) -> str:
    """The end of the log."""
    page = await node.services.events.poll_events(CALLER, EventFilter(), cursor=None, limit=100)
    return page.cursor


async def test_a_webhook_for_many_events_of_an_upstream_that_is_away_waits_once_for_all_of_them(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()

    async def poll_once(read: Callable[[], Awaitable[object]], _: object, **options: Any) -> object:
        waits.append(options["wait_seconds"])
        return await read()

    monkeypatch.setattr(event_types, "poll_until", poll_once)
    types = nodes.first.services.event_types

    await types.renew_upstream_demands(CALLER, [f"git/pushed-{number}" for number in range(8)])
    await types.renew_upstream_demands(CALLER, ["call.finished", "order.paid"])

    assert waits == [FOLLOW_WAIT_SECONDS]
    demands = await nodes.first.store.read(lambda tx: tx.event_demands.list_current(now=tx.now()))
    assert len(demands) == 8


async def subscribe_to_pushes(tx: Transaction, webhook_id: WebhookId) -> None:
    """As a registration does while the upstream offers the event."""
    webhook = await tx.webhooks.get(webhook_id)
    assert webhook is not None
    await tx.webhooks.update(replace(webhook, events=frozenset({"git/pushed"})), WebhookPart.SETTINGS)


@pytest.mark.parametrize("topic", [None, "topic"])
async def test_a_webhook_demands_events_of_its_topic_until_it_ends_and_an_ended_poll_demands_none(
    nodes: Nodes, clock: FakeClock, topic: str | None
) -> None:
    store, expires_at = nodes.first.store, clock.now() + timedelta(seconds=5)
    webhooks = [
        make_webhook(principal=principal, events=frozenset({"git/pushed"}), topic=topic, **over)
        for principal, over in ((ALICE, {"expires_at": expires_at}), (BOB, {"state": WebhookState.DISABLED}))
    ]
    if topic is None:
        filtered = {"upstream": "git", "events": frozenset({"git/pushed", "git/merged"})}
        webhooks.append(make_webhook(principal=CAROL.principal, expires_at=expires_at, **filtered))
    principals = [*(each.principal for each in webhooks), Principal("dave")]

    async def insert(tx: Transaction) -> None:
        for webhook in webhooks:
            await tx.webhooks.insert(webhook)
        for principal in principals:
            for each in ("", "topic", "another"):
                ended = EventDemand(
                    principal=principal, event_name="git/pushed", topic=each, arguments={}, polled_until=clock.now()
                )
                await tx.event_demands.save(ended)

    async def read_demands(tx: Transaction) -> tuple[Any, Any, Any]:
        return (
            [tuple(each) for each in await tx.event_demands.list_of_upstream("git", ALICE, now=tx.now())],
            [tuple(each) for each in await tx.event_demands.list_of_upstream("git", BOB, now=tx.now())],
            await tx.event_demands.list_principals("git/pushed", topic or "", now=tx.now()),
        )

    await store.write(insert)
    demanding = [ALICE, CAROL.principal] if topic is None else [ALICE]
    current = ("git/pushed", topic or "")
    assert await store.read(read_demands) == ([(*current, True)], [(*current, False)], demanding)

    clock.advance(5)
    assert await store.read(read_demands) == ([], [], [])
