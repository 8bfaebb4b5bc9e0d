"""A webhook with thousands of open deliveries is removed in batches, so that other transactions do not wait."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx
import pytest

from ringback.domain.delivery import DeliveryState
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.webhook import WebhookState
from ringback.services.webhooks.webhook_updates import CANCELLED_DELIVERIES_BATCH_SIZE
from tests.support.builders import make_delivery
from tests.support.service import CALLBACK_URL, ServiceUnderTest

HELD: Final = 2 * CANCELLED_DELIVERIES_BATCH_SIZE + CANCELLED_DELIVERIES_BATCH_SIZE // 2


async def register(service: ServiceUnderTest, client: httpx.AsyncClient, *, held: int) -> WebhookId:
    """A webhook with this number of held deliveries."""
    webhook_id = WebhookId((await client.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"])
    deliveries = [
        make_delivery(webhook_id=webhook_id, state=DeliveryState.HELD, seq=number, call_id=None)
        for number in range(held)
    ]
    await service.store.write(lambda tx: tx.deliveries.insert(deliveries))
    return webhook_id


async def count_held(service: ServiceUnderTest, webhook_id: WebhookId) -> int:
    return await service.store.read(lambda tx: tx.webhook_deliveries.count_held(webhook_id, limit=HELD))


async def state(service: ServiceUnderTest, webhook_id: WebhookId) -> WebhookState | None:
    webhook = await service.store.read(lambda tx: tx.webhooks.get(webhook_id))
    return None if webhook is None else webhook.state


class WriteObserver:
    """Replaces `store.write`: records the open deliveries after each unit of work, and fails after `units` of them."""

    def __init__(self, service: ServiceUnderTest, webhook_id: WebhookId, *, units: int) -> None:
        self._service, self._webhook_id, self._units = service, webhook_id, units
        self._write = service.store.write
        self.left: list[tuple[int, WebhookState | None]] = []

    async def write(self, work: Callable[[Transaction], Awaitable[Any]]) -> Any:
        if len(self.left) == self._units:
            raise StoreUnavailable("The process is gone.")
        value = await self._write(work)
        self.left.append(
            (await count_held(self._service, self._webhook_id), await state(self._service, self._webhook_id))
        )
        return value


async def test_no_transaction_cancels_more_than_one_batch_of_a_removed_webhooks_deliveries(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook_id = await register(service, alice, held=HELD)
    watched = WriteObserver(service, webhook_id, units=10)
    monkeypatch.setattr(service.store, "write", watched.write)

    removed = await alice.delete(f"/v1/webhooks/{webhook_id}")

    assert removed.status_code == 204
    assert watched.left == [
        (HELD - CANCELLED_DELIVERIES_BATCH_SIZE, WebhookState.DISABLED),
        (HELD - 2 * CANCELLED_DELIVERIES_BATCH_SIZE, WebhookState.DISABLED),
        (0, None),
    ]


async def test_a_webhook_whose_removal_was_interrupted_is_disabled_and_can_be_removed_again(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook_id = await register(service, alice, held=HELD)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(service.store, "write", WriteObserver(service, webhook_id, units=1).write)
        assert (await alice.delete(f"/v1/webhooks/{webhook_id}")).status_code == 503

    assert await state(service, webhook_id) is WebhookState.DISABLED
    assert (await alice.delete(f"/v1/webhooks/{webhook_id}")).status_code == 204
    assert (await count_held(service, webhook_id), await state(service, webhook_id)) == (0, None)


async def test_removal_never_disables_a_webhook_that_waits_for_a_proof(
    service: ServiceUnderTest, alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook_id = await register(service, alice, held=HELD)
    await service.set_webhook_state(webhook_id, WebhookState.PENDING_VERIFICATION)
    watched = WriteObserver(service, webhook_id, units=10)
    monkeypatch.setattr(service.store, "write", watched.write)

    assert (await alice.delete(f"/v1/webhooks/{webhook_id}")).status_code == 204

    waiting = WebhookState.PENDING_VERIFICATION
    assert [left for _, left in watched.left] == [waiting, waiting, None]
