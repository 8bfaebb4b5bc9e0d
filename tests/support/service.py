"""The whole service in this process, behind its own HTTP interface: real store, real services, real API, and no runner.

    async with running_service(tmp_path) as service:
        alice = await service.client("alice")
        started = await alice.post("/v1/calls", json=CALL_BODY)
        await service.finish(started.json()["call"]["id"])

Nothing is called upstream: a test ends a call by itself, as the runner would, in a transaction of the store.
"""

import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, cast

import httpx
from fastapi import FastAPI

from ringback.api.app import ApiConfig, Services, create_app
from ringback.domain.call import Call, Ending, Progress, answered
from ringback.domain.clock import SystemClock, seconds
from ringback.domain.delivery import Delivery
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import CallId, Ids
from ringback.domain.ports import DeliveryFilter, Store, ToolInfo, Transaction, UpstreamInfo
from ringback.domain.principal import DEFAULT_SCOPES, Principal, Scope
from ringback.janitor import Janitor, JanitorConfig, Retention
from ringback.notifier.body import Bodies
from ringback.notifier.record import Recorder
from ringback.notifier.resume_tokens import CallTokens
from ringback.notifier.target_guard import TargetGuard, TargetPolicy
from ringback.runner.catalog import UpstreamCatalog
from ringback.runner.connection import Connection, ConnectionState
from ringback.services.calls import Calls
from ringback.services.deliveries import Deliveries
from ringback.services.events import Events
from ringback.services.insights import Insights
from ringback.services.keys import Keys
from ringback.services.lifecycle import Lifecycle
from ringback.services.resume import Resume
from ringback.services.webhooks import Webhooks
from ringback.signing.resume_token import ResumeTokens
from tests.support.stores import sqlite_store
from tests.support.targets import FakeResolver

PUBLIC_URL: Final = "https://ringback.example"
CALLBACK_URL: Final = "https://agent.example/callback"
RESULT: Final = b'{"content":[{"type":"text","text":"done"}],"isError":false}'
RETENTION_SECONDS: Final = 7 * 86400.0
REQUEST_BYTES_MAX: Final = 64 * 1024

CALL_BODY: Final[dict[str, Any]] = {
    "upstream": "git",
    "tool": "git_log",
    "arguments": {"repo_path": "/srv/repo"},
    "client_session_id": "session-1",
    "correlation_id": "report-1",
}

_TOOLS: Final = {
    "git": (
        {
            "name": "git_log",
            "description": "Shows the commit logs",
            "inputSchema": {
                "type": "object",
                "properties": {"repo_path": {"type": "string"}, "max_count": {"type": "integer"}},
                "required": ["repo_path"],
            },
        },
        {"name": "git_status", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    ),
    "time": ({"name": "get_time", "inputSchema": {"type": "object"}},),
}


class ShiftedClock(SystemClock):
    """The machine's clock, some way ahead: waits take their own time, and a test can still let days pass."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self._ahead

    def advance(self, by_seconds: float) -> None:
        self._ahead += seconds(by_seconds)


class ListedConnection:
    """What the catalog sees of a connection whose upstream has listed its tools."""

    state = ConnectionState.READY

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self) -> UpstreamInfo:
        return UpstreamInfo(name=self._name, transport="stdio", state=str(self.state), max_concurrent=16)

    async def tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo]:
        del age_seconds_max
        return {
            raw["name"]: ToolInfo(
                name=raw["name"], description=raw.get("description"), input_schema=raw["inputSchema"], raw=raw
            )
            for raw in cast("tuple[dict[str, Any], ...]", _TOOLS[self._name])
        }


class FailingStore:
    """The store, until a test says that the disk is full."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.signals = store.signals
        self.full = False

    async def read(self, work: Callable[[Transaction], Any]) -> Any:
        return await self._store.read(work)

    async def write(self, work: Callable[[Transaction], Any]) -> Any:
        if self.full:
            raise StoreUnavailable("The database cannot be written now. Nothing was started.")
        return await self._store.write(work)


@dataclass(slots=True, kw_only=True)
class Service:
    app: FastAPI
    services: Services
    store: FailingStore
    clock: ShiftedClock
    ids: Ids
    recorder: Recorder
    file: Path
    failing: set[str] = field(default_factory=set[str])
    """Names of workers that are to count as failing."""
    _stack: AsyncExitStack

    async def client(self, principal: str, **key: Any) -> httpx.AsyncClient:
        """An HTTP client with an API key of this principal's; `scopes` and `upstreams` narrow the key."""
        return await self.anonymous(headers={"Authorization": f"Bearer {await self.key(principal, **key)}"})

    async def anonymous(self, **options: Any) -> httpx.AsyncClient:
        """An HTTP client without a key."""
        options = {"base_url": PUBLIC_URL} | options
        client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), **options)
        return await self._stack.enter_async_context(client)

    async def key(
        self,
        principal: str,
        *,
        scopes: frozenset[Scope] = DEFAULT_SCOPES,
        upstreams: frozenset[str] | None = None,
    ) -> str:
        _, text = await self.services.keys.create(principal, name="test", scopes=scopes, upstreams=upstreams)
        return text

    async def finish(self, call_id: str, ending: Ending | None = None) -> Call:
        """End a call, as the runner does."""

        async def finish(tx: Transaction) -> Call | None:
            return await self.recorder.finish(
                tx, await _call(tx, call_id), ending or answered(RESULT, is_error=False), lease_token=None
            )

        ended = await self.store.write(finish)
        assert ended is not None
        return ended

    async def dispatch(self, call_id: str) -> None:
        """Mark a call as on its way to the upstream, as the runner does."""

        async def dispatch(tx: Transaction) -> bool:
            call = await _call(tx, call_id)
            running = replace(call, dispatched_at=tx.now(), runs=1, lease_token="lease_1", updated_at=tx.now())
            return await tx.calls.update(running, expected=call.status, lease_token=None)

        assert await self.store.write(dispatch)

    async def progress(self, call_id: str, progress: Progress) -> None:
        """Tell progress of a call that was dispatched."""

        async def tell(tx: Transaction) -> bool:
            return await self.recorder.progress(tx, await _call(tx, call_id), progress, lease_token="lease_1")

        assert await self.store.write(tell)

    async def deliveries(self, principal: str) -> list[Delivery]:
        """Everything that was or will be sent, newest first."""
        return list(
            await self.store.read(
                lambda tx: tx.deliveries.page(Principal(principal), DeliveryFilter(), before=None, limit=1000)
            )
        )

    async def clean_up(self) -> None:
        """One round of the janitor, which buries what has expired."""
        config = JanitorConfig(retention=Retention())
        await Janitor(store=self.store, recorder=self.recorder, sleep=self.clock.sleep, config=config).run_once()

    def rows(self) -> dict[str, int]:
        """How many rows each table has, but for keys: what a refused request must not change."""
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {
                table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - its own names
                for table in tables
                if table != "api_keys"
            }


