"""What a unit of work sees of PostgreSQL."""

from datetime import datetime
from functools import partial

from ringback.domain.encryption import Sealer
from ringback.domain.ports import PROBE_BYTES
from ringback.storage.postgres.log_appends import PostgresLogAppends
from ringback.storage.postgres.merged_rows import (
    PostgresCallQueue,
    PostgresCalls,
    PostgresDeliveries,
    PostgresDeliveryQueue,
    PostgresWebhooks,
)
from ringback.storage.postgres.statements import UnitConnection, open_statements
from ringback.storage.rows.transaction import SqlTransaction
from ringback.storage.rows.unit import SqlRows, UnitContext
from ringback.storage.rows.webhook_reader import CachingWebhookReader


class PostgresWriteProbe(SqlRows, noun="write_probe"):
    """Implements `domain.ports.WriteProbe`. Only the server knows how full its disk is, and says so when it refuses."""

    async def write_probe_row(self) -> None:
        await self._sql.fetch_all("use_sequence")
        await self._sql.execute("write", bytes=PROBE_BYTES)


class PostgresTransaction(SqlTransaction):
    write_probe: PostgresWriteProbe
    log_appends: PostgresLogAppends
    calls: PostgresCalls
    call_queue: PostgresCallQueue
    webhooks: PostgresWebhooks
    deliveries: PostgresDeliveries
    delivery_queue: PostgresDeliveryQueue

    def __init__(
        self,
        connection: UnitConnection,
        *,
        sealer: Sealer,
        webhook_reader: CachingWebhookReader,
        now: datetime,
        confirmed_now: datetime,
    ) -> None:
        super().__init__(UnitContext(partial(open_statements, connection), sealer, webhook_reader, now, confirmed_now))
