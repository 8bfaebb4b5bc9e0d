"""Calls, webhooks and deliveries in a store, as the engine under test writes and reads them."""

import asyncio
from collections.abc import Sequence
from typing import Final

from ringback.domain.call import Call
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallCompletion, completion_from_result
from ringback.domain.clock import seconds
from ringback.domain.delivery import Attempt, Delivery
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import IdGenerator, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook
from ringback.notifier.recorder import Recorder
from tests.support.examples import ALICE
from tests.support.limits import WAIT_SECONDS
from tests.support.whole_deliveries import list_whole_deliveries

RESULT: Final = b'{"content":[{"type":"text","text":"done"}],"isError":false}'
OWNER: Final = "runner-1"
LEASE_SECONDS: Final = 30.0
COMPLETED_RESULT: Final = completion_from_result(RESULT, is_error=False)


class StoredWork:
    recorder: Recorder
    """Of the subclass: it records the ends of calls."""

    def __init__(self, store: Store, ids: IdGenerator) -> None:
        self.store = store
        self.ids = ids

    async def insert_calls(self, *calls: Call) -> None:
        async def insert(tx: Transaction) -> None:
            for call in calls:
                await tx.calls.insert(call)
            tx.notify("calls")

        await self.store.write(insert)

    async def insert_webhooks(self, *webhooks: Webhook) -> None:
        async def insert(tx: Transaction) -> None:
            for webhook in webhooks:
                await tx.webhooks.insert(webhook)

        await self.store.write(insert)

    async def lease_call(self, call: Call) -> Call:
        """Store a call and lease it, as the runner does."""
        await self.insert_calls(call)
        leased = await self.lease_queued_calls(call.upstream, limit=1)
        assert [each.id for each in leased] == [call.id]
        return leased[0]

    async def lease_queued_calls(self, upstream: str, *, limit: int) -> Sequence[Call]:
        return await self.store.write(
            lambda tx: tx.call_queue.lease_queued(
                upstream,
                owner=OWNER,
                token=self.ids.new_lease_token(),
                until=tx.now() + seconds(LEASE_SECONDS),
                limit=limit,
            )
        )

    async def finish_call(self, call: Call, ending: CallCompletion = COMPLETED_RESULT) -> Call:
        """Store a call that has just ended, with its event and deliveries."""
        await self.insert_calls(call)
        ended = await self.store.write(lambda tx: self.recorder.finish_call(tx, call, ending, lease_token=None))
        assert ended is not None
        return ended

    async def cancel_call(self, call: Call) -> None:
        """End a queued call, as a cancellation does."""
        await self.store.write(lambda tx: self.recorder.finish_call(tx, call, CANCELLED_COMPLETION, lease_token=None))

    async def insert_deliveries(self, *deliveries: Delivery) -> None:
        async def insert(tx: Transaction) -> None:
            await tx.deliveries.insert(deliveries)
            tx.notify(DELIVERY_DUE_TOPIC)

        await self.store.write(insert)

    async def read_call(self, call: Call) -> Call:
        found = await self.store.read(lambda tx: tx.calls.get(call.id))
        assert found is not None
        return found

    async def read_result(self, call: Call) -> bytes | None:
        return await self.store.read(lambda tx: tx.call_completions.get_result(call.id))

    async def read_webhook(self, webhook_id: WebhookId) -> Webhook:
        found = await self.store.read(lambda tx: tx.webhooks.get(webhook_id))
        assert found is not None
        return found

    async def read_events(self, principal: Principal = ALICE) -> Sequence[Event]:
        return await self.store.read(lambda tx: tx.events.list_after(principal, 0, EventFilter(), limit=1000))

    async def read_deliveries(self, principal: Principal = ALICE) -> list[Delivery]:
        """In the order of the log."""
        found = await self.store.read(lambda tx: list_whole_deliveries(tx, principal))
        return sorted(found, key=lambda delivery: delivery.seq or 0)

    async def read_delivery(self, delivery: Delivery) -> Delivery:
        (found,) = await self.store.read(lambda tx: tx.deliveries.list_whole([delivery.id], bytes_max=2**40))
        return found

    async def read_attempts(self, delivery: Delivery) -> Sequence[Attempt]:
        """Newest first."""
        return await self.store.read(lambda tx: tx.deliveries.list_attempts(delivery.id))

    async def wait_until_final(self, *calls: Call) -> list[Call]:
        """Wait until the calls end, and return them."""
        async with asyncio.timeout(WAIT_SECONDS):
            return [await self._wait_until_final(call) for call in calls]

    async def _wait_until_final(self, call: Call) -> Call:
        with self.store.signals.listen(f"call:{call.id}") as waiter:
            while not (found := await self.read_call(call)).is_final:
                await waiter.wait(WAIT_SECONDS)
            return found
