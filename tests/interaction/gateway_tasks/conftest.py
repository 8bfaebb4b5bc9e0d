"""One Ringback before three upstreams, for all tests of a module: tasks of today, tasks of 2025-11-25, and no tasks at all."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from tests.support.application import RunningApplication, running_application
from tests.support.legacy_stage import LegacyStage
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import LEGACY, Json, Modern, Session, legacy_session
from tests.support.resource_stage import ResourceStage
from tests.support.serving import serving as serving_api
from tests.support.task_stage import Task, TaskStage
from tests.support.upstreams import Stage, http_config, serving


@dataclass(slots=True)
class House:
    """`plain`, `tasks`, `legacy` and `notes` are the names of the upstreams, and of the stages behind them."""

    ringback: RunningApplication
    url: str
    http: httpx.AsyncClient
    plain: Stage
    tasks: TaskStage
    legacy: LegacyStage
    notes: ResourceStage
    keys: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    async def key(self, principal: str) -> str | None:
        if principal not in self.keys:
            keys = self.ringback.app.services.api_keys
            _, self.keys[principal] = await keys.create_key(principal, name="test", scopes=DEFAULT_SCOPES, upstreams=None)
        return self.keys[principal]

    async def modern(self, principal: str = "alice", *, upstream: str = "tasks") -> Modern:
        return Modern(self.http, f"{self.url}/mcp/{upstream}", await self.key(principal))

    @asynccontextmanager
    async def session(
        self,
        principal: str = "alice",
        *,
        upstream: str = "tasks",
        version: str = LEGACY,
        capabilities: Json | None = None,
    ) -> AsyncGenerator[Session]:
        url, key = f"{self.url}/mcp/{upstream}", await self.key(principal)
        async with legacy_session(self.http, url, key=key, version=version, capabilities=capabilities) as session:
            yield session

    async def begun(self, tool: str = "work", principal: str = "alice") -> tuple[str, Task]:
        """A task of a modern client's, and the task of the upstream's behind it."""
        count = len(self.tasks.tasks)
        created = await (await self.modern(principal)).result("tools/call", {"name": tool, "arguments": {}})
        return created["taskId"], await self.tasks.task(count + 1)

    async def begun_in(self, session: Session, tool: str = "work", **params: Any) -> tuple[str, Task]:
        """The same for a session of 2025-11-25."""
        count = len(self.tasks.tasks)
        created = await session.result("tools/call", {"name": tool, "arguments": {}, "task": {}, **params})
        return created["task"]["taskId"], await self.tasks.task(count + 1)


@asynccontextmanager
async def opened_house(folder: Path, **settings: Any) -> AsyncGenerator[House]:
    plain, tasks, legacy, notes = Stage(), TaskStage(listening=True), LegacyStage(), ResourceStage()
    async with AsyncExitStack() as stack:
        stages: Sequence[tuple[str, Any]] = (
            ("plain", plain.app()),
            ("tasks", tasks.app()),
            ("legacy", legacy.app()),
            ("notes", notes.app()),
        )
        configs = [http_config((await stack.enter_async_context(serving(app))).url, name=name) for name, app in stages]
        ringback = await stack.enter_async_context(
            running_application(folder, *configs, allowed_hosts=("127.0.0.1",), task_grace_seconds=0.0, **settings)
        )
        url = await stack.enter_async_context(serving_api(ringback.app.api))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        yield House(ringback, url, http, plain, tasks, legacy, notes)


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    async with opened_house(tmp_path_factory.mktemp("house"), auth="keys") as house:
        yield house


@pytest.fixture
async def modern(house: House) -> Modern:
    return await house.modern()


@pytest.fixture
async def session(house: House) -> AsyncGenerator[Session]:
    async with house.session() as session:
        yield session
