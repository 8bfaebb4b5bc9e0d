"""The client's methods about webhooks and deliveries."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Unpack

from ringback.client.models import (
    Delivery,
    DeliveryDetail,
    DeliveryPage,
    RegisteredWebhook,
    Replay,
    RotatedWebhook,
    Webhook,
    WebhookPage,
)
from ringback.client.options import WebhookChange, WebhookOptions
from ringback.client.resource_client import ResourceClient, quote_path_segment, without_none


class WebhookMethods(ResourceClient):
    async def register_webhook(self, url: str, **options: Unpack[WebhookOptions]) -> RegisteredWebhook:
        """Register a callback URL. Once this returns, every matching event is delivered to it."""
        return await self._transport.fetch_model(
            RegisteredWebhook, "POST", "/v1/webhooks", body={"url": url, **options}
        )

    async def webhooks(self) -> AsyncGenerator[Webhook]:
        """Your webhooks, newest first."""
        async for page in self._iterate_pages(WebhookPage, "/v1/webhooks", {}):
            for webhook in page.webhooks:
                yield webhook

    async def webhook(self, webhook_id: str) -> Webhook:
        return await self._transport.fetch_model(Webhook, "GET", f"/v1/webhooks/{quote_path_segment(webhook_id)}")

    async def change_webhook(self, webhook_id: str, **change: Unpack[WebhookChange]) -> Webhook:
        """Change the given members of a webhook."""
        return await self._transport.fetch_model(
            Webhook, "PATCH", f"/v1/webhooks/{quote_path_segment(webhook_id)}", body=dict(change)
        )

    async def delete_webhook(self, webhook_id: str) -> None:
        """Remove a webhook and cancel its undelivered callbacks."""
        await self._transport.send_request("DELETE", f"/v1/webhooks/{quote_path_segment(webhook_id)}")

    async def verify_webhook(self, webhook_id: str) -> Webhook:
        """Send a challenge to the webhook's URL now. `state` says whether it was answered, `last_error` why not."""
        return await self._transport.fetch_model(
            Webhook, "POST", f"/v1/webhooks/{quote_path_segment(webhook_id)}/verify"
        )

    async def test_webhook(self, webhook_id: str) -> Delivery:
        """Send a signed `webhook.test` to the webhook. `delivery(test.id)` shows the outcome."""
        return await self._transport.fetch_model(
            Delivery, "POST", f"/v1/webhooks/{quote_path_segment(webhook_id)}/test"
        )

    async def rotate_secret(
        self, webhook_id: str, *, secret: str | None = None, overlap_seconds: float | None = None
    ) -> RotatedWebhook:
        """Give the webhook a new signing secret. Earlier ones also sign for the overlap (default: a day; 0 ends them now)."""
        body = without_none({"secret": secret, "overlap_seconds": overlap_seconds})
        return await self._transport.fetch_model(
            RotatedWebhook, "POST", f"/v1/webhooks/{quote_path_segment(webhook_id)}/rotate-secret", body=body
        )

    async def replay_webhook(
        self, webhook_id: str, *, since: datetime | None = None, cursor: str | None = None, dead: bool = False
    ) -> Replay:
        """Send the webhook's callbacks again: since a time, after a cursor, or (`dead`) all that were given up.

        Bodies and webhook-ids are unchanged. At most 10,000 at once; `more` says whether there are others.
        """
        body = without_none({"since": since and since.isoformat(), "cursor": cursor, "dead": dead or None})
        return await self._transport.fetch_model(
            Replay, "POST", f"/v1/webhooks/{quote_path_segment(webhook_id)}/replay", body=body
        )

    async def deliveries(
        self, *, state: str | None = None, webhook_id: str | None = None, call_id: str | None = None
    ) -> AsyncGenerator[Delivery]:
        """The deliveries to your webhooks, newest first."""
        where = {"state": state, "webhook_id": webhook_id, "call_id": call_id}
        async for page in self._iterate_pages(DeliveryPage, "/v1/deliveries", where):
            for delivery in page.deliveries:
                yield delivery

    async def delivery(self, delivery_id: str) -> DeliveryDetail:
        """A delivery with its attempts."""
        return await self._transport.fetch_model(
            DeliveryDetail, "GET", f"/v1/deliveries/{quote_path_segment(delivery_id)}"
        )

    async def redeliver(self, delivery_id: str) -> Delivery:
        """Send a delivery again. Returns the open delivery if there is one already."""
        return await self._transport.fetch_model(
            Delivery, "POST", f"/v1/deliveries/{quote_path_segment(delivery_id)}/redeliver"
        )
