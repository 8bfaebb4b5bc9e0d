"""A pooler that keeps sessions works with its defaults, and one that shares them is refused."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.storage.open import open_store
from ringback.storage.postgres import store
from ringback.storage.postgres.driver import Connection, connect, connect_for_units
from ringback.storage.postgres.errors import SESSIONS_NOT_KEPT, to_store_unavailable
from ringback.storage.postgres.own_session import require_own_session
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.stores import make_sealer

SSL_REQUEST = 8
KNOWN_TO_POOLERS = {"user", "database", "client_encoding", "application_name"}
"""Of what a client may ask for at the start of a connection; pgbouncer knows two more."""


class TransactionPool:
    """Gives each transaction the session that was used last, as pgbouncer does with pool_mode = transaction."""

    def __init__(self, *sessions: Connection) -> None:
        self.free = list(sessions)


class PooledConnection:
    def __init__(self, pool: TransactionPool) -> None:
        self._pool = pool
        self._held: Connection | None = None

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        session = self._held or self._pool.free.pop()
        try:
            return await session.fetch(query, *args)
        finally:
            self._give_back(session)

    async def execute(self, query: str) -> str:
        session = self._held or self._pool.free.pop()
        try:
            return await session.execute(query)
        finally:
            self._give_back(session)

    def _give_back(self, session: Connection) -> None:
        self._held = session if session.is_in_transaction() else None
        if self._held is None and session not in self._pool.free:
            self._pool.free.append(session)


async def test_a_pooler_that_shares_sessions_is_refused(url: str) -> None:
    sessions = [await connect(url) for _ in range(3)]
    pool = TransactionPool(*sessions)
    listener: Any = PooledConnection(pool)
    other: Any = PooledConnection(pool)

    with pytest.raises(StoreUnavailable, match="pool_mode = session") as refused:
        await require_own_session(listener, other)

    assert refused.value.needs_operator
    assert len(pool.free) == 3
    for session in sessions:
        await session.close()


async def test_connections_with_sessions_of_their_own_are_accepted(url: str) -> None:
    listener, other = await connect(url), await connect(url)

    await require_own_session(listener, other)

    assert not other.is_in_transaction()
    await listener.close()
    await other.close()


async def test_a_connection_asks_at_its_start_for_no_setting_that_poolers_refuse() -> None:
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            message = await reader.readexactly(int.from_bytes(await reader.readexactly(4)) - 4)
            if len(message) == SSL_REQUEST - 4:
                writer.write(b"N")
                continue
            asked.extend(message[4:].split(b"\0"))
            writer.close()
            return

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connect(f"postgresql://me:secret@127.0.0.1:{port}/database")

    names = {name.decode() for name in asked[::2] if name}
    assert {"user", "application_name"} <= names <= KNOWN_TO_POOLERS


@pytest.mark.parametrize("error", [asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError])
def test_a_prepared_statement_of_another_session_says_what_the_pooler_must_do(error: type[Exception]) -> None:
    unavailable = to_store_unavailable(error('prepared statement "__asyncpg_stmt_1__" already exists'))

    assert (unavailable.detail, unavailable.needs_operator) == (SESSIONS_NOT_KEPT, True)


def test_a_parameter_of_the_url_that_a_pooler_refuses_is_named() -> None:
    unavailable = to_store_unavailable(asyncpg.ProtocolViolationError("unsupported startup parameter: search_path"))

    assert unavailable.needs_operator
    assert "parameter of the database URL that the pooler does not know" in unavailable.detail
    assert "search_path" in unavailable.detail


async def test_connections_whose_sessions_a_proxy_has_replaced_cost_one_unit_and_are_closed(
    url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy does that hides a failover from its clients. A connection that stayed would fail in each later unit."""
    opened: list[Connection] = []

    async def connect_and_note(url: str) -> Connection:
        opened.append(await connect_for_units(url))
        return opened[-1]

    async def append(tx: Transaction) -> int:
        return await tx.events.reserve_seqs(ALICE, 1)

    monkeypatch.setattr(store, "connect_for_units", connect_and_note)
    async with open_store(url, clock=clock, sealer=make_sealer(), exclusive=True) as nodes_store:
        await asyncio.gather(*(nodes_store.write(append) for _ in range(8)))
        for connection in opened:
            await connection.execute("DEALLOCATE ALL")  # a new session has no prepared statements

        with pytest.raises(StoreUnavailable, match="another session"):
            await nodes_store.write(append)

        assert await nodes_store.write(append) == 9
        assert {connection.is_closed() for connection in opened[:-1]} == {True}
