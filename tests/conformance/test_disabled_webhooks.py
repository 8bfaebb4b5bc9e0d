"""A disabled webhook keeps its open deliveries, and they are sent once it is enabled."""

from datetime import timedelta

from ringback.domain.delivery import DeliveryState
from ringback.domain.webhook import WebhookState
from ringback.services.webhooks.webhook_changes import WebhookChange
from tests.support.builders import make_delivery, make_verified_webhook
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
