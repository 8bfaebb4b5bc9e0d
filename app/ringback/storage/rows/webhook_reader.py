"""Reads rows as webhooks, and remembers what it read."""

import logging
from dataclasses import replace
from typing import Any, Final

from ringback.domain.encryption import Sealer
from ringback.domain.webhook import Webhook, with_unreadable_secrets
from ringback.signing.sealing import UnsealError
from ringback.storage.records import decode_headers
from ringback.storage.rows.columns import RECORDS
from ringback.storage.rows.statements import Row

log = logging.getLogger(__name__)

WEBHOOK_CACHE_MAX: Final = 4096
"""Decoded webhooks, some 2 KB each. Decoding one takes 25 µs, comparing its row 2 (measured)."""
NO_SECRETS: Final = b"[]"
"""What the secrets of a webhook without readable secrets are encoded as."""


class CachingWebhookReader:
    """Decodes webhooks, and each version of a row once.

    Every event reads all webhooks that it may match, and few of them have changed. The cache compares whole rows, so it never
    returns what was rolled back, or what another process has changed.
    """

    def __init__(self, sealer: Sealer, *, is_shared: bool = False) -> None:
        """With `is_shared`, a webhook keeps its state if its secrets cannot be read here: other nodes may read them."""
        self._sealer = sealer
        self._is_shared = is_shared
        self._cache: dict[str, tuple[tuple[Any, ...], Webhook]] = {}

    def read_webhook(self, row: Row, columns: tuple[Any, ...] | None = None) -> Webhook:
        """`columns` are the webhook's own, if the row has more."""
        columns = columns or tuple(row)
        cached = self._cache.pop(row["id"], None)  # re-inserted below as the most recently used
        if cached is None or cached[0] != columns:
            cached = columns, self._decode(row)
            if len(self._cache) >= WEBHOOK_CACHE_MAX:
                del self._cache[next(iter(self._cache))]
        self._cache[row["id"]] = cached
        return cached[1]

    def _decode(self, row: Row) -> Webhook:
        try:
            secrets = self._sealer.unseal(row["secrets"], associated_data=secrets_associated_data(row["id"]))
        except UnsealError:
            log.warning("webhook.secrets_unreadable", extra={"webhook_id": row["id"]})
            webhook = RECORDS.webhook.decode(row, secrets=NO_SECRETS)
            return webhook if self._is_shared else with_unreadable_secrets(webhook)
        webhook = RECORDS.webhook.decode(row, secrets=secrets)
        headers = decode_headers(secrets)
        return replace(webhook, headers=headers) if headers else webhook


def secrets_associated_data(webhook_id: str) -> str:
    return f"webhooks/{webhook_id}/secrets"
