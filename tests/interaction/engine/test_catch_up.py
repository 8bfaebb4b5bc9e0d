"""A webhook with an old cursor receives what the log already holds, step by step, until it is removed."""

from dataclasses import replace

import orjson
import pytest

from ringback.domain.catch_up import STEP_EVENTS_MAX
from ringback.domain.event import EventName
from ringback.domain.webhook import WebhookState
from ringback.domain.webhook_rows import WebhookPart
from tests.support.builders import make_call, make_webhook
from tests.support.catch_ups import (
    FEW,
    append,
    finish_catching_up,
    list_received_seqs,
    list_sent_seqs,
    read_seq,
    start_catch_up,
)
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.stored_work import RESULT


async def test_a_new_webhook_gets_the_events_after_its_cursor_only(still: Engine) -> None:
    for _ in range(5):
        await still.finish_call(make_call())
    webhook = make_webhook()

    await start_catch_up(still, webhook, after_seq=2)
    await still.finish_call(make_call())

    assert await read_seq(still, webhook) is None
    assert await list_received_seqs(still, webhook) == [3, 4, 5, 6]


@pytest.mark.requirement("R16")
async def test_a_webhook_for_one_call_gets_that_calls_events_only(still: Engine) -> None:
    await still.finish_call(make_call())
    call = await still.finish_call(make_call())
    await still.finish_call(make_call())
    webhook = make_webhook(call_id=call.id, include_result=True)

    await start_catch_up(still, webhook)

    (delivery,) = await list_sent_seqs(still, webhook)
    assert delivery.call_id == call.id
    assert orjson.loads(delivery.body)["data"]["result"] == orjson.loads(RESULT)


@pytest.mark.parametrize("filters", [{}, {"client_session_id": "another"}])
async def test_a_webhook_that_catches_up_gets_a_call_that_names_it_once(
    still: Engine, short_steps: None, filters: dict[str, str]
) -> None:
    for _ in range(2 * FEW):
        await still.finish_call(make_call())
    webhook, call = make_webhook(**filters), make_call()
    await start_catch_up(still, webhook)
    assert await read_seq(still, webhook) is not None

    await still.store.write(lambda tx: tx.call_webhooks.add(call.id, webhook.id))
    await still.finish_call(call)
    await finish_catching_up(still)

    received = await list_sent_seqs(still, webhook)
    assert [each.call_id for each in received].count(call.id) == 1
    assert len(received) == (1 if filters else 2 * FEW + 1)


async def test_the_event_of_an_expired_call_is_sent_without_a_resume_token(
    still: Engine, fake_clock: FakeClock
) -> None:
    call = await still.finish_call(make_call())
    fake_clock.advance(8 * 86400)
    await still.make_janitor().run_once()
    webhook = make_webhook(call_id=call.id)

    await start_catch_up(still, webhook)

    (delivery,) = await list_sent_seqs(still, webhook)
    assert "resume_token" not in orjson.loads(delivery.body)["data"]


async def test_a_long_log_is_sent_in_steps_to_its_end(still: Engine) -> None:
    await append(still, 2 * STEP_EVENTS_MAX + 1, upstream="git")
    await append(still, STEP_EVENTS_MAX, upstream="time")
    webhook = make_webhook(upstream="git")

    await start_catch_up(still, webhook)

    assert len(await list_received_seqs(still, webhook)) == STEP_EVENTS_MAX
    assert await finish_catching_up(still) == 3
    assert await list_received_seqs(still, webhook) == list(range(1, 2 * STEP_EVENTS_MAX + 2))
    assert await read_seq(still, webhook) is None


@pytest.mark.usefixtures("short_steps")
async def test_a_webhook_of_one_call_receives_its_many_events_step_by_step(still: Engine) -> None:
    call = make_call()
    await append(still, 7, call_id=call.id, name=EventName.CALL_PROGRESS)
    await append(still, 7)
    webhook = make_webhook(call_id=call.id, events=frozenset({EventName.CALL_PROGRESS}))

    await start_catch_up(still, webhook)

    assert await list_received_seqs(still, webhook) == [1, 2, 3]
    await finish_catching_up(still)
    assert await list_received_seqs(still, webhook) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.usefixtures("short_steps")
async def test_a_webhook_whose_removal_has_begun_receives_no_more_past_events(still: Engine) -> None:
    """It is disabled until its last delivery is cancelled."""
    await append(still, 9)
    webhook = make_webhook()
    await start_catch_up(still, webhook)

    disabled = replace(webhook, state=WebhookState.DISABLED)
    await still.store.write(lambda tx: tx.webhooks.update(disabled, WebhookPart.STATE))

    assert await finish_catching_up(still) == 0
    assert await list_received_seqs(still, webhook) == [1, 2, 3]


@pytest.mark.usefixtures("short_steps")
async def test_a_webhook_that_is_removed_between_look_and_step_is_let_alone(still: Engine) -> None:
    await append(still, 9)
    webhook = make_webhook()
    await start_catch_up(still, webhook)
    place = await read_seq(still, webhook)
    assert place is not None

    await still.store.write(lambda tx: tx.webhooks.delete(webhook.id))
    await still.store.write(lambda tx: still.catch_ups.continue_catch_up(tx, place))

    assert await list_received_seqs(still, webhook) == [1, 2, 3]
    assert await finish_catching_up(still) == 0
