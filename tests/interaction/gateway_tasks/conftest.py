"""One Ringback with upstreams with modern tasks, legacy tasks and no tasks, shared by all tests of a module."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from tests.support.api_server import serving_api
from tests.support.application import RunningApplication, running_application
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import LEGACY, Json, LegacyClientSession, ModernClient, legacy_session
from tests.support.resource_upstream import ResourceUpstream
from tests.support.task_upstream import TaskUpstream, UpstreamTask
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

RELATED: Final = "io.modelcontextprotocol/related-task"


@dataclass(slots=True)
class TasksHarness:
    """The upstreams are `plain`, `tasks`, `legacy` and `notes`, like the objects behind them."""

    ringback: RunningApplication
    url: str
    http: httpx.AsyncClient
    plain: ControlledUpstream
    tasks: TaskUpstream
    legacy: LegacyUpstream
    notes: ResourceUpstream
    keys: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    async def get_api_key(self, principal: str) -> str | None:
        if principal not in self.keys:
            keys = self.ringback.app.services.api_keys
            _, self.keys[principal] = await keys.create_key(
                principal, name="test", scopes=DEFAULT_SCOPES, upstreams=None
            )
        return self.keys[principal]

    async def make_modern_client(self, principal: str = "alice", *, upstream: str = "tasks") -> ModernClient:
        return ModernClient(self.http, f"{self.url}/mcp/{upstream}", await self.get_api_key(principal))

    @asynccontextmanager
    async def open_legacy_session(
        self,
        principal: str = "alice",
        *,
        upstream: str = "tasks",
        version: str = LEGACY,
        capabilities: Json | None = None,
    ) -> AsyncGenerator[LegacyClientSession]:
        url, key = f"{self.url}/mcp/{upstream}", await self.get_api_key(principal)
        async with legacy_session(self.http, url, key=key, version=version, capabilities=capabilities) as session:
            yield session

    async def start_task(self, tool: str = "work", principal: str = "alice") -> tuple[str, UpstreamTask]:
        """A task of a modern client, and the upstream's task behind it."""
        count = len(self.tasks.tasks)
        created = await (await self.make_modern_client(principal)).request(
            "tools/call", {"name": tool, "arguments": {}}
        )
        return created["taskId"], await self.tasks.wait_for_task(count + 1)

    async def start_task_in_session(
        self, session: LegacyClientSession, tool: str = "work", **params: Any
    ) -> tuple[str, UpstreamTask]:
        """The same in a legacy session."""
        count = len(self.tasks.tasks)
        created = await session.request("tools/call", {"name": tool, "arguments": {}, "task": {}, **params})
        return created["task"]["taskId"], await self.tasks.wait_for_task(count + 1)

    async def start_asking_task(self, session: LegacyClientSession, **params: Any) -> tuple[str, UpstreamTask]:
        """The same, and the task has a question."""
        task_id, task = await self.start_task_in_session(session, **params)
        task.request_input("sure")
        return task_id, task


@asynccontextmanager
async def running_tasks_gateway(folder: Path, **settings: Any) -> AsyncGenerator[TasksHarness]:
    plain, tasks, legacy, notes = (
        ControlledUpstream(),
        TaskUpstream(listening=True),
        LegacyUpstream(),
        ResourceUpstream(),
    )
    async with AsyncExitStack() as stack:
        stages: Sequence[tuple[str, Any]] = (
            ("plain", plain.app()),
            ("tasks", tasks.app()),
            ("legacy", legacy.app()),
            ("notes", notes.app()),
        )
        configs = [
            make_http_config((await stack.enter_async_context(serving(app))).url, name=name) for name, app in stages
        ]
        ringback = await stack.enter_async_context(
            running_application(folder, *configs, allowed_hosts=("127.0.0.1",), task_grace_seconds=0.0, **settings)
        )
        url = await stack.enter_async_context(serving_api(ringback.app.api))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        yield TasksHarness(ringback, url, http, plain, tasks, legacy, notes)


@pytest.fixture(scope="module")
async def harness(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TasksHarness]:
    async with running_tasks_gateway(module_path_factory.mktemp("house"), auth="keys") as harness:
        yield harness


@pytest.fixture
async def modern(harness: TasksHarness) -> ModernClient:
    return await harness.make_modern_client()


@pytest.fixture
async def session(harness: TasksHarness) -> AsyncGenerator[LegacyClientSession]:
    async with harness.open_legacy_session() as session:
        yield session
