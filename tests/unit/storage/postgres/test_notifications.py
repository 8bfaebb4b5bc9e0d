"""Notifications between nodes: a commit on one node wakes waiters of another, and a lost connection comes back."""

import asyncio
import json
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import asyncpg
import pytest

from ringback.domain.ports import Transaction
from ringback.storage.postgres.notifications import PAYLOAD_BYTES_MAX, TOPICS_GATHERED_MAX, build_payloads
from ringback.storage.postgres.store import PostgresStore
from tests.support.clock import FakeClock
from tests.support.databases import database_pool
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres_databases import empty_database
from tests.support.stores import make_sealer

CUT_FIRST_LISTENER = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'ringback notifications' ORDER BY backend_start LIMIT 1
"""
"""The connection of the store that was opened first."""


COUNT_LISTENERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'ringback notifications'
"""


async def notify(store: PostgresStore, *topics: str) -> None:
    async def work(tx: Transaction) -> None:
        tx.notify(*topics)

    await store.write(work)


async def cut_listeners(admin: "asyncpg.Connection[asyncpg.Record]") -> int:
    rows = await admin.fetch(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'ringback notifications'"
    )
    return len(rows)


async def test_a_commit_on_one_node_wakes_a_waiter_of_another(store: PostgresStore, other: PostgresStore) -> None:
    with other.signals.listen("call:1") as waiter:
        await notify(store, "call:1")

        assert await waiter.wait(WAIT_SECONDS)


async def test_a_rolled_back_unit_wakes_no_waiter_on_any_node(store: PostgresStore, other: PostgresStore) -> None:
    async def failing(tx: Transaction) -> None:
        tx.notify("failed")
        raise LookupError

    with other.signals.listen("failed") as failed, other.signals.listen("fine") as fine:
        with pytest.raises(LookupError):
            await store.write(failing)
        await notify(store, "fine")

        assert await fine.wait(WAIT_SECONDS)
        assert not await failed.wait(0)


async def test_a_node_gets_its_own_notification_once(store: PostgresStore, other: PostgresStore) -> None:
    with store.signals.listen("own") as own, store.signals.listen("answer") as answer:
        await notify(store, "own")
        assert await own.wait(0)
        with other.signals.listen("own") as received:
            await notify(store, "own")
            assert await received.wait(WAIT_SECONDS)
        assert await own.wait(0)
        await notify(other, "answer")
        assert await answer.wait(WAIT_SECONDS)  # by now an echo of the first would have arrived

        assert not await own.wait(0)


