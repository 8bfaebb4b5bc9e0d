"""An MCP client subscribes to events by webhook, refreshes, and unsubscribes (mcp-events §6)."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import orjson
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import Principal, Scope
from ringback.domain.webhook import SUBSCRIBE_GRACE_SECONDS
from ringback.protocol.mcp_events.errors import EventError, EventErrorName
from ringback.services.erasures import Erasures
from ringback.services.lifecycle import Lifecycle
from ringback.services.logins.login_tokens import LoginRevocations
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import ALICE, BOB
from tests.support.login_flow import ScriptedLoginFlow
from tests.support.subscriptions import CLIENT, HOOK, SECRET, SubscriptionStage
from tests.support.verifications import dispatch_all_due

DAY_SECONDS = 86_400.0


async def test_a_new_subscription_gets_the_events_after_it_and_an_id_that_a_restart_keeps(
    still: Engine, fake_clock: FakeClock
) -> None:
    await still.finish_call(make_call())
    stage = SubscriptionStage(still)

    grant = await stage.subscribe(arguments={"tool": "git_log"})

    assert grant.id.startswith("sub_")
    assert grant.refresh_before == fake_clock.now() + timedelta(days=1)
    assert not grant.truncated
    assert grant.delivery_status is None
    fake_clock.advance(SUBSCRIBE_GRACE_SECONDS)
    await still.finish_call(make_call(tool="git_diff"))
    heard = await still.finish_call(make_call())
    (request,) = await dispatch_all_due(still)
    assert request.headers["x-mcp-subscription-id"] == grant.id
    assert orjson.loads(request.content)["data"]["call_id"] == heard.id
    again = await SubscriptionStage(still).subscribe(arguments={"tool": "git_log"})
    assert again.id == grant.id


async def test_the_totals_count_live_subscriptions(still: Engine) -> None:
    stage = SubscriptionStage(still)

    for tool in ("git_log", "git_diff", "git_log"):
        await stage.subscribe(arguments={"tool": tool})

    assert (await still.store.read(lambda tx: tx.usage.count_totals())).subscriptions == 2


async def test_the_same_key_twice_at_once_makes_one_subscription(still: Engine) -> None:
    stage, other_node = SubscriptionStage(still), SubscriptionStage(still)

    grants = await asyncio.gather(*(each.subscribe(secret=SECRET) for each in (stage, other_node) for _ in range(4)))

    assert len({grant.id for grant in grants}) == 1
    assert await stage.count_live() == 1


async def test_no_delivery_leaves_before_the_client_has_the_result(still: Engine, fake_clock: FakeClock) -> None:
    stage = SubscriptionStage(still)
    old = await stage.subscribe(url=f"{HOOK}/old")
    await still.finish_call(make_call())
    await stage.subscribe(cursor=old.cursor)

    assert await dispatch_all_due(still) == []
    fake_clock.advance(SUBSCRIBE_GRACE_SECONDS)

    assert len(await dispatch_all_due(still)) == 2


async def test_a_cursor_replays_and_a_maximum_age_skips(still: Engine, fake_clock: FakeClock) -> None:
    stage = SubscriptionStage(still)
    start = (await stage.subscribe(url=f"{HOOK}/other")).cursor
    for _ in range(3):
        await still.finish_call(make_call())
        fake_clock.advance(60)

    whole = await stage.subscribe(cursor=start)
    half = await stage.subscribe(url=f"{HOOK}/half", cursor=start, max_age_seconds=90)
    ignored = await stage.subscribe(url=f"{HOOK}/ignored", max_age_seconds=1)

    assert (whole.truncated, half.truncated, ignored.truncated) == (False, True, False)
    assert whole.cursor == start
    replayed = [each.webhook_id for each in await still.read_deliveries()]
    assert [replayed.count(each.id) for each in (whole, half, ignored)] == [3, 1, 0]  # pyright: ignore[reportArgumentType]


async def test_an_unknown_cursor_starts_now_and_says_truncated(still: Engine) -> None:
    stage = SubscriptionStage(still)
    await still.finish_call(make_call())

    grant = await stage.subscribe(cursor="no cursor of ours")

    assert grant.truncated
    assert grant.cursor == (await stage.subscribe(url=f"{HOOK}/now")).cursor
    assert await still.read_deliveries() == []


async def test_unsubscribing_again_changes_nothing_and_has_no_other_entry_in_the_audit_log(still: Engine) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe()
    for _ in range(3):
        await stage.unsubscribe()

    entries = await still.store.read(lambda tx: tx.audit_entries.list_page(ALICE, position=None, limit=10))

    assert [(each.operation, each.target) for each in entries] == [
        ("remove_webhook", grant.id),
        ("register_webhook", grant.id),
    ]


async def test_unsubscribing_succeeds_for_a_month_after_the_end_and_never_for_foreign_keys(
    still: Engine, fake_clock: FakeClock
) -> None:
    stage = SubscriptionStage(still)
    await stage.subscribe(arguments={"tool": "git_log", "upstream": "git"})
    await still.finish_call(make_call())

    await stage.unsubscribe(arguments={"upstream": "git", "tool": "git_log"})
    await stage.unsubscribe(arguments={"upstream": "git", "tool": "git_log"})

    assert {each.state for each in await still.read_deliveries()} == {DeliveryState.CANCELLED}
    await still.finish_call(make_call())
    assert len(await still.read_deliveries()) == 1
    for foreign in (
        stage.unsubscribe(arguments={"tool": "git_log"}),
        stage.unsubscribe(
            caller=replace(CLIENT, principal=BOB),
            arguments={"upstream": "git", "tool": "git_log"},
        ),
    ):
        with pytest.raises(EventError) as refused:
            await foreign
        assert (refused.value.name, refused.value.data) == (EventErrorName.NOT_FOUND, {"kind": "subscription"})
    fake_clock.advance(30 * DAY_SECONDS)
    with pytest.raises(EventError):
        await stage.unsubscribe(arguments={"upstream": "git", "tool": "git_log"})
    fake_clock.advance(1)
    await still.run_recovery()
    assert await still.store.read(lambda tx: tx.subscriptions.count_live(ALICE)) == 0


async def test_a_subscription_to_one_call_replays_that_call_only(still: Engine, fake_clock: FakeClock) -> None:
    stage = SubscriptionStage(still)
    start = (await stage.subscribe(url=f"{HOOK}/start")).cursor
    fake_clock.advance(60)
    mine, _ = await still.finish_call(make_call()), await still.finish_call(make_call())
    await dispatch_all_due(still)

    await stage.subscribe(arguments={"call_id": mine.id}, cursor=start)
    fake_clock.advance(60)

    (request,) = await dispatch_all_due(still)
    assert orjson.loads(request.content)["data"]["call_id"] == mine.id


async def test_the_erasure_of_a_principal_leaves_no_subscription(still: Engine) -> None:
    stage = SubscriptionStage(still)
    grant = await stage.subscribe(arguments={"correlation_id": "secret"})
    erasures = Erasures(
        store=still.store,
        ids=still.ids,
        recorder=still.recorder,
        lifecycle=Lifecycle(),
        revocations=LoginRevocations(ScriptedLoginFlow()),
    )
    operator = replace(CLIENT, principal=Principal("operator"), scopes=frozenset({Scope.ADMIN}))

    await erasures.erase_principal(operator, ALICE, cancel=True)
    await still.run_recovery()

    assert await stage.read_webhook(grant) is None
    tombstone = await stage.read_subscription(grant)
    assert tombstone is not None
    assert (tombstone.arguments, tombstone.event_name) == ("", "")
    assert await stage.count_live() == 0
