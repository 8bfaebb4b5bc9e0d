"""The part of asyncpg that the store uses, with types, and its connections with the settings that every unit relies on.

synchronous_commit = on       what is acknowledged survives a crash, whatever the role's or the database's default is
jit = off                     statements take microseconds; compiling them takes milliseconds
plan_cache_mode               statements are planned once for a connection: each has one good plan, by its index
enable_seqscan = off          … also while a table is small, or its statistics are old
enable_bitmapscan = off       a bitmap has all rows that match, also for the first ten of them
enable_hashjoin, _mergejoin   a hash or a sort of a whole table, for the few rows that are wanted
statement_timeout             a statement that waits for a lock or a dead disk ends, and its caller gets 503
lock_timeout                  the same, earlier, for a row that another unit does not release
idle_in_transaction_…         a node that is stopped (SIGSTOP, a paused VM) within a unit loses the unit, not the others
transaction_timeout           the same for a node that was cut off within a message, which is not idle (PostgreSQL 17 or later)
idle_session_timeout = 0      connections wait idle for the next unit, and for notifications
tcp_keepalives_…              PostgreSQL notices a node whose network was cut, and releases its locks
application_name              says which node a connection belongs to, in pg_stat_activity

A pooler refuses a connection that asks for other settings at its start than it knows, or drops them (pgbouncer:
`ignore_startup_parameters`). So most are set once the connection is open, by one statement.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, cast

import asyncpg

from ringback.domain.errors import StoreUnavailable
from ringback.storage.postgres.errors import LOCK_TIMEOUT_SECONDS
from ringback.storage.rows.statements import Row
from ringback.storage.url_parameters import find_missing_file, to_driver_url

CONNECT_TIMEOUT_SECONDS: Final = 5.0
"""Long enough for TLS over a slow network; a caller waits for it when the database cannot be reached."""
STATEMENT_TIMEOUT_SECONDS: Final = 15.0
"""No statement takes a second; one that waits so long waits for something that is broken."""
ANSWER_TIMEOUT_SECONDS: Final = 20.0
"""After this the server is considered gone: it would have ended the statement itself."""
IDLE_IN_TRANSACTION_SECONDS: Final = 10.0
"""A unit of work computes for milliseconds between two statements. A node that was stopped for longer has lost its leases."""
TRANSACTION_SECONDS: Final = 40.0
"""More than two statements that wait as long as they may; a unit takes milliseconds."""
TRANSACTION_TIMEOUT_VERSION: Final = 17
IDLE_SESSION_TIMEOUT_VERSION: Final = 14
STATEMENTS_CACHED: Final = 1024
"""Some 250 statements, in their two forms: each is parsed and planned once for a connection."""

SERVER_SETTINGS: Final = {
    "synchronous_commit": "on",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "statement_timeout": f"{STATEMENT_TIMEOUT_SECONDS:.0f}s",
    "lock_timeout": f"{LOCK_TIMEOUT_SECONDS:.0f}s",
    "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_SECONDS:.0f}s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "client_encoding": "UTF8",
    "application_name": "ringback",
}

_AT_START: Final = frozenset({"client_encoding", "application_name"})
"""Settings that poolers pass on at the start of a connection."""


class Connection(Protocol):
    """The methods of `asyncpg.Connection` that units of work use."""

    async def fetch(self, query: str, /, *args: Any) -> Sequence[Row]: ...

    async def execute(self, query: str, /, *args: Any) -> str:
        """The status that PostgreSQL reports, such as `UPDATE 3`."""
        ...

    async def executemany(self, command: str, args: Iterable[Sequence[Any]], /) -> None: ...

    def is_closed(self) -> bool: ...

    def is_in_transaction(self) -> bool: ...

    async def close(self, *, timeout: float | None = None) -> None: ...  # noqa: ASYNC109 - asyncpg's

    def terminate(self) -> None:
        """Close the connection without a word to the server."""
        ...


class ListeningConnection(Connection, Protocol):
    """The methods that notifications use besides."""

    def get_server_pid(self) -> int: ...

    def get_server_version(self) -> asyncpg.ServerVersion: ...

    async def add_listener(self, channel: str, callback: Callable[..., None], /) -> None: ...

    def add_termination_listener(self, callback: Callable[..., None], /) -> None: ...


async def connect(
    url: str,
    *,
    server_settings: dict[str, str] | None = None,
    answer_timeout_seconds: float | None = ANSWER_TIMEOUT_SECONDS,
    transaction_seconds: float = TRANSACTION_SECONDS,
) -> ListeningConnection:
    """A connection with the settings above, and with these in their place or besides. 0: a transaction takes any time.

    PostgreSQL 17 or later ends the connection when a transaction takes too long. A statement is sent in several messages. If
    the network is cut after some of them, and a proxy keeps the server's side open, the server waits for the rest with all
    locks of the transaction. To it the session is active, so no other timeout ends it, and all nodes that need one of these
    locks wait for as long as the proxy lives.
    """
    connection = await connect_driver(
        url,
        server_settings=SERVER_SETTINGS | (server_settings or {}),
        answer_timeout_seconds=answer_timeout_seconds,
        transaction_seconds=transaction_seconds,
    )
    return cast("ListeningConnection", connection)


async def connect_driver(
    url: str,
    *,
    server_settings: dict[str, str],
    answer_timeout_seconds: float | None = None,
    transaction_seconds: float = 0.0,
) -> "asyncpg.Connection[asyncpg.Record]":
    """The driver's own connection with these settings only. Raises `StoreUnavailable` if a file of certificates is missing."""
    if missing := find_missing_file(url):
        raise StoreUnavailable(f"The database cannot be reached: {missing}", needs_operator=True)
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(  # pyright: ignore[reportUnknownMemberType] - its hints are partial
        to_driver_url(_plain_scheme(url)),
        timeout=CONNECT_TIMEOUT_SECONDS,
        command_timeout=answer_timeout_seconds,
        statement_cache_size=STATEMENTS_CACHED,
        max_cached_statement_lifetime=0,
        server_settings={name: server_settings[name] for name in _AT_START & server_settings.keys()},
    )
    try:
        await _apply_settings(connection, server_settings, transaction_seconds)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _apply_settings(
    connection: "asyncpg.Connection[asyncpg.Record]", settings: dict[str, str], transaction_seconds: float
) -> None:
    """Replace what the role, the database or the URL has. Older servers do not know all timeouts."""
    applied = {name: value for name, value in settings.items() if name not in _AT_START}
    version = connection.get_server_version().major
    if version >= IDLE_SESSION_TIMEOUT_VERSION:
        applied["idle_session_timeout"] = "0"
    if version >= TRANSACTION_TIMEOUT_VERSION:
        applied["transaction_timeout"] = f"{1000 * transaction_seconds:.0f}ms"
    # A full pooler accepts a connection, and keeps its first statement waiting.
    statement = "; ".join(f"SET {name} = '{value}'" for name, value in applied.items())
    await connection.execute(statement, timeout=CONNECT_TIMEOUT_SECONDS)


async def connect_for_units(url: str) -> Connection:
    """A connection for units of work, each of which takes milliseconds."""
    return await connect(url)


def _plain_scheme(url: str) -> str:
    """`postgresql+asyncpg://…`, as SQLAlchemy writes it, is `postgresql://…`."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"
