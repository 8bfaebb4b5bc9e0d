"""One Ringback with several upstreams for all tests of a module; clients write raw messages (`tests.support.mcp_wire`)."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import httpx
import mcp_types as types
import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from tests.support.api_server import serving_api
from tests.support.application import CallbackReceiver, RunningApplication, running_application, serving_callbacks
from tests.support.databases import TEST_DATABASES
from tests.support.interop_upstream import InteropUpstream
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.library_upstream import LibraryUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import LEGACY, Json, LegacyClientSession, ModernClient, legacy_session
from tests.support.task_upstream import TaskUpstream
from tests.support.upstreams import ControlledUpstream, make_http_config, make_legacy_app, serving

INLINE_WAIT_SECONDS: Final = 0.1
"""The inline wait of `hold`, whose call outlives it."""
LONG_INLINE_WAIT_SECONDS: Final = 50.0
"""The inline wait of all other tools, which end within it even on a busy machine."""
STRICT: Final[Json] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}
NO_CAPABILITIES: Final[Json] = {}
ELICITATION_CAPABILITY: Final[Json] = {"elicitation": {"form": {}}}


@dataclass(slots=True)
class GatewayHarness:
    """The upstreams are `paint`, `plain`, `library`, `tasks` and `old`.

    `paint` is configured three times: `old-paint` is a legacy server, and `slow-paint` has no inline wait.
    """

    ringback: RunningApplication
    folder: Path
    url: str
    http: httpx.AsyncClient
    callback_receiver: CallbackReceiver
    interop: InteropUpstream
    plain: ControlledUpstream
    library: LibraryUpstream
    tasks: TaskUpstream
    legacy: LegacyUpstream
    keys: dict[str, str] = field(default_factory=dict[str, str])

    async def get_api_key(self, principal: str) -> str:
        if principal not in self.keys:
            keys = self.ringback.app.services.api_keys
            _, self.keys[principal] = await keys.create_key(
                principal, name="test", scopes=DEFAULT_SCOPES, upstreams=None
            )
        return self.keys[principal]

    async def make_modern_client(
        self, upstream: str | None = "paint", *, principal: str = "alice", name: str | None = None, query: str = ""
    ) -> ModernClient:
        return ModernClient(self.http, self._path(upstream) + query, await self.get_api_key(principal), name)

    @asynccontextmanager
    async def open_legacy_session(
        self,
        upstream: str | None = "paint",
        *,
        principal: str = "alice",
        version: str = LEGACY,
        capabilities: Json | None = None,
        name: str = "test",
        query: str = "",
    ) -> AsyncGenerator[LegacyClientSession]:
        key, url = await self.get_api_key(principal), self._path(upstream) + query
        async with legacy_session(
            self.http, url, key=key, version=version, capabilities=capabilities, client_name=name
        ) as session:
            yield session

    async def request_rest(self, method: str, path: str, *, principal: str = "alice", **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {await self.get_api_key(principal)}"}
        return await self.http.request(method, f"{self.url}{path}", headers=headers, **options)

    async def wait_until_ended(self, call_id: str, *, principal: str = "alice") -> Json:
        """The ended call as REST returns it."""
        answer = await self.request_rest(
            "POST",
            "/v1/calls/wait",
            principal=principal,
            json={"call_ids": [call_id], "mode": "all", "wait_seconds": 60},
        )
        call: Json = answer.json()["calls"][0]
        return call

    async def list_calls(self, session_id: str, *, principal: str = "alice") -> Sequence[Json]:
        answer = await self.request_rest("GET", f"/v1/calls?client_session_id={session_id}", principal=principal)
        calls: Sequence[Json] = answer.json()["calls"]
        return calls

    def _path(self, upstream: str | None) -> str:
        return f"{self.url}/mcp" if upstream is None else f"{self.url}/mcp/{upstream}"


@asynccontextmanager
async def running_gateway(
    folder: Path,
    *,
    upstreams: Mapping[str, Mapping[str, Any]] | None = None,
    only: Collection[str] | None = None,
    **settings: Any,
) -> AsyncGenerator[GatewayHarness]:
    """`upstreams` are further fields of the upstreams' configurations, by name; `only` are the upstreams that it has."""
    paint, plain, library, tasks, old = (
        InteropUpstream(),
        ControlledUpstream(),
        LibraryUpstream(),
        TaskUpstream(),
        LegacyUpstream(),
    )
    plain.tools.append(types.Tool(name="strict", input_schema=STRICT))
    async with AsyncExitStack() as stack:
        stages: Sequence[tuple[str, Any]] = (
            ("paint", paint.app()),
            ("slow-paint", paint.app()),
            ("old-paint", make_legacy_app(paint.app())),
            ("plain", plain.app()),
            ("library", library.app("modern")),
            ("tasks", tasks.app()),
            ("old", old.app()),
        )
        configs = [
            replace(
                make_http_config((await stack.enter_async_context(serving(app))).url, name=name),
                **{
                    "tool_inline_wait_seconds": {"hold": INLINE_WAIT_SECONDS} if name.endswith("paint") else {},
                    "inline_wait_seconds": 0.0 if name.startswith("slow") else None,
                    **(upstreams or {}).get(name, {}),
                },
            )
            for name, app in stages
            if only is None or name in only
        ]
        receiver = await stack.enter_async_context(serving_callbacks())
        ringback = await stack.enter_async_context(
            running_application(
                folder, *configs, allowed_hosts=("127.0.0.1",), inline_wait_seconds=LONG_INLINE_WAIT_SECONDS, **settings
            )
        )
        stack.enter_context(TEST_DATABASES.keep_connection(folder))
        url = await stack.enter_async_context(serving_api(ringback.app.api))
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        yield GatewayHarness(ringback, folder, url, http, receiver, paint, plain, library, tasks, old)


@pytest.fixture(scope="module")
def upstreams_of_module(request: pytest.FixtureRequest) -> Collection[str] | None:
    """The constant `UPSTREAMS` of the module, which names those that its tests use; all if it has none.

    To start one and to connect to it takes 25 ms of CPU.
    """
    return cast("Any", request).module.__dict__.get("UPSTREAMS")


@pytest.fixture(scope="module")
async def shared_gate(
    module_path_factory: pytest.TempPathFactory, upstreams_of_module: Collection[str] | None
) -> AsyncGenerator[GatewayHarness]:
    async with running_gateway(module_path_factory.mktemp("gate"), only=upstreams_of_module) as gate:
        yield gate


@pytest.fixture
def gate(shared_gate: GatewayHarness) -> GatewayHarness:
    shared_gate.interop.reset()
    shared_gate.interop.seen_meta.clear()
    shared_gate.interop.seen_requests.clear()
    shared_gate.plain.release.clear()
    shared_gate.plain.cancelled.clear()
    return shared_gate


@pytest.fixture(scope="module")
async def open_gate(
    module_path_factory: pytest.TempPathFactory, upstreams_of_module: Collection[str] | None
) -> AsyncGenerator[GatewayHarness]:
    """A gateway without authentication, for clients that cannot send a key."""
    folder = module_path_factory.mktemp("open-gate")
    async with running_gateway(folder, only=upstreams_of_module, auth="off") as gate:
        yield gate


@pytest.fixture
async def modern(gate: GatewayHarness) -> ModernClient:
    return await gate.make_modern_client()


@pytest.fixture
async def session(gate: GatewayHarness) -> AsyncGenerator[LegacyClientSession]:
    async with gate.open_legacy_session() as session:
        yield session
