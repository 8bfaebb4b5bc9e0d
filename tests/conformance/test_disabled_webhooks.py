"""A disabled webhook keeps its open deliveries, and those of past events, and they are sent once it is enabled."""

from datetime import timedelta

import pytest

from ringback.domain.catch_up import STEP_EVENTS_MAX
from ringback.domain.delivery import DeliveryState
from ringback.domain.ports import Transaction
from ringback.domain.webhook import WebhookState
from ringback.services.webhooks import webhook_updates
from ringback.services.webhooks.webhook_changes import WebhookChange
from tests.support.builders import make_delivery, make_verified_webhook
from tests.support.catch_ups import append, finish_catching_up, list_received_seqs, read_seq, start_catch_up
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.interleaving import CALLER, Nodes
from tests.support.scripted_receiver import ScriptedReceiver


async def test_deliveries_of_a_disabled_webhook_are_held_while_they_fall_due_and_are_sent_after_its_enable(
    nodes: Nodes, clock: FakeClock
) -> None:
    """They were cancelled as they fell due: an operator who disabled a failing webhook for some seconds lost them."""
    node, receiver = nodes.first, ScriptedReceiver(204, 204)
    engine = Engine(node.store, clock)
    webhook = make_verified_webhook()
    due, later = (
        make_delivery(webhook_id=webhook.id, seq=seq, attempts=1, due_at=clock.now() + timedelta(seconds=10 * seq))
        for seq in (0, 1)
    )
    await engine.insert_webhooks(webhook)
    await engine.insert_deliveries(due, later)
    dispatcher = engine.make_dispatcher(receiver)

    await node.services.webhooks.change_webhook(CALLER, webhook.id, WebhookChange(state=WebhookState.DISABLED))
    clock.advance(20)
    attempts_while_disabled = await dispatcher.run_once()
    held = {each.state for each in await engine.read_deliveries()}
    await node.services.webhooks.change_webhook(CALLER, webhook.id, WebhookChange(state=WebhookState.ACTIVE))
    while await dispatcher.run_once():
        pass

    assert (attempts_while_disabled, held) == (0, {DeliveryState.HELD})
    assert {each.state for each in await engine.read_deliveries()} == {DeliveryState.DELIVERED}


async def test_a_webhook_that_is_disabled_while_it_catches_up_gets_all_past_events_once_it_is_enabled(
    nodes: Nodes, clock: FakeClock
) -> None:
    """It lost the rest, however soon it was enabled again: nothing said so, and no replay sends what has no delivery."""
    node, receiver = nodes.first, ScriptedReceiver(204)
    engine, webhook = Engine(node.store, clock), make_verified_webhook()
    await append(engine, 3 * STEP_EVENTS_MAX)
    await start_catch_up(engine, webhook)

    await node.services.webhooks.change_webhook(CALLER, webhook.id, WebhookChange(state=WebhookState.DISABLED))
    steps = await finish_catching_up(engine)
    await append(engine, 1)
    held = {each.state for each in await engine.read_deliveries()}
    await node.services.webhooks.change_webhook(CALLER, webhook.id, WebhookChange(state=WebhookState.ACTIVE))
    await finish_catching_up(engine)
    while await engine.make_dispatcher(receiver).run_once():
        pass

    assert (steps, held) == (2, {DeliveryState.HELD})
    assert await list_received_seqs(engine, webhook) == list(range(1, 3 * STEP_EVENTS_MAX + 1))
    assert {each.state for each in await engine.read_deliveries()} == {DeliveryState.DELIVERED}


async def test_a_webhook_that_is_enabled_before_it_has_caught_up_gets_what_happens_meanwhile_too(
    nodes: Nodes, clock: FakeClock
) -> None:
    node = nodes.first
    engine, webhook = Engine(node.store, clock), make_verified_webhook()
    await append(engine, 2 * STEP_EVENTS_MAX)
    await start_catch_up(engine, webhook)

    for state in (WebhookState.DISABLED, WebhookState.ACTIVE):
        await node.services.webhooks.change_webhook(CALLER, webhook.id, WebhookChange(state=state))
    await append(engine, 1)
    await finish_catching_up(engine)

    assert await list_received_seqs(engine, webhook) == list(range(1, 2 * STEP_EVENTS_MAX + 2))
    assert {each.state for each in await engine.read_deliveries()} == {DeliveryState.PENDING}


async def test_the_removal_of_a_disabled_webhook_ends_its_catch_up_with_its_first_batch(
    nodes: Nodes, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL it went on: each step inserted deliveries, which the removal had to cancel."""
    monkeypatch.setattr(webhook_updates, "CANCELLED_DELIVERIES_BATCH_SIZE", 1)
    node = nodes.first
    engine, webhook = Engine(node.store, clock), make_verified_webhook()
    await append(engine, 2 * STEP_EVENTS_MAX)
    await start_catch_up(engine, webhook)
    await node.services.webhooks.change_webhook(CALLER, webhook.id, WebhookChange(state=WebhookState.DISABLED))

    async def remove_batch(tx: Transaction) -> bool:
        disabled = await tx.webhooks.get(webhook.id)
        return disabled is None or await webhook_updates.remove_webhook_batch(tx, disabled)

    assert await node.store.write(remove_batch) is False
    assert await read_seq(engine, webhook) is None
