"""Webhooks that catch up with the log: tests register them, run the worker, and read what it sent."""

from typing import Any, Final

import orjson

from ringback.domain.catch_up import CatchUp
from ringback.domain.cursor import decode_log_position
from ringback.domain.delivery import Delivery, DeliveryKind
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from tests.support.builders import make_event
from tests.support.engine import Engine
from tests.support.examples import ALICE
from tests.support.whole_deliveries import list_whole_deliveries

FEW: Final = 3
"""Events in a step, where a test is to see many steps."""
SHORT_LOG, LONG_LOG = 1_000, 20_000


async def append(engine: Engine, count: int, **over: Any) -> None:
    """So many events of calls that have expired since."""

    async def work(tx: Transaction) -> None:
        principal = over.get("principal", ALICE)
        first = await tx.events.reserve_seqs(principal, count)
        await tx.events.insert([make_event(**{"seq": first + number} | over) for number in range(count)])

    await engine.store.write(work)


async def start_catch_up(engine: Engine, webhook: Webhook, *, after_seq: int = 0) -> None:
    """Register it, as the service does."""

    async def register(tx: Transaction) -> None:
        await tx.event_log.get_head(webhook.principal, lock=True)
        await tx.webhooks.insert(webhook)
        await engine.catch_ups.begin_catch_up(tx, webhook, after_seq=after_seq)

    await engine.store.write(register)


async def finish_catching_up(engine: Engine) -> int:
    """How many steps it took."""
    worker, steps = engine.make_catch_up_worker(), 0
    while await worker.run_once():
        steps += 1
    return steps


async def read_seq(engine: Engine, webhook: Webhook) -> CatchUp | None:
    return await engine.store.read(lambda tx: tx.catch_ups.get(webhook.id))


async def list_sent_seqs(engine: Engine, webhook: Webhook) -> list[Delivery]:
    """In the order of the log, without gaps: a gap has the place of another event, and a failure of it loses nothing."""
    where = DeliveryFilter(webhook_id=webhook.id)
    found = await engine.store.read(lambda tx: list_whole_deliveries(tx, webhook.principal, where))
    events = [delivery for delivery in found if delivery.kind is not DeliveryKind.GAP]
    return sorted(events, key=lambda delivery: delivery.seq or 0)


async def list_received_seqs(engine: Engine, webhook: Webhook) -> list[int]:
    return [delivery.seq or 0 for delivery in await list_sent_seqs(engine, webhook)]


def parse_cursor(delivery: Delivery) -> int:
    return decode_log_position(orjson.loads(delivery.body)["cursor"]).seq
