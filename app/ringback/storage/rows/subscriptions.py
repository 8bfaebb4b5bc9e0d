"""Event subscriptions, which stay as tombstones after their webhooks."""

from collections.abc import Sequence
from datetime import datetime

from ringback.domain.event_subscriptions import EventSubscription
from ringback.domain.ids import KeyId, WebhookId
from ringback.domain.principal import Principal
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.unit import SqlRows


class SqlSubscriptions(SqlRows, noun="subscriptions"):
    """Implements `domain.event_subscriptions.SubscriptionRows`."""

    async def get(self, subscription_id: WebhookId) -> EventSubscription | None:
        return await self._sql.fetch_record("get", RECORDS.event_subscription, id=subscription_id)

    async def save(self, subscription: EventSubscription) -> None:
        await self._sql.execute("save", **RECORDS.event_subscription.encode(subscription))

    async def count_live(self, principal: Principal) -> int:
        row = await self._sql.fetch_one("count_live", principal=principal)
        return 0 if row is None else row["live"]

    async def list_keys(self, *, after: str, limit: int) -> Sequence[KeyId]:
        return [KeyId(row["key_id"]) for row in await self._sql.fetch_all("keys", after=after, limit=limit)]

    async def list_of_key(self, key_id: KeyId, *, limit: int) -> Sequence[WebhookId]:
        return [WebhookId(row["id"]) for row in await self._sql.fetch_all("of_key", key_id=key_id, limit=limit)]

    async def list_event_names(self, *, after: str, limit: int) -> Sequence[str]:
        return [row["event_name"] for row in await self._sql.fetch_all("event_names", after=after, limit=limit)]

    async def list_of_event(self, event_name: str, *, limit: int) -> Sequence[WebhookId]:
        rows = await self._sql.fetch_all("of_event", event_name=event_name, limit=limit)
        return [WebhookId(row["id"]) for row in rows]

    async def remove_ended(self, *, cutoff: datetime, limit: int) -> int:
        return await self._sql.execute("remove_ended", older_than=instant_to_column(cutoff), limit=limit)
