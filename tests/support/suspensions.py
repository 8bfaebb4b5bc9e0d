"""Webhooks whose receivers fail for so long that they are suspended."""

from datetime import timedelta

from ringback.domain import webhook_health as health
from ringback.domain.circuit_breaker import SUSPENDED_BREAKER_POLICY
from ringback.domain.delivery import Delivery, DeliveryKind, DeliveryState
from ringback.domain.webhook import Webhook, WebhookState
from tests.support.builders import make_call, make_webhook
from tests.support.clock import START
from tests.support.engine import Engine
from tests.support.receivers_by_host import ReceiversByHost

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


async def list_gap_envelopes(engine: Engine) -> list[Delivery]:
    return [delivery for delivery in await engine.read_deliveries() if delivery.kind is DeliveryKind.GAP]
