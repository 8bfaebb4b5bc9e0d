"""Stores of the tests on PostgreSQL leave their connections to the next store of the same database."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from ringback.storage.postgres import driver
from ringback.storage.postgres.driver import Connection
from tests.support.kept_connections import KeptConnections
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres_databases import empty_database


@pytest.fixture
async def url() -> AsyncGenerator[str]:
    async with empty_database() as name:
        yield name


@pytest.fixture
def kept() -> KeptConnections:
    return KeptConnections()


async def read_session(connection: Connection) -> int:
    (row,) = await connection.fetch("SELECT pg_backend_pid() AS id")
    return int(row["id"])


async def close_and_connect_again(kept: KeptConnections, connection: Connection, url: str) -> bool:
    """Whether the next connection has the same session."""
    session = await read_session(connection)
    await connection.close()
    following = await kept.connect(url)
    is_same = await read_session(following) == session
    following.terminate()
    return is_same


async def test_a_closed_connection_is_taken_again(kept: KeptConnections, url: str) -> None:
    connection = await kept.connect(url)
    assert await close_and_connect_again(kept, connection, url)
    assert connection.is_closed()


async def test_a_connection_within_a_transaction_is_not_taken_again(kept: KeptConnections, url: str) -> None:
    connection = await kept.connect(url)
    await connection.execute("BEGIN")
    assert not await close_and_connect_again(kept, connection, url)


async def test_a_session_has_the_settings_of_its_store(
    kept: KeptConnections, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await kept.connect(url)
    monkeypatch.setitem(driver.SERVER_SETTINGS, "lock_timeout", "50ms")
    assert not await close_and_connect_again(kept, connection, url)
    kept.close()


async def test_a_session_that_has_ended_meanwhile_is_not_taken(kept: KeptConnections, url: str) -> None:
    connection, other = await kept.connect(url), await kept.connect(url)
    ended = await read_session(connection)
    await connection.close()
    await other.fetch("SELECT pg_terminate_backend($1, 10000)", ended)
    following = await kept.connect(url)
    assert await read_session(following) != ended
    for each in (other, following):
        each.terminate()


async def test_what_listened_on_a_connection_is_not_notified_in_its_next_use(kept: KeptConnections, url: str) -> None:
    heard, heard_again = list[Any](), asyncio.Event()

    def listen(*arguments: Any) -> None:
        heard.append(arguments[-1])

    connection = await kept.connect(url)
    session = await read_session(connection)
    await connection.add_listener("test", listen)
    connection.add_termination_listener(listen)
    await connection.close()

    following = await kept.connect(url)
    assert await read_session(following) == session
    await following.add_listener("test", lambda *_: heard_again.set())
    await following.fetch("SELECT pg_notify('test', 'heard by the second one only')")
    await asyncio.wait_for(heard_again.wait(), WAIT_SECONDS)
    following.terminate()
    await asyncio.sleep(0)  # termination listeners run in the next turn of the loop
    assert heard == []
