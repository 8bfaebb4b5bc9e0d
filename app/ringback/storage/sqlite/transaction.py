"""What a unit of work sees of SQLite."""

import sqlite3
from datetime import datetime
from functools import partial

from ringback.domain.encryption import Sealer
from ringback.storage.log_appends import StepwiseLogAppends
from ringback.storage.rows.calls import SqlCallQueue, SqlCalls
from ringback.storage.rows.delivery_queue import SqlDeliveryQueue
from ringback.storage.rows.transaction import SqlTransaction
from ringback.storage.rows.unit import UnitContext
from ringback.storage.rows.webhook_reader import CachingWebhookReader
from ringback.storage.rows.webhooks import SqlWebhooks
from ringback.storage.sqlite.statements import open_statements
from ringback.storage.sqlite.write_probe import SqliteWriteProbe


class SqliteTransaction(SqlTransaction):
    write_probe: SqliteWriteProbe
    calls: SqlCalls
    call_queue: SqlCallQueue
    webhooks: SqlWebhooks
    delivery_queue: SqlDeliveryQueue

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        sealer: Sealer,
        webhook_reader: CachingWebhookReader,
        now: datetime,
        confirmed_now: datetime | None = None,
    ) -> None:
        """A unit that only reads leaves `confirmed_now` out."""
        confirmed = now if confirmed_now is None else confirmed_now
        super().__init__(UnitContext(partial(open_statements, connection), sealer, webhook_reader, now, confirmed))
        self.connection = connection

    @property
    def log_appends(self) -> StepwiseLogAppends:
        """A new one each time: if the transaction held it, each unit of work would be garbage that only a collection frees."""
        return StepwiseLogAppends(self)
