"""A webhook with a dead delivery, which requests of several nodes send again or erase."""

from datetime import timedelta
from typing import Final

from ringback.domain.call import Call, CallStatus
from ringback.domain.delivery import DeliveryState
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook
from ringback.services.webhooks.registrations import WebhookRegistration
from tests.support.builders import make_call, make_delivery, make_event
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.interleaving import CALLER, Nodes

URL: Final = "http://127.0.0.1:1/callback"


async def insert_dead_delivery(nodes: Nodes, clock: FakeClock) -> tuple[Webhook, Call]:
    webhook = (await nodes.first.services.registrations.register_webhook(CALLER, WebhookRegistration(url=URL))).webhook
    call = make_call(principal=ALICE, status=CallStatus.COMPLETED)

    async def insert(tx: Transaction) -> None:
        await tx.calls.insert(call)
        seq = await tx.events.reserve_seqs(ALICE, 1)
        event = make_event(principal=ALICE, seq=seq, call_id=call.id)
        await tx.events.insert([event])
        delivery = make_delivery(
            webhook_id=webhook.id,
            principal=ALICE,
            call_id=call.id,
            event_id=event.id,
            seq=seq,
            state=DeliveryState.DEAD,
            created_at=clock.now() - timedelta(seconds=5),
        )
        await tx.deliveries.insert([delivery])

    await nodes.first.store.write(insert)
    return webhook, call
