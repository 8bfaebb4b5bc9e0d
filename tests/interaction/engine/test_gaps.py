"""A receiver that has lost deliveries gets one gap once it responds again: from where to poll the event log."""

from dataclasses import replace

import httpx
import orjson
import pytest

from ringback.domain.cursor import decode_log_position
from ringback.domain.delivery import DeliveryState
from ringback.domain.webhook import Webhook
from ringback.domain.webhook_rows import WebhookPart
from tests.support.builders import make_call, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.receivers_by_host import CONNECTION_REFUSED, ReceiversByHost
from tests.support.suspensions import AGENT, PROBE_INTERVAL, list_gap_envelopes, run_rounds, states


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


@pytest.mark.requirement("R27")
@pytest.mark.usefixtures("registered")
async def test_a_receiver_that_is_back_learns_once_from_where_to_poll(still: Engine, fake_clock: FakeClock) -> None:
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


async def test_a_gap_that_was_held_to_its_age_is_followed_by_another_one_from_the_same_place(
    still: Engine, fake_clock: FakeClock, registered: Webhook
) -> None:
    """It was given up without an attempt, and the receiver never learned what it had missed."""
    missed = replace(registered, missed_from=1)
    await still.store.write(lambda tx: tx.webhooks.update(missed, WebhookPart.MISSED))
    board = ReceiversByHost()
    await still.finish_call(make_call())
    await run_rounds(still, board, 1)
    assert [gap.state for gap in await list_gap_envelopes(still)] == [DeliveryState.PENDING]

    await still.store.write(lambda tx: tx.webhook_deliveries.hold_pending(registered.id, limit=10))
    fake_clock.advance(2 * 3600)
    await still.make_janitor().run_once()
    await still.finish_call(make_call())
    await run_rounds(still, board, 3)

    given_up, sent = sorted(await list_gap_envelopes(still), key=lambda gap: gap.id)
    assert (given_up.state, sent.state) == (DeliveryState.DEAD, DeliveryState.DELIVERED)
    assert [body["cursor"] for body in board.bodies() if body.get("type") == "gap"] == [
        orjson.loads(given_up.body)["cursor"]
    ]


@pytest.mark.requirement("R27")
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("refusal", [410, 413])
async def test_an_event_that_a_receiver_rejected_permanently_is_lost_and_its_next_success_brings_one_gap(
    still: Engine, refusal: int
) -> None:
    board = ReceiversByHost(refusal)
    await still.finish_call(make_call())
    (rejected,) = await still.read_events()
    await run_rounds(still, board, 1)
    assert await states(still) == [DeliveryState.DEAD]

    board.set_response(AGENT, 204)
    for _ in range(2):
        await still.finish_call(make_call())
        await run_rounds(still, board)

    (gap,) = [body for body in board.bodies() if body.get("type") == "gap"]
    assert decode_log_position(gap["cursor"]).seq == rejected.seq - 1


async def test_a_gap_that_a_receiver_rejects_permanently_brings_no_other(still: Engine, registered: Webhook) -> None:
    await still.store.write(lambda tx: tx.webhooks.update(replace(registered, missed_from=1), WebhookPart.MISSED))

    async def reject_gaps(request: httpx.Request) -> httpx.Response:
        return httpx.Response(410 if b'"gap"' in request.content else 204)

    dispatcher = still.make_dispatcher(reject_gaps)
    for _ in range(2):
        await still.finish_call(make_call())
        while await dispatcher.run_once():
            pass

    (gap,) = await list_gap_envelopes(still)
    assert (gap.state, gap.attempts) == (DeliveryState.DEAD, 1)
    assert (await still.read_webhook(registered.id)).missed_from is None


async def test_an_open_gap_does_not_hold_the_watermark_back(still: Engine, registered: Webhook) -> None:
    await still.store.write(lambda tx: tx.webhooks.update(replace(registered, missed_from=1), WebhookPart.MISSED))
    await still.finish_call(make_call())
    await still.make_dispatcher(ReceiversByHost()).run_once()
    assert len(await list_gap_envelopes(still)) == 1

    assert await still.store.read(lambda tx: tx.deliveries.lowest_open_seqs([registered.id])) == {}
