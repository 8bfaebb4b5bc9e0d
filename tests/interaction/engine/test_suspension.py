"""Webhooks of receivers that have not responded for 96 hours are suspended, and their owners are warned before."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from ringback.domain.event import EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier.attempts import WARNINGS_AT_ONCE_MAX, limit_warnings
from ringback.notifier.deferred_receivers import WATCHERS_AT_ONCE_MAX
from tests.support.builders import make_call, make_webhook
from tests.support.catch_ups import finish_catching_up
from tests.support.clock import FakeClock
from tests.support.databases import query_rows
from tests.support.engine import Engine
from tests.support.examples import ALICE
from tests.support.receivers_by_host import ReceiversByHost
from tests.support.suspensions import (
    AGENT,
    FAILING,
    OTHER_WEBHOOK,
    PROBE_INTERVAL,
    SUSPENSION,
    run_rounds,
    suspend_webhook,
)


@pytest.mark.requirement("R27")
async def test_a_webhook_without_a_success_for_96_hours_is_suspended(still: Engine, fake_clock: FakeClock) -> None:
    webhook, board = make_webhook(), ReceiversByHost(500)
    await still.insert_webhooks(webhook)
    dispatcher = still.make_dispatcher(board)

    async def fail() -> WebhookState:
        await still.finish_call(make_call())
        await dispatcher.run_once()
        return (await still.read_webhook(webhook.id)).state

    assert await fail() is WebhookState.ACTIVE
    fake_clock.advance(SUSPENSION - 0.001)
    assert await fail() is WebhookState.ACTIVE
    fake_clock.advance(0.001)
    assert await fail() is WebhookState.SUSPENDED


async def test_one_success_begins_the_96_hours_anew(still: Engine, fake_clock: FakeClock) -> None:
    webhook, board = make_webhook(), ReceiversByHost(500)
    await still.insert_webhooks(webhook)
    dispatcher = still.make_dispatcher(board)
    for answer in (500, 204, 500):
        board.set_response(AGENT, answer)
        await still.finish_call(make_call())
        await dispatcher.run_once()
        fake_clock.advance(SUSPENSION * 2 / 3)

    assert (await still.read_webhook(webhook.id)).state is WebhookState.ACTIVE


@pytest.mark.requirement("R27")
async def test_the_owner_learns_of_suspension_and_recovery_from_the_log_and_other_webhooks(
    still: Engine, fake_clock: FakeClock
) -> None:
    board = ReceiversByHost(500)
    board.set_response(OTHER_WEBHOOK, 204)
    about = frozenset({EventName.WEBHOOK_SUSPENDED, EventName.WEBHOOK_RECOVERED})
    await still.insert_webhooks(make_webhook(url=f"https://{OTHER_WEBHOOK}/", events=about))
    webhook = make_webhook(events=about | {EventName.CALL_FINISHED}, **FAILING)
    await still.insert_webhooks(webhook)
    await still.finish_call(make_call())
    await run_rounds(still, board)

    board.set_response(AGENT, 204)
    fake_clock.advance(PROBE_INTERVAL)
    await run_rounds(still, board)

    events = [event for event in await still.read_events() if event.call_id is None]
    assert [event.name for event in events] == [EventName.WEBHOOK_SUSPENDED, EventName.WEBHOOK_RECOVERED]
    assert [event.data["webhook_id"] for event in events] == [webhook.id, webhook.id]
    assert [event.data["state"] for event in events] == ["suspended", "active"]
    assert [body["name"] for body in board.bodies(OTHER_WEBHOOK)] == ["webhook.suspended", "webhook.recovered"]
    assert {body["name"] for body in board.bodies(AGENT)} == {"call.finished"}, "no webhook gets an event about itself"


async def test_the_owner_is_warned_at_50_70_and_90_percent_of_the_way_to_the_suspension(
    still: Engine, fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="ringback.notifier.attempts")
    board = ReceiversByHost(500)
    board.set_response(OTHER_WEBHOOK, 204)
    warned = {EventName.WEBHOOK_FAILING, EventName.WEBHOOK_SUSPENDED}
    webhook = make_webhook(events=frozenset(warned | {EventName.CALL_FINISHED}))
    await still.insert_webhooks(webhook, make_webhook(url=f"https://{OTHER_WEBHOOK}/", events=frozenset(warned)))

    for hours in (0, 47, 1, 1, 18.2, 0.1, 19.1, 9.6, 0):
        fake_clock.advance(hours * 3600)
        await still.finish_call(make_call())
        await run_rounds(still, board)

    sent = [(body["name"], body["data"].get("percent")) for body in board.bodies(OTHER_WEBHOOK)]
    assert sent == [*(("webhook.failing", percent) for percent in (50, 70, 90)), ("webhook.suspended", None)]
    assert {body["name"] for body in board.bodies(AGENT)} == {"call.finished"}, "no webhook gets an event about itself"
    first = next(event for event in await still.read_events() if event.name == EventName.WEBHOOK_FAILING)
    assert first.data == {
        "webhook_id": webhook.id,
        "state": "active",
        "last_error": "http_5xx",
        "failing_since": "2026-11-20T17:00:00.000Z",
        "percent": 50,
        "suspends_at": "2026-11-24T17:00:00.000Z",
        "advice": "The receiver failed; look at its log.",
    }
    lines = [(each.msg, each.__dict__["percent"]) for each in caplog.records if each.msg.startswith("webhook.")]
    assert lines == sent


@pytest.mark.requirement("R20")
async def test_after_a_restored_backup_only_levels_that_the_backup_lacks_are_raised_again(
    still: Engine, fake_clock: FakeClock, tmp_path: Path
) -> None:
    await still.insert_webhooks(make_webhook(failing_since=fake_clock.now() - timedelta(hours=48)))

    async def fail() -> list[tuple[int, str]]:
        await still.finish_call(make_call())
        await run_rounds(still, ReceiversByHost(500), 1)
        events = [event for event in await still.read_events() if event.name == EventName.WEBHOOK_FAILING]
        return [(event.data["percent"], event.id) for event in events]

    (half,) = await fail()
    head = (await still.read_events())[-1].seq
    fake_clock.advance(20 * 3600)
    _, lost = await fail()
    query_rows(tmp_path, "DELETE FROM events WHERE seq > ?", head)
    query_rows(tmp_path, "UPDATE log_heads SET seq = ?", head)
    query_rows(tmp_path, "UPDATE webhooks SET alerted_percent = 50")
    kept, again = await fail()

    assert (half[0], lost[0]) == (50, 70)
    assert kept == half
    assert (again[0], again[1] == lost[1]) == (70, False)


async def test_many_webhooks_that_reach_a_level_at_once_are_all_warned(still: Engine, fake_clock: FakeClock) -> None:
    since = fake_clock.now() - timedelta(hours=50)
    webhooks = [
        make_webhook(url=f"https://gone-{number}.example/", failing_since=since)
        for number in range(4 * WARNINGS_AT_ONCE_MAX)
    ]
    await still.insert_webhooks(*webhooks)
    dispatcher = still.make_dispatcher(ReceiversByHost(500))
    for _ in range(4):
        await still.finish_call(make_call())
        fake_clock.advance(60)
        await dispatcher.run_once()

    warned = [event for event in await still.read_events() if event.name == EventName.WEBHOOK_FAILING]
    assert sorted(event.data["webhook_id"] for event in warned) == sorted(webhook.id for webhook in webhooks)


async def test_a_suspension_that_many_webhooks_watch_is_delivered_in_bounded_steps(still: Engine) -> None:
    """The others catch up with it, and get what happened meanwhile in the order of the log."""
    watched = frozenset({EventName.WEBHOOK_SUSPENDED, EventName.CALL_FINISHED})
    watchers = [make_webhook(url=f"https://{OTHER_WEBHOOK}/", events=watched) for _ in range(2 * WATCHERS_AT_ONCE_MAX)]
    await still.insert_webhooks(make_webhook(**FAILING), *watchers)
    board = ReceiversByHost(500)
    board.set_response(OTHER_WEBHOOK, 204)
    await still.finish_call(make_call())
    await run_rounds(still, board)

    at_once = await list_deliveries_of(still, watchers)
    await still.finish_call(make_call())
    await finish_catching_up(still)

    finished, suspended, finished_later = [event.id for event in await still.read_events()]
    assert at_once.count([finished, suspended]) == at_once.count([finished]) == WATCHERS_AT_ONCE_MAX
    received = await list_deliveries_of(still, watchers)
    assert received == [[finished, suspended, finished_later]] * len(watchers)


async def list_deliveries_of(engine: Engine, webhooks: list[Webhook]) -> list[list[str | None]]:
    """The events of each webhook's deliveries, in the order of the log."""
    deliveries = await engine.read_deliveries()
    return [[each.event_id for each in deliveries if each.webhook_id == webhook.id] for webhook in webhooks]


def test_one_transaction_warns_of_a_few_webhooks_and_leaves_the_others_for_their_next_attempt() -> None:
    before = [make_webhook(alerted_percent=0) for _ in range(WARNINGS_AT_ONCE_MAX + 3)]
    unchanged = make_webhook(alerted_percent=70)
    pairs = [(webhook, replace(webhook, alerted_percent=50)) for webhook in before]

    limited = limit_warnings([(unchanged, unchanged), *pairs])

    assert [after.alerted_percent for _, after in limited] == [70, *[50] * WARNINGS_AT_ONCE_MAX, 0, 0, 0]


async def test_an_event_about_a_webhook_says_nothing_of_its_url_or_secrets(still: Engine) -> None:
    board = ReceiversByHost(500)
    await suspend_webhook(still, board)

    (event,) = await still.store.read(
        lambda tx: tx.events.list_after(ALICE, 0, EventFilter(name=EventName.WEBHOOK_SUSPENDED), limit=10)
    )

    assert event.data.keys() == {"webhook_id", "state", "last_error", "failing_since"}
    assert event.data["last_error"] == "http_5xx"
