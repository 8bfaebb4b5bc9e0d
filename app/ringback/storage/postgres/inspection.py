"""What an operator wants to know about a PostgreSQL server, for `ringback doctor`."""

from dataclasses import dataclass
from datetime import datetime

from ringback.domain.clock import from_epoch_milliseconds
from ringback.storage.postgres.driver import connect
from ringback.storage.postgres.errors import to_store_unavailable
from ringback.storage.postgres.migrator import read_schema_state
from ringback.storage.postgres.node_connections import close_connection
from ringback.storage.postgres.statements import load_sql

_SESSION = load_sql("session")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    version: str
    now: datetime
    """By the server's clock, which all nodes follow."""
    connections: int
    """Of all clients of the server, in any database."""
    connections_max: int
    is_standby: bool
    is_durable: bool
    """Whether a commit survives a crash of the server (`fsync`)."""
    schema_applied: int
    schema_known: int


async def inspect_server(url: str) -> ServerReport:
    """Raises `StoreUnavailable`. Changes nothing."""
    try:
        schema = await read_schema_state(url)
        connection = await connect(url)
        try:
            (row,) = await connection.fetch(_SESSION["describe_server"].writing)
        finally:
            await close_connection(connection)
    except Exception as error:
        raise to_store_unavailable(error) from error
    return ServerReport(
        version=row["version"],
        now=from_epoch_milliseconds(row["now"]),
        connections=row["connections"],
        connections_max=row["connections_max"],
        is_standby=row["is_standby"],
        is_durable=row["is_durable"],
        schema_applied=schema.applied,
        schema_known=schema.known,
    )
