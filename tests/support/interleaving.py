"""Units of work of two nodes, interleaved: one has run and is not committed while the other one runs.

nodes = two nodes on one PostgreSQL database; on SQLite, where one process serves, both are the same
await nodes.interleave(lambda node: …, lambda node: …)
"""

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, TypeVar

from ringback.bootstrap import Environment
from ringback.bootstrap.components import open_components
from ringback.bootstrap.policies import build_retention, build_services_config
from ringback.bootstrap.services import build_services
from ringback.domain.clock import Clock
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.services.services import Services
from ringback.settings import Settings
from ringback.signing.sealing import KEY_BYTES, generate_key_ring_entry
from tests.support.databases import TEST_DATABASES, StoreKind, database_url, query_rows
from tests.support.examples import ALICE, BOB
from tests.support.limits import WAIT_SECONDS
from tests.support.stores import StoreWrapper

T = TypeVar("T")

SECRET_KEYS: Final = generate_key_ring_entry(b"k" * KEY_BYTES)
LOCK_WAITS: Final = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


@dataclass(slots=True)
class HeldUnit:
    """A unit of work that has run all its statements and commits once it is released."""

    has_run: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)


class HoldingStore(StoreWrapper):
    """Holds a unit of work before its commit."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._next: HeldUnit | None = None

    def hold_next_write(self) -> HeldUnit:
        self._next = HeldUnit()
        return self._next

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.write(self._hold_if_next(work))

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """For its principal, whose units have a share of the connections only."""
        return await self._store.write_for(principal, self._hold_if_next(work))

    def _hold_if_next(self, work: Callable[[Transaction], Awaitable[T]]) -> Callable[[Transaction], Awaitable[T]]:
        held, self._next = self._next, None
        if held is None:
            return work

        async def run_and_hold(tx: Transaction) -> T:
            value = await work(tx)
            held.has_run.set()
            while not held.released.is_set():
                await tx.pause()
            return value

        return run_and_hold


@dataclass(frozen=True, slots=True)
class Node:
    store: HoldingStore
    services: Services


@dataclass(frozen=True, slots=True)
class Nodes:
    folder: Path
    first: Node
    second: Node

    async def interleave(
        self, first: Callable[[Node], Awaitable[Any]], second: Callable[[Node], Awaitable[Any]]
    ) -> tuple[Any, Any]:
        """The results, or errors, of both: the second one runs while the first one's unit of work is not committed."""
        held = self.first.store.hold_next_write()
        one = asyncio.ensure_future(first(self.first))
        async with asyncio.timeout(WAIT_SECONDS):
            await held.has_run.wait()
            two = asyncio.ensure_future(second(self.second))
            await self._wait_until_ended_or_blocked(two)
            held.released.set()
            results = await asyncio.gather(one, two, return_exceptions=True)
        return results[0], results[1]

    async def wait_until_blocked(self, *, units: int = 1) -> None:
        """So many units wait for a row that another unit has locked. On PostgreSQL only."""
        while query_rows(self.folder, LOCK_WAITS)[0][0] < units:  # noqa: ASYNC110 - PostgreSQL sets no event
            await asyncio.sleep(0.001)

    async def _wait_until_ended_or_blocked(self, task: "asyncio.Future[Any]") -> None:
        if TEST_DATABASES.kind is StoreKind.SQLITE:
            return  # its unit waits until the first one is committed
        while not task.done() and query_rows(self.folder, LOCK_WAITS)[0][0] == 0:  # noqa: ASYNC110 - PostgreSQL sets no event
            await asyncio.sleep(0.001)


@asynccontextmanager
async def open_nodes(folder: Path, clock: Clock, **settings: Any) -> AsyncGenerator[Nodes]:
    """Two nodes without workers and entry points."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(_open_node(folder, clock, **settings))
        if TEST_DATABASES.kind is StoreKind.SQLITE:
            yield Nodes(folder, first, first)
        else:
            yield Nodes(folder, first, await stack.enter_async_context(_open_node(folder, clock, **settings)))


@asynccontextmanager
async def _open_node(folder: Path, clock: Clock, **settings: Any) -> AsyncGenerator[Node]:
    configured = _read_settings(**settings).model_copy(update={"database_url": database_url(folder)})
    stores: list[HoldingStore] = []

    def hold(store: Store) -> Store:
        stores.append(HoldingStore(store))
        return stores[-1]

    environment = Environment(clock=clock, wrap_store=hold)
    async with open_components(configured, [], None, environment, build_retention(configured)) as components:
        yield Node(stores[-1], build_services(components, build_services_config(configured)))


@functools.cache
def _read_settings(**settings: Any) -> Settings:
    """The settings of nodes, which are the same in nearly all tests. To make them takes 5 ms."""
    return Settings.model_validate(
        {
            "secret_keys": SECRET_KEYS,
            "callback_private_cidrs": (ip_network("127.0.0.0/8"),),
            "callback_http": True,
            **settings,
        }
    )


def make_caller(principal: Principal) -> Caller:
    return Caller(principal=principal, scopes=frozenset({Scope.ADMIN}))


CALLER: Final = make_caller(ALICE)
OTHER_CALLER: Final = make_caller(BOB)
