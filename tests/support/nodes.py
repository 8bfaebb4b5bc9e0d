"""Several nodes of one service in this process, over one PostgreSQL database.

    async with running_cluster(tmp_path, make_http_config(server.url)) as cluster:
        first, second = await cluster.start_node(), await cluster.start_node(roles="api")
        alice = await first.create_agent_client("alice")

Each node has its own store, connections, upstream sessions and workers: nothing in memory is shared.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from ringback.bootstrap import Environment
from ringback.client import RingbackClient
from ringback.domain.principal import ALL_SCOPES
from ringback.domain.roles import Role
from ringback.services.insights.missing_roles import has_node
from ringback.signing.sealing import KEY_BYTES
from ringback.upstreams.config import UpstreamConfig
from tests.support.api_server import serving_api
from tests.support.application import PUBLIC_URL, RunningApplication, running_application
from tests.support.databases import migrated_postgres

SECRET_KEYS: Final = f"test:{b64encode(b'k' * KEY_BYTES).decode()}"


@dataclass(slots=True)
class Node:
    """One node. `stop` stops it as SIGTERM does."""

    ringback: RunningApplication
    url: str
    """Where its API is served on a real socket."""
    _running: AsyncExitStack

    async def client(self, key: str) -> RingbackClient:
        return await self.ringback.client(api_key=key)

    async def stop(self) -> None:
        await self._running.aclose()

    async def get(self, path: str, *, key: str | None = None) -> httpx.Response:
        return await self._send("GET", path, key=key)

    async def post(self, path: str, body: dict[str, Any], *, key: str) -> httpx.Response:
        return await self._send("POST", path, key=key, json=body)

    async def _send(self, method: str, path: str, *, key: str | None, **content: Any) -> httpx.Response:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        transport = httpx.ASGITransport(app=self.ringback.app.api)
        async with httpx.AsyncClient(transport=transport, base_url=PUBLIC_URL, headers=headers) as http:
            return await http.request(method, path, **content)


@dataclass(slots=True)
class Cluster:
    folder: Path
    database_url: str
    upstreams: tuple[UpstreamConfig, ...]
    settings: dict[str, Any]
    _stack: AsyncExitStack
    nodes: list[Node] = field(default_factory=list[Node])

    async def start_node(
        self,
        *,
        environment: Environment | None = None,
        database_url: str | None = None,
        upstreams: Sequence[UpstreamConfig] | None = None,
        **settings: Any,
    ) -> Node:
        running = AsyncExitStack()
        await self._stack.enter_async_context(running)
        configured: dict[str, Any] = {
            "secret_keys": SECRET_KEYS,
            "allowed_hosts": ("127.0.0.1",),
            **self.settings,
            **settings,
        }
        ringback = await running.enter_async_context(
            running_application(
                self.folder,
                *(self.upstreams if upstreams is None else upstreams),
                environment=environment,
                database_url=database_url or self.database_url,
                **configured,
            )
        )
        url = await running.enter_async_context(serving_api(ringback.app.api))
        node = Node(ringback, url, running)
        self.nodes.append(node)
        return node

    async def create_key(self, principal: str) -> str:
        """An API key, which every node accepts."""
        _, key = await self.nodes[0].ringback.app.services.api_keys.create_key(
            principal, name="test", scopes=ALL_SCOPES, upstreams=None
        )
        return key


@asynccontextmanager
async def running_cluster(folder: Path, *upstreams: UpstreamConfig, **settings: Any) -> AsyncGenerator[Cluster]:
    """A database with empty tables, and the nodes that the test starts; all stopped at the end of the context."""
    with migrated_postgres() as database_url:
        async with AsyncExitStack() as stack:
            yield Cluster(folder, database_url, upstreams, settings, stack)


async def wait_for_node(node: Node, role: Role) -> None:
    """Until some node has the duty of the role."""
    while not await node.ringback.app.store.read(lambda tx: has_node(tx, role)):  # noqa: ASYNC110 - a lease sets no event
        await asyncio.sleep(0.01)