@asynccontextmanager
async def running_service(
    folder: Path,
    *,
    auth: Literal["keys", "off"] = "keys",
    public_url: str = PUBLIC_URL,
    allowed_hosts: Collection[str] = (),
    allowed_origins: Collection[str] = (),
) -> AsyncGenerator[Service]:
    """A service whose files are in `folder`."""
    clock = ShiftedClock()
    async with AsyncExitStack() as stack:
        store = FailingStore(await stack.enter_async_context(sqlite_store(folder, clock)))
        ids = Ids(clock)
        tokens = CallTokens(
            ResumeTokens([os.urandom(32)], audience="ringback"), result_retention_seconds=RETENTION_SECONDS
        )
        recorder = Recorder(
            ids=ids, bodies=Bodies(tokens=tokens, public_url=PUBLIC_URL), result_retention_seconds=RETENTION_SECONDS
        )
        guard = TargetGuard(TargetPolicy(), resolver=FakeResolver({"inside.example": ["10.0.0.1"]}))
        services = _services(store, clock, ids, tokens, recorder, guard)
        failing: set[str] = set()
        config = ApiConfig(
            auth=auth,
            public_url=public_url,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            request_bytes_max=REQUEST_BYTES_MAX,
            failing_workers=lambda: frozenset(failing),
        )
        yield Service(
            app=create_app(services, config=config),
            services=services,
            store=store,
            clock=clock,
            ids=ids,
            recorder=recorder,
            file=folder / "ringback.db",
            failing=failing,
            _stack=stack,
        )


def _services(
    store: Store, clock: ShiftedClock, ids: Ids, tokens: CallTokens, recorder: Recorder, guard: TargetGuard
) -> Services:
    lifecycle = Lifecycle()
    catalog = UpstreamCatalog({name: cast("Connection", ListedConnection(name)) for name in _TOOLS})
    webhooks = Webhooks(store=store, clock=clock, ids=ids, recorder=recorder, guard=guard, lifecycle=lifecycle)
    calls = Calls(
        store=store,
        clock=clock,
        ids=ids,
        catalog=catalog,
        recorder=recorder,
        tokens=tokens,
        webhooks=webhooks,
        lifecycle=lifecycle,
    )
    return Services(
        calls=calls,
        webhooks=webhooks,
        events=Events(store=store, clock=clock, lifecycle=lifecycle),
        deliveries=Deliveries(store=store),
        resume=Resume(store=store, clock=clock, tokens=tokens, lifecycle=lifecycle),
        keys=Keys(store=store, ids=ids),
        insights=Insights(store=store, catalog=catalog, lifecycle=lifecycle),
        lifecycle=lifecycle,
    )


async def _call(tx: Transaction, call_id: str) -> Call:
    call = await tx.calls.get(CallId(call_id))
    assert call is not None
    return call
