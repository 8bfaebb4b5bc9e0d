"""The nodes' database: its URL for each node, and what happens to it and to the network before it."""

import asyncio
import signal
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from ringback.signing.sealing import KEY_BYTES
from scripts.chaos_runs.plan import Damage, FaultInjection, Plan, Store, Target
from tests.support.postgres import running_postgres
from tests.support.postgres_instance import SUPERUSER, PostgresInstance
from tests.support.tcp_proxy import TcpProxy, running_tcp_proxy

SECRET_KEYS: Final = f"chaos:{b64encode(b'k' * KEY_BYTES).decode()}"
"""Nodes on PostgreSQL share keys by configuration."""


class Database(Protocol):
    def spec(self, node: int) -> dict[str, Any]:
        """The arguments of the node's process that name the database."""
        ...

    async def inject_fault(self, fault: FaultInjection) -> None: ...


class SqliteDatabase:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def spec(self, node: int) -> dict[str, Any]:
        assert node == 0
        return {"database_url": f"sqlite:///{self._folder / 'ringback.db'}"}

    async def inject_fault(self, fault: FaultInjection) -> None:
        raise AssertionError(f"SQLite has no {fault.target}")


class PostgresDatabase:
    """A server, and a proxy for each node."""

    def __init__(self, server: PostgresInstance, proxies: Sequence[TcpProxy]) -> None:
        self._server = server
        self._proxies = proxies
        self._turn = asyncio.Lock()

    def spec(self, node: int) -> dict[str, Any]:
        url = self._server.address.tcp_url(SUPERUSER, port=self._proxies[node].port)
        return {"database_url": url, "secret_keys": SECRET_KEYS}

    async def inject_fault(self, fault: FaultInjection) -> None:
        if fault.target is Target.DATABASE:
            async with self._turn:
                await asyncio.to_thread(self._server.stop, signal.SIGQUIT)
                await asyncio.sleep(fault.freeze_seconds)
                await asyncio.to_thread(self._server.start)
        else:
            await self._damage_network(self._proxies[fault.node], fault)

    async def _damage_network(self, proxy: TcpProxy, fault: FaultInjection) -> None:
        match fault.damage:
            case Damage.STRAND_NODE:
                proxy.strand_clients()
            case Damage.STRAND_DATABASE:
                proxy.strand_server()
            case Damage.FREEZE:
                proxy.pause()
                await asyncio.sleep(fault.freeze_seconds)
                proxy.resume()
            case Damage.CUT | Damage.KILL:
                proxy.refuse()
                proxy.cut()
                await asyncio.sleep(fault.freeze_seconds)
                proxy.refuse(refusing=False)


@asynccontextmanager
async def running_database(plan: Plan, folder: Path) -> AsyncGenerator[Database]:
    if plan.store is Store.SQLITE:
        yield SqliteDatabase(folder)
        return
    async with running_postgres() as server, AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(running_tcp_proxy(server.port)) for _ in plan.nodes]
        yield PostgresDatabase(server, proxies)
