"""The client's methods about webhooks and deliveries."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from ringback.client.arguments import check_header_value, quote_path_segment
from ringback.client.options import NamedWebhookOptions, RedeliveryOptions, WebhookChange, WebhookOptions
from ringback.client.resource_client import ResourceClient, without_none
from ringback.lazy_names import LazyModule

if TYPE_CHECKING:
    from ringback.client import webhook_models
else:
    webhook_models = LazyModule("ringback.client.webhook_models")


class WebhookMethods(ResourceClient):
    async def register_webhook(
        self, url: str, *, idempotency_key: str | None = None, **options: Unpack[WebhookOptions]
    ) -> webhook_models.RegisteredWebhook:
        """Register a callback URL. Once this returns, every matching event is delivered to it.

        With an idempotency key the registration is repeated when its response is lost. A repetition returns the same webhook.
        """
        return await self._transport.fetch_model(
            webhook_models.RegisteredWebhook,
            "POST",
            "/v1/webhooks",
            body={"url": url, **options},
            headers=_idempotency_headers(idempotency_key),
            repeatable=idempotency_key is not None,
        )

    async def put_webhook(
        self, name: str, url: str, **options: Unpack[NamedWebhookOptions]
    ) -> webhook_models.RegisteredWebhook:
        """Register a callback URL under a name of yours, for example at every start of a process: it is one webhook.

        The webhook gets exactly these settings. The returned `secret` is None unless this creates the webhook without a secret
        of yours. With your own secret the request is repeated when its response is lost.
        """
        return await self._transport.fetch_model(
            webhook_models.RegisteredWebhook,
            "PUT",
            _named_path(name),
            body={"url": url, **options},
            repeatable=options.get("secret") is not None,  # a lost response would lose a generated secret
        )

    async def named_webhook(self, name: str) -> webhook_models.Webhook:
        return await self._transport.fetch_model(webhook_models.Webhook, "GET", _named_path(name))

    async def delete_named_webhook(self, name: str) -> None:
        """Remove the webhook of this name and cancel its undelivered callbacks."""
        await self._transport.send_request("DELETE", _named_path(name))

    async def webhooks(
        self, *, health: str | None = None, state: str | None = None
    ) -> AsyncGenerator[webhook_models.Webhook]:
        """Your webhooks, newest first. With `health="failing"`, those whose last attempt or challenge failed.

        `state`: those that are active, pending_verification, suspended or disabled.
        """
        async for page in self._iterate_pages(
            webhook_models.WebhookPage, "/v1/webhooks", {"health": health, "state": state}
        ):
            for webhook in page.webhooks:
                yield webhook

    async def webhook(self, webhook_id: str) -> webhook_models.Webhook:
        return await self._transport.fetch_model(webhook_models.Webhook, "GET", _webhook_path(webhook_id))

    async def change_webhook(self, webhook_id: str, **change: Unpack[WebhookChange]) -> webhook_models.ChangedWebhook:
        """Change the given members of a webhook.

        A new URL, `state="active"` and `paused=False` make its pending deliveries due now. `state="disabled"` and `paused=True`
        hold its open deliveries; only `paused=True` also holds those of events that happen meanwhile.
        """
        return await self._transport.fetch_model(
            webhook_models.ChangedWebhook, "PATCH", _webhook_path(webhook_id), body=dict(change)
        )

    async def delete_webhook(self, webhook_id: str) -> None:
        """Remove a webhook and cancel its undelivered callbacks."""
        await self._transport.send_request("DELETE", _webhook_path(webhook_id))

    async def verify_webhook(self, webhook_id: str) -> webhook_models.ChangedWebhook:
        """Send a challenge to the webhook's URL now, and make its pending deliveries due.

        `state` says whether the challenge was answered, `last_error` why not.
        """
        return await self._transport.fetch_model(
            webhook_models.ChangedWebhook, "POST", _webhook_path(webhook_id, "/verify")
        )

    async def test_webhook(self, webhook_id: str) -> webhook_models.RequestedDelivery:
        """Send a signed `webhook.test` to the webhook now, before its other deliveries.

        `delivery(test.id)` shows the outcome.
        """
        return await self._transport.fetch_model(
            webhook_models.RequestedDelivery, "POST", _webhook_path(webhook_id, "/test")
        )

    async def rotate_secret(
        self, webhook_id: str, *, secret: str | None = None, overlap_seconds: float | None = None
    ) -> webhook_models.RotatedWebhook:
        """Give the webhook a new signing secret. Earlier ones also sign for the overlap (default: a day; 0 ends them now)."""
        body = without_none({"secret": secret, "overlap_seconds": overlap_seconds})
        return await self._transport.fetch_model(
            webhook_models.RotatedWebhook, "POST", _webhook_path(webhook_id, "/rotate-secret"), body=body
        )

    async def replay_webhook(
        self,
        webhook_id: str,
        *,
        since: datetime | None = None,
        cursor: str | None = None,
        dead: bool = False,
        dry_run: bool = False,
    ) -> webhook_models.Replay:
        """Send the webhook's callbacks again: since a time, after a cursor, or (`dead`) all that were given up.

        Bodies and webhook-ids are unchanged. At most 10,000 at once; `more` says whether there are others. The webhook's other
        pending deliveries are due now. With `dry_run` nothing changes.
        """
        body = without_none(
            {"since": since and since.isoformat(), "cursor": cursor, "dead": dead or None, "dry_run": dry_run or None}
        )
        return await self._transport.fetch_model(
            webhook_models.Replay, "POST", _webhook_path(webhook_id, "/replay"), body=body
        )

    async def deliveries(
        self,
        *,
        state: str | None = None,
        webhook_id: str | None = None,
        call_id: str | None = None,
        category: str | None = None,
        min_attempts: int | None = None,
        latest: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        id_prefix: str | None = None,
    ) -> AsyncGenerator[webhook_models.Delivery]:
        """The deliveries to your webhooks, newest first.

        `category` is how the last attempt ended. `latest`, with `state="dead"`: only those that were not sent again. `since`
        and `until` are about the creation of a delivery.
        """
        where = {
            "state": state,
            "webhook_id": webhook_id,
            "call_id": call_id,
            "category": category,
            "min_attempts": min_attempts,
            "latest": "true" if latest else None,
            "since": since and since.isoformat(),
            "until": until and until.isoformat(),
            "id_prefix": id_prefix,
        }
        async for page in self._iterate_pages(webhook_models.DeliveryPage, "/v1/deliveries", where):
            for delivery in page.deliveries:
                yield delivery

    async def delivery(self, delivery_id: str) -> webhook_models.DeliveryDetail:
        """A delivery with its attempts."""
        return await self._transport.fetch_model(webhook_models.DeliveryDetail, "GET", _delivery_path(delivery_id))

    async def redeliver(self, delivery_id: str) -> webhook_models.RequestedDelivery:
        """Send a delivery again now. If it is still open, its next attempt is made now."""
        return await self._transport.fetch_model(
            webhook_models.RequestedDelivery, "POST", _delivery_path(delivery_id, "/redeliver")
        )

    async def redeliver_many(self, **options: Unpack[RedeliveryOptions]) -> webhook_models.Redelivery:
        """Send the deliveries again that match all options, at most 2,000 at once: by default, the dead ones.

        The other pending deliveries of their webhooks are due now.
        """
        return await self._transport.fetch_model(
            webhook_models.Redelivery, "POST", "/v1/deliveries/redeliver", body=dict(options)
        )


def _named_path(name: str) -> str:
    return f"/v1/webhooks/by-name/{quote_path_segment(name, 'name')}"


def _idempotency_headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"idempotency-key": check_header_value(key, what="The idempotency key")}


def _webhook_path(webhook_id: str, rest: str = "") -> str:
    return f"/v1/webhooks/{quote_path_segment(webhook_id, 'webhook_id')}{rest}"


def _delivery_path(delivery_id: str, rest: str = "") -> str:
    return f"/v1/deliveries/{quote_path_segment(delivery_id, 'delivery_id')}{rest}"