async def test_a_node_whose_connection_was_cut_listens_again_and_wakes_its_waiters(
    store: PostgresStore, other: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    with store.signals.listen("any") as waiting, other.signals.listen("any") as other_waiting:
        assert await cut_listeners(admin) == 2
        # A notification may have been lost meanwhile, so both look again.
        assert await waiting.wait(WAIT_SECONDS)
        assert await other_waiting.wait(WAIT_SECONDS)

    with other.signals.listen("later") as waiter:
        await notify(store, "later")
        assert await waiter.wait(WAIT_SECONDS)


async def test_the_waiters_of_other_nodes_look_too_after_a_node_could_not_send(
    store: PostgresStore, other: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    with other.signals.listen("lost") as waiting:
        assert await admin.fetchval(CUT_FIRST_LISTENER) is True

        assert await waiting.wait(WAIT_SECONDS)


async def test_units_are_committed_while_no_node_listens(
    store: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await cut_listeners(admin)

    with store.signals.listen("local") as waiter:
        await notify(store, "local")
        assert await waiter.wait(0)


async def test_so_many_topics_that_they_do_not_fit_wake_every_waiter(
    store: PostgresStore, other: PostgresStore
) -> None:
    with other.signals.listen("another") as waiter:
        await notify(store, *(f"call:{number}" for number in range(TOPICS_GATHERED_MAX + 1)))

        assert await waiter.wait(WAIT_SECONDS)


async def test_a_closing_store_sends_its_last_notifications(
    url: str, store: PostgresStore, other: PostgresStore
) -> None:
    with other.signals.listen("last") as waiter:
        await notify(store, "last")
        await store.close()

        assert await waiter.wait(WAIT_SECONDS)


async def test_a_node_that_may_have_no_more_connections_closes_one_to_listen_again(
    url: str, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    role = f"limited_{urlsplit(url).path.removeprefix('/')}"
    own = await admin.fetchval("SELECT quote_ident(current_user)")
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'limited' IN ROLE {own} CONNECTION LIMIT 2")
    await admin.execute(f"ALTER ROLE {role} SET role = {own}")
    parts = urlsplit(database_pool().address.tcp_url(urlsplit(url).path.removeprefix("/")))
    limited = parts._replace(netloc=f"{role}:limited@{parts.netloc.rpartition('@')[2]}").geturl()
    node = PostgresStore(limited, clock=FakeClock(), sealer=make_sealer())
    await node.open()
    await admin.execute(f"ALTER ROLE {role} CONNECTION LIMIT 1")  # the other connection stays, idle

    with node.signals.listen("any") as waiting:
        assert await cut_listeners(admin) == 1
        assert await waiting.wait(WAIT_SECONDS)  # it listens again

    assert await admin.fetchval(COUNT_LISTENERS) == 1
    await node.close()
    await admin.execute(f"DROP ROLE {role}")


FULL_QUEUE = """
CREATE SCHEMA full_queue;
CREATE FUNCTION full_queue.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS
    'BEGIN RAISE program_limit_exceeded USING MESSAGE = ''too many notifications in the NOTIFY queue''; END';
"""
"""A server whose queue is full, because a session that listens stays in a transaction. The function stands in the place of the
real one by the search path."""


class PausesClock(FakeClock):
    """Remembers how long it slept, and stands still after some pauses."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self.has_slept = asyncio.Event()
        self._count = count

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == self._count:
            self.has_slept.set()
            await asyncio.Event().wait()
        await super().sleep(seconds)


async def test_a_node_whose_every_notification_fails_listens_again_after_longer_and_longer_pauses(
    url: str, admin: "asyncpg.Connection[asyncpg.Record]", caplog: pytest.LogCaptureFixture
) -> None:
    await admin.execute(FULL_QUEUE)
    clock, separator = PausesClock(4), "&" if "?" in url else "?"
    node = PostgresStore(
        f"{url}{separator}options=-csearch_path%3Dfull_queue,public,pg_catalog", clock=clock, sealer=make_sealer()
    )
    await node.open()

    await notify(node, "any")
    await asyncio.wait_for(clock.has_slept.wait(), WAIT_SECONDS)

    assert clock.pauses == [0.1, 0.2, 0.4, 0.8]
    assert [record.getMessage() for record in caplog.records].count("store.not_listening") == 1
    await node.close()
    await admin.execute("DROP SCHEMA full_queue CASCADE")


async def test_a_node_gets_no_notifications_of_another_installation_in_the_same_database() -> None:
    async with empty_database() as url, AsyncExitStack() as stack:
        first, second = await open_node(stack, url), await open_node(stack, url)
        other_first, other_second = await open_node(stack, url, "other"), await open_node(stack, url, "other")
        foreign = stack.enter_context(first.signals.listen("alice"))
        own = stack.enter_context(other_second.signals.listen("alice"))

        await notify(other_first, "alice")
        assert await own.wait(WAIT_SECONDS)
        with first.signals.listen("later") as later:
            await notify(second, "later")
            assert await later.wait(WAIT_SECONDS)  # by now the other installation's would have arrived

        assert not await foreign.wait(0)


async def open_node(stack: AsyncExitStack, url: str, schema: str = "public") -> PostgresStore:
    admin = await asyncpg.connect(url)
    await admin.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    await admin.close()
    separator = "&" if "?" in url else "?"
    node = PostgresStore(f"{url}{separator}options=-csearch_path%3D{schema}", clock=FakeClock(), sealer=make_sealer())
    await node.open()
    stack.push_async_callback(node.close)
    return node


def test_payloads_hold_every_topic_once_and_fit() -> None:
    topics = [f"call:{number:040}ü" for number in range(1_000)]

    payloads = build_payloads(topics)

    assert [topic for payload in payloads for topic in json.loads(payload)] == topics
    assert max(len(payload.encode()) for payload in payloads) <= PAYLOAD_BYTES_MAX
    assert build_payloads([]) == []
    assert [json.loads(payload) for payload in build_payloads(["x" * PAYLOAD_BYTES_MAX])] == [["*"]]


async def test_foreign_payloads_on_the_channel_are_one_warning_and_make_every_waiter_look(
    store: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]", caplog: pytest.LogCaptureFixture
) -> None:
    for payload in ("5", "no JSON", '{"a": 1}', "[1]", ""):
        with store.signals.listen("any") as waiter:
            await admin.execute("SELECT pg_notify('ringback', $1)", payload)
            assert await waiter.wait(WAIT_SECONDS)

    assert [(line.levelname, line.message) for line in caplog.records] == [("WARNING", "store.foreign_notification")]
