"""The connections of one upstream with credentials for each principal: one for each principal that uses it.

    first use ──▶ opened ──▶ calls, lists and requests of its owner ──▶ unused for a while ──▶ closed
                                                                   └──▶ closed earlier, if another principal needs its place

No connection serves two principals. So a principal sees only what the upstream shows to the holder of its own token: tools,
resources, results, notifications, questions. The connections are limited; one that is in use is never closed for another
principal, whose calls then wait.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import anyio

from ringback.domain.clock import Clock
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.upstreams import UpstreamInfo
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.connection_factory import RestoreCatalog
from ringback.upstreams.connection_tasks import ConnectionTasks
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.faults import FaultCounter

CONNECTIONS_MAX: Final = 1000
"""Connections of one upstream. A modern or legacy session over HTTP holds at most one open stream while nothing is requested,
so all of them together come near the usual limit of 1,024 open files."""
IDLE_SECONDS: Final = 600.0
"""Long enough for an agent that pauses between two calls; servers on the SDK end idle sessions after 30 minutes."""

MakeConnection = Callable[[UpstreamConfig, Principal, FaultCounter], tuple[UpstreamConnection, RestoreCatalog]]

_STATE_ORDER: Final = ("ready", "unresponsive", "connecting", "failing", "idle")
"""One connection that works shows that the upstream works; one that fails may lack only the login of its owner."""


class _OwnedConnection:
    def __init__(self, connection: UpstreamConnection, *, opened_at: float) -> None:
        self.connection = connection
        self.user_count = 0
        """Calls and requests that run now: the connection stays open."""
        self.unused_since = opened_at


class OwnedConnections:
    def __init__(
        self,
        config: UpstreamConfig,
        *,
        make_connection: MakeConnection,
        tasks: ConnectionTasks,
        clock: Clock,
        connections_max: int = CONNECTIONS_MAX,
        replaced: "OwnedConnections | None" = None,
    ) -> None:
        """`replaced` are the connections of the upstream's last configuration, whose listeners listen on these now."""
        self.config = config
        self._make_connection = make_connection
        self._tasks = tasks
        self._clock = clock
        self._connections_max = connections_max
        self._entries: dict[Principal, _OwnedConnection] = {}
        self._unused: dict[Principal, None] = {}
        """The owners whose connections nothing uses now, in the order of last use."""
        self.listener_counts = Counter[Principal]() if replaced is None else replaced.listener_counts
        """Listeners of notifications: the connection stays open unless another principal needs its place."""
        self._faults = FaultCounter(config.name, clock=clock)
        self._released = anyio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def find_connection(self, owner: Principal) -> UpstreamConnection | None:
        """The open connection of the owner. The caller uses it at once, and does not wait meanwhile."""
        return None if (entry := self._entries.get(owner)) is None else entry.connection

    @contextmanager
    def use_connection(self, owner: Principal) -> Generator[UpstreamConnection]:
        """The owner's connection, which stays open while entered. Raises `UpstreamUnreachable` if too many are in use."""
        entry = self._get_or_open(owner)
        entry.user_count += 1
        self._unused.pop(owner, None)
        try:
            yield entry.connection
        finally:
            entry.user_count -= 1
            self._note_release(owner, entry)

    @contextmanager
    def listen_on_connection(self, owner: Principal, *, opens: bool = True) -> Generator[None]:
        """Keep the owner's connection open for its notifications while entered, unless another principal needs its place.

        Without `opens`, or if too many connections are in use, the next use opens it.
        """
        self.listener_counts[owner] += 1
        try:
            if opens:
                self._open_if_possible(owner)
            yield
        finally:
            self.listener_counts[owner] -= 1
            if not self.listener_counts[owner]:
                del self.listener_counts[owner]

    async def wait_for_place(self, owner: Principal, timeout_seconds: float) -> None:
        """Wait until `use_connection` would not raise, but no longer than the timeout."""
        with anyio.move_on_after(timeout_seconds):
            while owner not in self._entries and len(self) >= self._connections_max and not self._unused:
                await self._released.wait()

    def get_info(self, principal: Principal | None) -> UpstreamInfo:
        """The state of the principal's connection; None: of all of them."""
        entries = self._entries.values() if principal is None else filter(None, [self._entries.get(principal)])
        infos = [entry.connection.get_info() for entry in entries]
        return merge_infos(self.config, infos, faults=self._faults.counts)

    def list_connections(self) -> Sequence[UpstreamConnection]:
        return [entry.connection for entry in self._entries.values()]

    def open_for_listeners(self) -> None:
        for owner in list(self.listener_counts):
            self._open_if_possible(owner)

    def drain_connections(self) -> None:
        """Take no further calls, because the configuration replaced or removed the upstream."""
        for owner in list(self._entries):
            self._close_entry(owner)
        self._notify_waiters()

    def replace_connection(self, connection: UpstreamConnection) -> None:
        """Give this connection no further calls. The next use opens another one, or listeners do so at once."""
        owner = connection.owner
        if (entry := self._entries.get(owner)) is None or entry.connection is not connection:
            return
        self._close_entry(owner)
        if owner in self.listener_counts:
            self._open_if_possible(owner)
        self._notify_waiters()

    def close_idle_connections(self) -> None:
        """Close the connections that were not used for too long."""
        unused_before = self._clock.monotonic() - IDLE_SECONDS
        for owner in list(self._unused):
            if owner not in self.listener_counts and self._entries[owner].unused_since <= unused_before:
                self._close_entry(owner)

    def _open_if_possible(self, owner: Principal) -> None:
        with suppress(UpstreamUnreachable):
            self._get_or_open(owner)

    def _get_or_open(self, owner: Principal) -> _OwnedConnection:
        if (entry := self._entries.get(owner)) is not None:
            return entry
        if owner == SHARED_OWNER:
            raise UpstreamUnreachable("each principal has a connection of its own, and this request has no principal.")
        self._close_unused()
        connection, restore = self._make_connection(self.config, owner, self._faults)
        entry = self._entries[owner] = _OwnedConnection(connection, opened_at=self._clock.monotonic())
        self._unused[owner] = None
        self._tasks.start_connection(connection, prepare=restore)
        return entry

    def _close_unused(self) -> None:
        """At the limit, close a connection without users, if there is one. Raises `UpstreamUnreachable` if there is none."""
        if len(self._entries) < self._connections_max:
            return
        unused = next((each for each in self._unused if each not in self.listener_counts), None)
        if (unused := unused or next(iter(self._unused), None)) is None:
            raise UpstreamUnreachable(
                f"all {self._connections_max} connections are in use by other principals. Try again."
            )
        self._close_entry(unused)

    def _note_release(self, owner: Principal, entry: _OwnedConnection) -> None:
        if entry.user_count or self._entries.get(owner) is not entry:
            return
        entry.unused_since = self._clock.monotonic()
        self._unused[owner] = None
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        self._released.set()
        self._released = anyio.Event()

    def _close_entry(self, owner: Principal) -> None:
        self._unused.pop(owner, None)
        self._tasks.drain_connection(self._entries.pop(owner).connection)


def merge_infos(config: UpstreamConfig, infos: Sequence[UpstreamInfo], *, faults: Mapping[str, int]) -> UpstreamInfo:
    """Describe an upstream with several connections, or with none yet, as one. `infos` are those that the reader may see."""
    if infos:
        best = min(infos, key=lambda info: _STATE_ORDER.index(info.state))
        return replace(
            best,
            connections=sum(info.connections for info in infos),
            calls_in_flight=sum(info.calls_in_flight for info in infos),
            calls_waiting=sum(info.calls_waiting for info in infos),
        )
    return UpstreamInfo(
        name=config.name,
        configured_name=config.configured_name,
        transport=str(config.transport),
        state="idle",
        credentials=config.credentials if config.takes_login else None,
        connections=0,
        max_concurrent=config.max_concurrent,
        isolation=str(config.isolation),
        trusts_annotations=config.trusts_annotations,
        checks_arguments=config.checks_arguments,
        faults=faults,
    )
