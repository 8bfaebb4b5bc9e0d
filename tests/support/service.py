"""The whole service in this process, behind its own HTTP interface: real store, real services, real API, and no runner.

    async with running_service(tmp_path) as service:
        alice = await service.client("alice")
        started = await alice.post("/v1/calls", json=CALL_BODY)
        await service.finish(started.json()["call"]["id"])

Nothing is called upstream: a test ends a call by itself, as the runner would, in a transaction of the store.
"""

import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, cast

import httpx
from fastapi import FastAPI

from ringback.api.app import ApiConfig, Services, create_app
from ringback.domain import inputs
from ringback.domain.call import MRTR, Call, Ending, Handle, Phase, Progress, answered, enter
from ringback.domain.clock import SystemClock, seconds
from ringback.domain.delivery import Delivery, DeliveryState, Settled
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import CallId, Ids, WebhookId
from ringback.domain.inputs import ELICITATION
from ringback.domain.ports import DeliveryFilter, Store, Transaction
from ringback.domain.principal import DEFAULT_SCOPES, Principal, Scope
from ringback.domain.upstreams import Reloaded, ToolInfo, UpstreamInfo
from ringback.domain.webhook import WebhookState
from ringback.identity.bearers import Bearers, Everybody
from ringback.janitor import Janitor, JanitorConfig, Retention
from ringback.notifier.body import Bodies
from ringback.notifier.on_demand import OnDemand
from ringback.notifier.record import Recorder
from ringback.notifier.resume_tokens import CallTokens
from ringback.notifier.target_guard import TargetGuard, TargetPolicy
from ringback.runner.catalog import UpstreamCatalog
from ringback.runner.connection import Connection, ConnectionState
from ringback.services.adoption import Adoption
from ringback.services.answers import Answers
from ringback.services.calls import Calls
from ringback.services.deliveries import Deliveries
from ringback.services.events import Events
from ringback.services.insights import Insights
from ringback.services.keys import Keys
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaKeeper, Quotas
from ringback.services.replays import Replays
from ringback.services.reports import Reports
from ringback.services.resume import Resume
from ringback.services.upkeep import Upkeep
from ringback.services.verification import Verification, VerificationPolicy
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
    trusted = False

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self) -> UpstreamInfo:
        return UpstreamInfo(
            name=self._name,
            transport="stdio",
            state=str(self.state),
            max_concurrent=16,
            trust_annotations=self.trusted,
        )

    def inline_wait_seconds(self, tool: str) -> float | None:
        """As it is without any configuration."""

    def task_only(self, tool: str) -> bool:
        del tool
        return False

    async def tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo]:
        del age_seconds_max
        return self.known_tools()

    async def fresh_tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo]:
        return await self.tools(age_seconds_max=age_seconds_max)

    def known_tools(self) -> Mapping[str, ToolInfo]:
        return {
            raw["name"]: ToolInfo(
                name=raw["name"], description=raw.get("description"), input_schema=raw["inputSchema"], raw=raw
            )
            for raw in cast("tuple[dict[str, Any], ...]", _TOOLS[self._name])
        }


class FixedUpstreams:
    """Upstreams whose configuration never changes."""

    def reload(self) -> Reloaded:
        """Implements `domain.upstreams.Configured`."""
        return Reloaded(added=[], changed=[], removed=[], unchanged=sorted(_TOOLS))


