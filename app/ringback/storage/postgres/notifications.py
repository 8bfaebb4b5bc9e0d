"""Notifications between nodes: LISTEN and NOTIFY, on one connection of each node.

    commit ──▶ waiters of this node
          ╰──▶ topics gather ──▶ one NOTIFY at a time ──▶ PostgreSQL ──▶ other nodes ──▶ their waiters

A NOTIFY in every unit of work would halve the commits per second, because PostgreSQL lets one transaction at a time commit with
one. So units send no NOTIFY themselves: the topics of all units that commit while one NOTIFY is under way are the next one.

A notification is a hint. Every waiter also reads the store now and then, so a lost connection costs latency and never an event:
topics that cannot be sent are dropped, and after a reconnect all waiters of all nodes read the store once.

Installations in several schemas of one database have channels of their own, because principals of both may have one name, and
the erasure of one ends the logins of that name at each node that hears of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from ringback.backoff import Backoff
from ringback.domain import jsontext
from ringback.domain.clock import Clock
from ringback.storage.postgres.driver import Connection, ListeningConnection, connect
from ringback.storage.postgres.node_connections import close_connection
from ringback.storage.postgres.own_session import require_own_session
from ringback.storage.postgres.statements import load_sql
from ringback.storage.signals import LocalSignals

log = logging.getLogger(__name__)

CONNECTION_SETTINGS: Final = {
    "application_name": "ringback notifications",
    "synchronous_commit": "off",  # a NOTIFY writes nothing that must survive, so it waits for no disk
}
PAYLOAD_BYTES_MAX: Final = 7_900
"""PostgreSQL takes less than 8,000 bytes."""
TOPICS_GATHERED_MAX: Final = 10_000
"""Topics of some seconds. If more gather, all waiters of all nodes are notified instead."""
CHECK_SECONDS: Final = 5.0
"""How often the connection is used at least: that shows whether it still works."""
RECONNECT_BACKOFF: Final = Backoff(first_seconds=0.1, longest_seconds=5.0)
FLUSH_SECONDS_MAX: Final = 1.0
"""How long closing the store waits for the last NOTIFY."""
EVERYTHING: Final = "*"
"""In a payload: all topics."""

_SQL: Final = load_sql("session")


class NodeNotifications:
    """Belongs to one store and one event loop."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        signals: LocalSignals,
        on_check: Callable[[Connection], Awaitable[None]],
        close_other_connection: Callable[[], Awaitable[None]],
    ) -> None:
        """`on_check` runs on the connection once it listens, and every `CHECK_SECONDS`.

        `close_other_connection` runs when this connection cannot be opened again: the server may allow the node no more
        connections, and the others would keep all.
        """
        self._url = url
        self._clock = clock
        self._signals = signals
        self._on_check = on_check
        self._close_other_connection = close_other_connection
        self._gathered: dict[str, None] = {}
        self._has_work = asyncio.Event()
        """Set once topics have gathered, or the connection is lost."""
        self._connection: Connection | None = None
        self._channel = ""
        """That of this installation, once the connection listens."""
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        """Since something was sent last. To listen again is no success: a full queue of the server refuses each NOTIFY only."""
        self._is_closing = False
        self._warned_of_foreign = False

    async def open(self, other: Connection) -> None:
        """Listen from now on. Raises the errors of the driver, and `StoreUnavailable` if a pooler does not keep the session.

        `other` is another connection of this node, which shows that.
        """
        connection = await self._listen()
        try:
            await require_own_session(connection, other)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        self._task = asyncio.create_task(self._run(), name="postgres-notifications")

    async def close(self) -> None:
        """Send what has gathered, if that is possible at once, and close the connection."""
        if self._task is None:
            return
        self._is_closing = True
        self._has_work.set()
        await asyncio.wait([self._task], timeout=FLUSH_SECONDS_MAX)
        self._task.cancel()
        await asyncio.wait([self._task])
        if self._connection is not None:
            await close_connection(self._connection)

    def publish(self, topics: Iterable[str]) -> None:
        """Notify the waiters of this node now, and those of the other nodes soon."""
        topics = list(topics)
        if topics:
            self._signals.notify(topics)
            self._gathered.update(dict.fromkeys(topics))
            if len(self._gathered) > TOPICS_GATHERED_MAX:
                self._gathered = {EVERYTHING: None}
            self._has_work.set()

    async def _run(self) -> None:
        while not self._is_closing:
            try:
                if self._connection is None:
                    self._connection = await self._listen_again()
                    log.info("store.listening_again")
                    self._signals.notify_all()  # what other nodes sent meanwhile is lost here
                    self._gathered = {EVERYTHING: None}  # … and what this node sent last may be lost there
                    self._has_work.set()
                await self._send_until_lost(self._connection)
            except Exception as error:  # noqa: BLE001 - boundary: whatever it is, the node listens again
                self._failures += 1
                if self._failures == 1:
                    log.warning("store.not_listening", extra={"reason": str(error) or type(error).__name__})
                if self._connection is not None:
                    self._connection.terminate()
                    self._connection = None
                await self._clock.sleep(RECONNECT_BACKOFF.pause_seconds(self._failures))

    async def _listen_again(self) -> ListeningConnection:
        try:
            return await self._listen()
        except Exception:
            await self._close_other_connection()
            raise

    async def _listen(self) -> ListeningConnection:
        connection = await connect(self._url, server_settings=CONNECTION_SETTINGS)
        try:
            await self._on_check(connection)
            await connection.fetch(_SQL["show_node"].writing)
            (own,) = await connection.fetch(_SQL["channel"].writing)
            self._channel = own["channel"]

            def receive(_connection: Any, sender_pid: int, _channel: str, payload: str) -> None:
                if sender_pid != own["pid"]:  # this node's own topics were notified at the commit
                    self._receive(payload)

            await connection.add_listener(self._channel, receive)
            connection.add_termination_listener(self._note_lost)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _note_lost(self, _connection: Any) -> None:
        self._has_work.set()

    def _receive(self, payload: str) -> None:
        """Any role of the database may send to the channel: what is no list of topics says that anything may have changed."""
        topics = parse_payload(payload)
        if topics is None and not self._warned_of_foreign:
            self._warned_of_foreign = True
            log.warning("store.foreign_notification", extra={"channel": self._channel})
        if topics is None or EVERYTHING in topics:
            self._signals.notify_all()
        else:
            self._signals.notify(topics)

    async def _send_until_lost(self, connection: Connection) -> None:
        """Raises when the connection is lost, and returns when the store closes and nothing is left to send."""
        loop = asyncio.get_running_loop()
        check_at = loop.time() + CHECK_SECONDS
        while self._gathered or not self._is_closing:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(check_at):
                    await self._has_work.wait()
            self._has_work.clear()
            if loop.time() >= check_at or connection.is_closed():
                await self._on_check(connection)
                check_at = loop.time() + CHECK_SECONDS
            await self._send_gathered(connection)

    async def _send_gathered(self, connection: Connection) -> None:
        gathered, self._gathered = list(self._gathered), {}
        for payload in build_payloads(gathered):
            await connection.execute(_SQL["notify"].writing, self._channel, payload)
        self._failures = 0


def parse_payload(payload: str) -> Sequence[str] | None:
    """The topics of a payload; None if this version did not write it."""
    try:
        members = jsontext.loads(payload)
    except ValueError:
        return None
    if not isinstance(members, list):
        return None
    topics = [each for each in cast("list[object]", members) if isinstance(each, str)]
    return topics if len(topics) == len(cast("list[object]", members)) else None


def build_payloads(topics: Sequence[str]) -> Sequence[str]:
    """The topics as JSON lists of at most `PAYLOAD_BYTES_MAX`. A topic that is too long for one stands for all topics."""
    payloads: list[str] = []
    members: list[bytes] = []
    size = len("[]")
    for member in map(jsontext.dumps, topics):
        if len(member) > PAYLOAD_BYTES_MAX - len("[]"):
            return [jsontext.dumps([EVERYTHING]).decode()]
        if members and size + len(member) > PAYLOAD_BYTES_MAX:
            payloads.append(_join(members))
            members, size = [], len("[]")
        members.append(member)
        size += len(member) + len(",")
    return [*payloads, _join(members)] if members else payloads


def _join(members: Sequence[bytes]) -> str:
    return f"[{b','.join(members).decode()}]"
