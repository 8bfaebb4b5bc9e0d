"""What a caller gets when PostgreSQL ends a connection, stops, is full, or is stuck; and that the store then works again."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from ringback.domain.errors import InvalidRequest, RowsLocked, StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.storage.open import open_store
from ringback.storage.postgres import driver
from ringback.storage.postgres.errors import is_connection_lost, to_caller_error
from ringback.storage.postgres.store import PostgresStore
from tests.support.builders import make_api_key, make_call
from tests.support.clock import FakeClock
from tests.support.databases import database_pool
from tests.support.engine import wait_until
from tests.support.examples import ALICE
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres import running_postgres
from tests.support.postgres_instance import PostgresInstance
from tests.support.stores import make_sealer
from tests.support.tcp_proxy import running_tcp_proxy

END_SESSIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'ringback' AND pid <> $1"
)
COUNT_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ringback'"


async def read_head(tx: Transaction) -> int:
    return await tx.event_log.get_head(ALICE)


async def wait_for_head(store: Store) -> int:
    """The server needs a moment to notice closed connections."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            with suppress(StoreUnavailable):
                return await store.read(read_head)


async def append(tx: Transaction) -> int:
    return await tx.events.reserve_seqs(ALICE, 1)


async def test_a_unit_whose_connection_is_ended_is_undone_and_the_next_one_works(
    store: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    call, ran, rolled_back = make_call(), asyncio.Event(), asyncio.Event()
    go_on = asyncio.Event()

    async def work(tx: Transaction) -> None:
        tx.on_rollback(rolled_back.set)
        await tx.calls.insert(call)
        ran.set()
        while not go_on.is_set():
            await tx.pause()
        await tx.calls.get(call.id)

    writing = asyncio.create_task(store.write(work))
    await ran.wait()
    await admin.fetch(END_SESSIONS, admin.get_server_pid())
    go_on.set()

    with pytest.raises(StoreUnavailable, match="cannot be used now"):
        await writing
    assert rolled_back.is_set()
    assert await store.read(lambda tx: tx.calls.get(call.id)) is None
    assert await store.write(append) == 1


async def test_idle_connections_that_were_ended_are_replaced(
    store: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await asyncio.gather(*(store.write(append) for _ in range(8)), *(store.read(read_head) for _ in range(8)))
    await admin.fetch(END_SESSIONS, admin.get_server_pid())
    await asyncio.sleep(0)

    outcomes = await asyncio.gather(
        *(store.write(append) for _ in range(8)), *(store.read(read_head) for _ in range(8)), return_exceptions=True
    )

    assert all(isinstance(outcome, int | StoreUnavailable) for outcome in outcomes)
    assert await store.write(append) > 8


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[PostgresInstance]:
    """A server of this module's own: its start, and the tables of its database, take half a second of CPU."""
    async with running_postgres(max_connections="8", superuser_reserved_connections="0") as server:
        yield server


async def test_a_stopped_server_refuses_units_until_it_runs_again(server: PostgresInstance, clock: FakeClock) -> None:
    async with open_store(server.address.socket_url, clock=clock, sealer=make_sealer(), exclusive=True) as store:
        head = await store.write(append)
        await asyncio.to_thread(server.stop)

        outcomes = await asyncio.gather(
            *(store.write(append) for _ in range(20)),
            *(store.read(read_head) for _ in range(20)),
            *(store.scan(ALICE, read_head) for _ in range(20)),
            return_exceptions=True,
        )
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}

        await asyncio.to_thread(server.start)
        assert await store.write(append) == head + 1


async def test_a_node_whose_server_has_become_a_standby_is_unavailable_until_it_reaches_the_primary(
    server: PostgresInstance, clock: FakeClock
) -> None:
    """As after a failover behind a proxy or a name that still leads to the old server."""
    url = server.address.socket_url
    async with open_store(url, clock=clock, sealer=make_sealer(), exclusive=True) as store:
        head = await store.write(append)
        await asyncio.to_thread(server.stop, signal.SIGINT)
        server.become_standby()
        await asyncio.to_thread(server.start)
        assert await wait_for_head(store) == head

        with pytest.raises(StoreUnavailable, match="a standby, which only reads") as refused:
            await store.write(append)

        assert not refused.value.needs_operator
        watch = await asyncpg.connect(url, server_settings={"default_transaction_isolation": "read committed"})

        async def has_no_session_left() -> bool:
            return not await watch.fetchval(COUNT_SESSIONS)

        await wait_until(has_no_session_left)
        await watch.fetch("SELECT pg_promote()")
        await watch.close()
        assert await store.write(append) == head + 1


async def test_units_share_the_connections_that_a_full_server_has_left(
    server: PostgresInstance, clock: FakeClock
) -> None:
    url = server.address.socket_url
    async with open_store(url, clock=clock, sealer=make_sealer(), exclusive=True) as store:
        head = await store.write(append)  # the connection is kept
        others: list[asyncpg.Connection[asyncpg.Record]] = []
        with suppress(asyncpg.TooManyConnectionsError):
            while True:
                others.append(await asyncpg.connect(url))

        seqs = await asyncio.gather(*(store.write(append) for _ in range(30)))
        assert sorted(seqs) == list(range(head + 1, head + 31))
        assert await store.read(read_head) == head + 30  # another kind of unit, on the same connection

        for other in others:
            await other.close()
        assert await wait_for_head(store) == head + 30


async def test_a_wrong_password_needs_an_operator_and_is_not_shown(server: PostgresInstance, clock: FakeClock) -> None:
    url = server.address.network_url.replace(":", ":wrong-", 2).replace("wrong-//", "//")

    with pytest.raises(StoreUnavailable) as refusal:
        async with open_store(url, clock=clock, sealer=make_sealer(), exclusive=True):
            pass

    assert refusal.value.needs_operator
    assert "wrong-" not in refusal.value.detail


async def test_a_unit_that_waits_too_long_for_a_row_gives_up(
    url: str, store: PostgresStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(driver.SERVER_SETTINGS, "lock_timeout", "50ms")
    impatient = PostgresStore(url, clock=clock, sealer=make_sealer())
    await impatient.open()
    locked, go_on = asyncio.Event(), asyncio.Event()

    async def hold(tx: Transaction) -> None:
        await append(tx)
        locked.set()
        while not go_on.is_set():
            await tx.pause()

    holding = asyncio.create_task(store.write(hold))
    await locked.wait()
    with pytest.raises(RowsLocked, match="lock timeout"):
        await impatient.write(append)
    go_on.set()
    await holding
    assert await impatient.write(append) == 2
    await impatient.close()


async def test_text_that_cannot_be_stored_is_an_invalid_request(store: PostgresStore) -> None:
    for text in ("nul\x00", "half \ud800"):
        with pytest.raises(InvalidRequest, match="cannot be stored"):
            await store.write(lambda tx, text=text: tx.api_keys.insert(make_api_key(name=text)))
        with pytest.raises(InvalidRequest, match="cannot be stored"):
            await store.read(lambda tx, text=text: tx.api_keys.find_by_hash(text))


async def test_a_unit_that_waits_for_anything_else_is_refused(store: PostgresStore) -> None:
    never_set = asyncio.Event()

    async def wait_for_another_task(tx: Transaction) -> None:
        await read_head(tx)
        await never_set.wait()

    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(RuntimeError, match="not its transaction"):
            await store.write(wait_for_another_task)
        with pytest.raises(RuntimeError, match="not its transaction"):
            await store.read(wait_for_another_task)
    assert await store.write(append) == 1


async def test_an_idle_node_that_opens_again_after_closing_says_so(store: PostgresStore) -> None:
    await store.close()

    with pytest.raises(StoreUnavailable, match="not open"):
        await store.write(append)


@pytest.mark.parametrize(
    ("error", "needs_operator"),
    [
        (asyncpg.DiskFullError("could not extend file"), False),
        (asyncpg.TooManyConnectionsError("sorry"), False),
        (asyncpg.AdminShutdownError("terminating"), False),
        (asyncpg.QueryCanceledError("statement timeout"), False),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute UPDATE"), False),
        (asyncpg.InvalidPasswordError("no"), True),
        (asyncpg.InvalidCatalogNameError("no database"), True),
        (asyncpg.DataCorruptedError("invalid page"), True),
        (ConnectionRefusedError("refused"), False),
        (TimeoutError(), False),
    ],
)
def test_errors_of_the_server_and_of_the_way_to_it_are_unavailable(error: Exception, *, needs_operator: bool) -> None:
    raised = to_caller_error(error)

    assert isinstance(raised, StoreUnavailable)
    assert raised.needs_operator is needs_operator


def test_a_missing_socket_is_explained() -> None:
    raised = to_caller_error(FileNotFoundError(2, "No such file or directory"))

    assert isinstance(raised, StoreUnavailable)
    assert "no Unix socket of PostgreSQL" in raised.detail


def test_a_wrong_statement_stays_the_error_that_it_is() -> None:
    error = asyncpg.UndefinedColumnError("column does not exist")

    assert to_caller_error(error) is error


async def test_a_node_that_is_cut_off_within_a_message_loses_its_transaction_and_its_locks(
    url: str, admin: "asyncpg.Connection[asyncpg.Record]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by chaos: a proxy kept the session of a dead node, which held its locks for as long as the proxy lived."""
    monkeypatch.setitem(driver.connect.__kwdefaults__ or {}, "transaction_seconds", 1.0)
    lock = "SELECT pg_advisory_xact_lock($1)"
    address = database_pool().address
    async with running_tcp_proxy(urlsplit(address.network_url).port or 5432) as proxy:
        node = await driver.connect_for_units(address.tcp_url(urlsplit(url).path.lstrip("/"), port=proxy.port))
        await node.fetch(lock, 7)  # from now on it is prepared
        await node.execute("BEGIN")
        proxy.withhold_syncs()
        unit = asyncio.create_task(node.fetch(lock, 7))
        async with asyncio.timeout(WAIT_SECONDS):
            # On a busy machine, the second may be over before the unit has the lock.
            while not unit.done() and await admin.fetchval("SELECT pg_try_advisory_lock(7)"):
                await admin.fetchval("SELECT pg_advisory_unlock(7)")
            await admin.fetchval("SELECT pg_advisory_lock(7)")
            (error,) = await asyncio.gather(unit, return_exceptions=True)
        assert isinstance(error, Exception)
        assert is_connection_lost(error)
        node.terminate()


async def append_beside_others(tx: Transaction) -> None:
    """Long enough that each of them needs a connection of its own."""
    await append(tx)
    for _ in range(1000):
        await tx.pause()


def note_connections(monkeypatch: pytest.MonkeyPatch) -> "list[asyncpg.Connection[asyncpg.Record]]":
    """The connections that are opened from now on, which wait for as long as a test does."""
    opened: list[asyncpg.Connection[asyncpg.Record]] = []
    connect_driver = driver.connect_driver

    async def connect(url: str, **settings: Any) -> "asyncpg.Connection[asyncpg.Record]":
        settings["answer_timeout_seconds"] = WAIT_SECONDS
        connection = await connect_driver(url, **settings)
        opened.append(connection)
        return connection

    monkeypatch.setattr(driver, "connect_driver", connect)
    monkeypatch.setattr(driver, "CONNECT_TIMEOUT_SECONDS", WAIT_SECONDS)
    return opened


def shorten_timeout(connection: Any) -> None:
    connection._config = connection._config._replace(command_timeout=0.1)  # asyncpg has no other way after the start


async def test_a_network_that_drops_all_connections_costs_one_timeout_and_not_one_for_each(
    url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router that lost its state resets nothing: an idle connection looks open until a unit has waited on it in vain.

    Only the connections that never get an answer have a short time-out, so a busy machine changes nothing.
    """
    opened = note_connections(monkeypatch)
    address = database_pool().address
    async with asyncio.timeout(WAIT_SECONDS), running_tcp_proxy(urlsplit(address.network_url).port or 5432) as proxy:
        node_url = address.tcp_url(urlsplit(url).path.lstrip("/"), port=proxy.port)
        async with open_store(node_url, clock=clock, sealer=make_sealer(), exclusive=True) as node:
            principals = [Principal(f"agent-{number}") for number in range(4)]
            await asyncio.gather(*(node.write_for(each, append_beside_others) for each in principals))
            proxy.strand_clients()
            for connection in opened:
                shorten_timeout(connection)

            with pytest.raises(StoreUnavailable, match="did not answer in time"):
                await node.write_heartbeat(append)
            assert await node.write_heartbeat(append) == len(principals) + 1
            assert await node.read(read_head) == len(principals) + 1