class NoTasks:
    """Upstreams that know no task of any name."""

    async def find(self, upstream: str, task_id: str, *, visible: frozenset[str] | None) -> None:
        """Implements `services.adoption.TaskLookup`."""


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
            running = replace(
                call, phase=Phase.RUNNING, dispatched_at=tx.now(), runs=1, lease_token="lease_1", updated_at=tx.now()
            )
            return await tx.calls.update(running, expected=call.status, lease_token=None)

        assert await self.store.write(dispatch)

    async def ask(self, call_id: str, *names: str) -> Call:
        """Have the upstream ask, and hold nothing until it is answered, as the runner does."""
        asked = {name: {"method": ELICITATION, "params": {"message": f"{name}?"}} for name in names}

        async def park(tx: Transaction) -> Call:
            call = await _call(tx, call_id)
            handle = Handle(driver=MRTR, data={"request_state": None, "round": 1})
            dispatched = replace(call, phase=Phase.RUNNING, dispatched_at=tx.now(), runs=1, handle=handle)
            parked = enter(inputs.ask(dispatched, asked, now=tx.now()), Phase.PARKED, now=tx.now())
            assert await self.recorder.ask(tx, call, parked, lease_token=None)
            return parked

        return await self.store.write(park)

    async def call(self, call_id: str) -> Call:
        """The call as it is stored."""
        return await self.store.read(lambda tx: _call(tx, call_id))

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

    async def settle(self, deliveries: Sequence[Delivery], state: DeliveryState) -> None:
        """End these deliveries, as the dispatcher does; what else was due stays pending."""
        wanted = {delivery.id for delivery in deliveries}

        async def settle(tx: Transaction) -> None:
            for webhook_id in {delivery.webhook_id for delivery in deliveries}:
                now = tx.now()
                leased = await tx.delivery_queue.lease(
                    webhook_id, now=now, token="lease_1", until=now + seconds(60), limit=1000, ordered=False
                )
                settled = [
                    Settled(
                        delivery=delivery,
                        state=state if delivery.id in wanted else DeliveryState.PENDING,
                        due_at=delivery.due_at,
                        category=None,
                        finished_at=now if delivery.id in wanted else None,
                    )
                    for delivery in leased
                ]
                assert wanted & set(await tx.delivery_queue.settle(settled))

        await self.store.write(settle)

    async def put_into(self, webhook_id: str, state: WebhookState) -> None:
        """Put a webhook into a state that only the service gives."""

        async def put(tx: Transaction) -> bool:
            webhook = await tx.webhooks.get(WebhookId(webhook_id))
            assert webhook is not None
            return await tx.webhooks.update(replace(webhook, state=state))

        assert await self.store.write(put)

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
    quotas: Quotas | None = None,
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
        services = _services(store, clock, ids, tokens, recorder, guard, quotas or Quotas())
        failing: set[str] = set()
        config = ApiConfig(
            authenticator=Bearers(keys=services.keys) if auth == "keys" else Everybody(),
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
    store: Store,
    clock: ShiftedClock,
    ids: Ids,
    tokens: CallTokens,
    recorder: Recorder,
    guard: TargetGuard,
    quotas: Quotas,
) -> Services:
    lifecycle = Lifecycle()
    catalog = UpstreamCatalog({name: cast("Connection", ListedConnection(name)) for name in _TOOLS})
    keeper, on_demand = QuotaKeeper(quotas, clock=clock), OnDemand(ids=ids)
    webhooks = Webhooks(
        store=store,
        clock=clock,
        ids=ids,
        recorder=recorder,
        on_demand=on_demand,
        guard=guard,
        quotas=keeper,
        lifecycle=lifecycle,
        verification=Verification(
            store=store,
            clock=clock,
            lifecycle=lifecycle,
            targets=guard.policy,
            policy=VerificationPolicy(patience_seconds=0.0),
        ),
        catalog=catalog,
    )
    calls = Calls(
        store=store,
        clock=clock,
        ids=ids,
        catalog=catalog,
        recorder=recorder,
        tokens=tokens,
        webhooks=webhooks,
        quotas=keeper,
        lifecycle=lifecycle,
    )
    return Services(
        calls=calls,
        answers=Answers(store, recorder),
        adoption=Adoption(
            store=store,
            ids=ids,
            tasks=NoTasks(),
            tokens=tokens,
            webhooks=webhooks,
            quotas=keeper,
            lifecycle=lifecycle,
        ),
        reports=Reports(
            store=store,
            ids=ids,
            recorder=recorder,
            tokens=tokens,
            webhooks=webhooks,
            quotas=keeper,
            lifecycle=lifecycle,
        ),
        webhooks=webhooks,
        events=Events(store=store, clock=clock, quotas=keeper, lifecycle=lifecycle),
        deliveries=Deliveries(store=store),
        replays=Replays(store=store, on_demand=on_demand, quotas=keeper, lifecycle=lifecycle),
        resume=Resume(store=store, clock=clock, tokens=tokens, lifecycle=lifecycle),
        keys=Keys(store=store, ids=ids),
        insights=Insights(store=store, catalog=catalog, quotas=keeper, lifecycle=lifecycle),
        upkeep=Upkeep(store=store, configured=FixedUpstreams()),
        lifecycle=lifecycle,
    )


async def _call(tx: Transaction, call_id: str) -> Call:
    call = await tx.calls.get(CallId(call_id))
    assert call is not None
    return call
