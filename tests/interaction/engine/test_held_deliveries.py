"""Deliveries for suspended webhooks are held within bounds, and released when a probe succeeds."""

from dataclasses import replace

import orjson
import pytest

from ringback.domain import webhook_health as health
from ringback.domain.call import Progress
from ringback.domain.cursor import decode_log_position
from ringback.domain.delivery import DeliveryState
from ringback.domain.event import EventName
from ringback.domain.webhook import WebhookState
from ringback.domain.webhook_rows import WebhookPart
from tests.support.builders import make_call, make_delivery, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.receivers_by_host import ReceiversByHost
from tests.support.suspensions import AGENT, PROBE_INTERVAL, list_gap_envelopes, run_rounds, states, suspend_webhook


async def test_deliveries_for_a_suspended_webhook_are_held_and_not_sent(still: Engine) -> None:
    board = ReceiversByHost(500)
    await suspend_webhook(still, board)

    await still.finish_call(make_call())
    await run_rounds(still, board)

    assert await states(still) == [DeliveryState.PENDING, DeliveryState.HELD]
    assert len(board.posts) == 1


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

    janitor = still.make_janitor()
    while await janitor.run_once():
        pass

    assert await states(still) == [DeliveryState.PENDING] * held


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
