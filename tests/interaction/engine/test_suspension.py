"""Receivers that are gone: their webhooks are suspended, hold few deliveries, and get a gap once they respond again."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import orjson
import pytest

from ringback.domain import webhook_health as health
from ringback.domain.call import Progress
from ringback.domain.circuit_breaker import SUSPENDED_BREAKER_POLICY
from ringback.domain.cursor import decode_log_position
from ringback.domain.delivery import Delivery, DeliveryKind, DeliveryState
from ringback.domain.event import EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.attempts import WARNINGS_AT_ONCE_MAX, limit_warnings
from ringback.notifier.fan_out import WATCHERS_AT_ONCE_MAX
from tests.support.builders import make_call, make_delivery, make_webhook
from tests.support.catch_ups import finish_catching_up, list_sent_seqs
from tests.support.clock import START, FakeClock
from tests.support.databases import query_rows
from tests.support.engine import Engine
from tests.support.examples import ALICE
from tests.support.receivers_by_host import CONNECTION_REFUSED, ReceiversByHost

AGENT, OTHER_WEBHOOK = "agent.example", "watcher.example"
SUSPENSION = health.SUSPEND_AFTER_SECONDS
PROBE_INTERVAL = SUSPENDED_BREAKER_POLICY.open_seconds_steps[0]
FAILING = {"failing_since": START - timedelta(seconds=SUSPENSION)}


async def run_rounds(engine: Engine, board: ReceiversByHost, count: int = 3) -> None:
    """As often as the dispatcher and the janitor of a service that has just started would look."""
    dispatcher, janitor = engine.make_dispatcher(board), engine.make_janitor()
    for _ in range(count):
        await dispatcher.run_once()
        await janitor.run_once()


async def suspend_webhook(engine: Engine, board: ReceiversByHost) -> Webhook:
    webhook = make_webhook(**FAILING)
    await engine.insert_webhooks(webhook)
    await engine.finish_call(make_call())
    await run_rounds(engine, board, 1)
    suspended = await engine.read_webhook(webhook.id)
    assert suspended.state is WebhookState.SUSPENDED
    return suspended


async def states(engine: Engine) -> list[DeliveryState]:
    return [delivery.state for delivery in await engine.read_deliveries()]


# -- suspension -------------------------------------------------------------------------------------------------------------


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


async def test_deliveries_for_a_suspended_webhook_are_held_and_not_sent(still: Engine) -> None:
    board = ReceiversByHost(500)
    await suspend_webhook(still, board)

    await still.finish_call(make_call())
    await run_rounds(still, board)

    assert await states(still) == [DeliveryState.PENDING, DeliveryState.HELD]
    assert len(board.posts) == 1


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
    return [[each.event_id for each in await list_sent_seqs(engine, webhook)] for webhook in webhooks]


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


# -- revival ----------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R27")
async def test_a_suspended_receiver_is_probed_hourly_and_gets_everything_when_it_answers(
    still: Engine, fake_clock: FakeClock
) -> None:
    board = ReceiversByHost(500)
    webhook = await suspend_webhook(still, board)
    for _ in range(3):
        await still.finish_call(make_call())

    sent: list[int] = []
    for _ in range(4):
        fake_clock.advance(PROBE_INTERVAL)
        await run_rounds(still, board)
        sent.append(len(board.posts))
    assert sent == [2, 3, 4, 5]

    board.set_response(AGENT, 204)
    fake_clock.advance(PROBE_INTERVAL)
    await run_rounds(still, board)

    assert (await still.read_webhook(webhook.id)).state is WebhookState.ACTIVE
    fake_clock.advance(86400)
    await run_rounds(still, board)
    assert set(await states(still)) == {DeliveryState.DELIVERED}


async def test_more_than_one_step_of_held_deliveries_is_released_by_the_janitor(still: Engine) -> None:
    webhook = make_webhook(state=WebhookState.SUSPENDED)
    await still.insert_webhooks(webhook)
    held = health.RELEASE_BATCH_SIZE + 10
    await still.insert_deliveries(
        *(make_delivery(webhook_id=webhook.id, seq=seq, state=DeliveryState.HELD) for seq in range(1, held + 1))
    )
    await still.store.write(
        lambda tx: tx.webhooks.update(replace(webhook, state=WebhookState.ACTIVE), WebhookPart.STATE)
    )

    await still.make_janitor().run_once()
    await still.make_janitor().run_once()

    assert await states(still) == [DeliveryState.PENDING] * held


# -- held in bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R27")
async def test_ten_thousand_deliveries_are_held_and_the_rest_becomes_one_gap(
    still: Engine, fake_clock: FakeClock
) -> None:
    board = ReceiversByHost(500)
    webhook = await suspend_webhook(still, board)
    full = [make_delivery(webhook_id=webhook.id, state=DeliveryState.HELD) for _ in range(health.HELD_DELIVERIES_MAX)]
    await still.insert_deliveries(*full)
    for _ in range(3):
        await still.finish_call(make_call())
    first_missed = (await still.read_events())[-3].seq

    assert (
        await still.store.read(lambda tx: tx.webhook_deliveries.count_held(webhook.id, limit=20_000))
        == health.HELD_DELIVERIES_MAX
    )
    assert (await still.read_webhook(webhook.id)).missed_from == first_missed

    board.set_response(AGENT, 204)
    fake_clock.advance(PROBE_INTERVAL)
    await run_rounds(still, board)

    (gap,) = await list_gap_envelopes(still)
    assert decode_log_position(orjson.loads(gap.body)["cursor"]).seq == first_missed - 1
    assert (await still.read_webhook(webhook.id)).missed_from is None


async def test_progress_is_not_held(still: Engine) -> None:
    webhook = make_webhook(state=WebhookState.SUSPENDED, events=frozenset({EventName.CALL_PROGRESS}))
    await still.insert_webhooks(webhook)

    call = await still.lease_call(make_call())

    assert await still.store.write(
        lambda tx: still.recorder.record_progress(tx, call, Progress(progress=1), lease_token=call.lease_token or "")
    )

    assert len(await still.read_events()) == 1
    assert await still.read_deliveries() == []


@pytest.mark.requirement("R27")
async def test_deliveries_held_to_their_maximum_age_are_given_up_and_leave_a_gap(
    still: Engine, fake_clock: FakeClock
) -> None:
    webhook = make_webhook(state=WebhookState.SUSPENDED)
    await still.insert_webhooks(webhook)
    await still.finish_call(make_call())
    (event,) = await still.read_events()

    fake_clock.advance(4 * 86400)
    await still.make_janitor().run_once()

    assert await states(still) == [DeliveryState.DEAD]
    assert (await still.read_webhook(webhook.id)).missed_from == event.seq


# -- gaps -------------------------------------------------------------------------------------------------------------------


async def lose_deliveries(engine: Engine, clock: FakeClock, board: ReceiversByHost, count: int = 1) -> list[int]:
    """Let so many events be given up, one after the other; their places."""
    lost: list[int] = []
    for _ in range(count):
        await engine.finish_call(make_call())
        lost.append((await engine.read_events())[-1].seq)
        clock.advance(4 * 86400)
        await run_rounds(engine, board)
    return lost


@pytest.fixture
async def registered(still: Engine) -> Webhook:
    webhook = make_webhook()
    await still.insert_webhooks(webhook)
    return webhook


async def list_gap_envelopes(engine: Engine) -> list[Delivery]:
    return [delivery for delivery in await engine.read_deliveries() if delivery.kind is DeliveryKind.GAP]


@pytest.mark.requirement("R27")
@pytest.mark.usefixtures("registered")
async def test_a_receiver_that_is_back_is_told_once_from_where_to_poll(still: Engine, fake_clock: FakeClock) -> None:
    board = ReceiversByHost(500)
    lost = await lose_deliveries(still, fake_clock, board, 2)
    assert await list_gap_envelopes(still) == []

    board.set_response(AGENT, 204)
    await still.finish_call(make_call())
    fake_clock.advance(PROBE_INTERVAL)
    await run_rounds(still, board, 5)

    (envelope,) = [post for post in board.posts if b'"gap"' in post.content]
    assert board.bodies()[board.posts.index(envelope)].keys() == {"type", "cursor"}
    (gap,) = await list_gap_envelopes(still)
    assert decode_log_position(board.bodies()[board.posts.index(envelope)]["cursor"]).seq == lost[0] - 1
    assert envelope.headers["webhook-id"] == gap.message_id
    assert gap.message_id.startswith("msg_gap_")
    assert (gap.event_id, gap.call_id, gap.state) == (None, None, DeliveryState.DELIVERED)


@pytest.mark.usefixtures("registered")
async def test_every_outage_has_a_gap_of_its_own(still: Engine, fake_clock: FakeClock) -> None:
    board = ReceiversByHost()
    firsts: list[int] = []
    for _ in range(2):
        board.set_response(AGENT, 500)
        firsts += await lose_deliveries(still, fake_clock, board)
        board.set_response(AGENT, 204)
        await still.finish_call(make_call())
        fake_clock.advance(PROBE_INTERVAL)
        await run_rounds(still, board, 5)

    gaps = [body for body in board.bodies() if body.get("type") == "gap"]
    assert [decode_log_position(body["cursor"]).seq + 1 for body in gaps] == firsts


async def test_a_gap_that_fails_is_tried_again_under_its_id_and_is_not_counted_against_the_webhook(
    still: Engine, fake_clock: FakeClock, registered: Webhook
) -> None:
    await still.store.write(lambda tx: tx.webhooks.update(replace(registered, missed_from=1), WebhookPart.MISSED))

    async def dislike_envelopes(request: httpx.Request) -> httpx.Response:
        return httpx.Response(400 if b'"gap"' in request.content else 204)

    dispatcher = still.make_dispatcher(dislike_envelopes)
    await still.finish_call(make_call())
    for _ in range(10):
        await dispatcher.run_once()
        fake_clock.advance(600)

    (gap,) = await list_gap_envelopes(still)
    assert (gap.state, gap.attempts) == (DeliveryState.DEAD, 5)
    webhook = await still.read_webhook(registered.id)
    assert (webhook.failing_since, webhook.last_error, webhook.missed_from) == (None, None, None)


async def test_a_gap_that_could_not_be_delivered_is_sent_again(
    still: Engine, fake_clock: FakeClock, registered: Webhook
) -> None:
    await still.store.write(lambda tx: tx.webhooks.update(replace(registered, missed_from=3), WebhookPart.MISSED))
    board = ReceiversByHost()
    dispatcher = still.make_dispatcher(board)
    await still.finish_call(make_call())
    await dispatcher.run_once()
    board.set_response(AGENT, CONNECTION_REFUSED)
    for _ in range(10):
        await dispatcher.run_once()
        fake_clock.advance(600)

    assert (await still.read_webhook(registered.id)).missed_from == 3
    board.set_response(AGENT, 204)
    await still.finish_call(make_call())
    await run_rounds(still, board)
    assert {gap.state for gap in await list_gap_envelopes(still)} == {DeliveryState.DEAD, DeliveryState.DELIVERED}


@pytest.mark.parametrize("refusal", [410, 413])
async def test_deliveries_that_a_receiver_rejected_leave_no_gap(
    still: Engine, registered: Webhook, refusal: int
) -> None:
    await still.finish_call(make_call())
    await still.make_dispatcher(ReceiversByHost(refusal)).run_once()

    assert await states(still) == [DeliveryState.DEAD]
    assert (await still.read_webhook(registered.id)).missed_from is None


async def test_an_open_gap_does_not_hold_the_watermark_back(still: Engine, registered: Webhook) -> None:
    await still.store.write(lambda tx: tx.webhooks.update(replace(registered, missed_from=1), WebhookPart.MISSED))
    await still.finish_call(make_call())
    await still.make_dispatcher(ReceiversByHost()).run_once()
    assert len(await list_gap_envelopes(still)) == 1

    assert await still.store.read(lambda tx: tx.deliveries.lowest_open_seqs([registered.id])) == {}
