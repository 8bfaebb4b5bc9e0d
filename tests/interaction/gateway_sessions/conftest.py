"""A Ringback that a test stops and starts again over the same files, and its legacy clients on the wire."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.domain.call_rows import CallFilter
from ringback.domain.principal import DEFAULT_SCOPES, Principal
from ringback.mcp_server import request_events
from ringback.mcp_server.request_context import Endpoint
from ringback.mcp_server.session_manager import BoundedSessionManager
from ringback.mcp_server.session_transport import SessionTransport
from tests.support.api_server import serving_api
from tests.support.application import RunningApplication, running_application
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import LEGACY, Json, LegacyClientSession, legacy_session
from tests.support.resource_upstream import NOTE_URI, ResourceUpstream
from tests.support.upstreams import ControlledUpstream, make_http_config, serving


@dataclass(slots=True)
class RestartableRingback:
    """Each `running` is a new process of the service in effect: nothing but the files stays. Upstreams go on."""

    folder: Path
    urls: dict[str, str]
    stage: ControlledUpstream
    notes: ResourceUpstream
    http: httpx.AsyncClient
    keys: dict[str, str] = field(default_factory=dict[str, str])
    opened: list[AbstractAsyncContextManager[LegacyClientSession]] = field(
        default_factory=list[AbstractAsyncContextManager[LegacyClientSession]]
    )
    """Kept, because a context that is dropped ends its session."""

    @asynccontextmanager
    async def running(self, **settings: Any) -> AsyncGenerator["RunningRingback"]:
        configs = [make_http_config(url, name=name) for name, url in self.urls.items()]
        async with (
            running_application(
                self.folder, *configs, auth="keys", allowed_hosts=("127.0.0.1",), **settings
            ) as ringback,
            serving_api(ringback.app.api) as url,
        ):
            yield RunningRingback(self, ringback, url)


@dataclass(slots=True)
class RunningRingback:
    files: RestartableRingback
    application: RunningApplication
    url: str

    async def get_key(self, principal: str, *, upstreams: frozenset[str] | None = None) -> str:
        name = f"{principal} {sorted(upstreams or ())}"
        if name not in self.files.keys:
            keys = self.application.app.services.api_keys
            _, self.files.keys[name] = await keys.create_key(
                principal, name="test", scopes=DEFAULT_SCOPES, upstreams=upstreams
            )
        return self.files.keys[name]

    async def find_manager(self, upstream: str) -> BoundedSessionManager:
        endpoints = self.application.app.mcp._endpoints  # pyright: ignore[reportPrivateUsage]

        async def find(manager: BoundedSessionManager) -> BoundedSessionManager:
            return manager

        return await endpoints.use_manager(Endpoint(upstream=upstream), find)

    async def wait_until_ended(self) -> None:
        """Wait until no call runs."""

        async def has_ended() -> bool:
            calls = await self.application.app.store.read(
                lambda tx: tx.calls.list_page(Principal("alice"), CallFilter(), position=None, limit=10)
            )
            return all(call.is_final for call in calls)

        await wait_until(has_ended)

    async def wait_for_unsent(self, session: LegacyClientSession) -> None:
        """Wait until the session has a notification that no stream has carried."""
        manager = await self.find_manager(session.url.rpartition("/")[2])
        transport = manager._server_instances[session.headers["mcp-session-id"]]  # pyright: ignore[reportPrivateUsage]
        assert isinstance(transport, SessionTransport)

        async def has_unsent() -> bool:
            return bool(transport.events.list_unsent())

        await wait_until(has_unsent)

    def find_session(self, session: LegacyClientSession) -> LegacyClientSession:
        """The session of an earlier process, at this one's address."""
        path = session.url.partition("/mcp")[2]
        session.url = f"{self.url}/mcp{path}"
        return session


async def open_session(
    running: RunningRingback,
    path: str = "/mcp/stage",
    *,
    principal: str = "alice",
    version: str = LEGACY,
    capabilities: Json | None = None,
    upstreams: frozenset[str] | None = None,
) -> LegacyClientSession:
    """A session that its client does not end."""
    key = await running.get_key(principal, upstreams=upstreams)
    opened = legacy_session(
        running.files.http, f"{running.url}{path}", key=key, version=version, capabilities=capabilities
    )
    running.files.opened.append(opened)
    return await opened.__aenter__()


async def open_subscribed_session(running: RunningRingback, *, version: str = LEGACY) -> LegacyClientSession:
    """A session whose subscription to the note has reached the upstream."""
    session, notes = await open_session(running, "/mcp/notes", version=version), running.files.notes
    await session.request("resources/subscribe", {"uri": NOTE_URI})
    await notes.wait_until(lambda: notes.subscribed)
    return session


async def send(session: LegacyClientSession, *, http_method: str = "POST", request_id: int = 99) -> httpx.Response:
    body: Json = {"jsonrpc": "2.0", "id": request_id, "method": "tools/list", "params": {}}
    return await session.http.request(
        http_method, session.url, headers=session.headers, json=body if http_method == "POST" else None
    )


@asynccontextmanager
async def open_files(folder: Path) -> AsyncGenerator[RestartableRingback]:
    stage, notes = ControlledUpstream(), ResourceUpstream()
    async with AsyncExitStack() as stack:
        urls = {
            name: (await stack.enter_async_context(serving(app))).url
            for name, app in (("stage", stage.app()), ("notes", notes.app()))
        }
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        files = RestartableRingback(folder, urls, stage, notes, http)
        yield files
        for opened in files.opened:
            with suppress(httpx.TransportError):  # the service has ended
                await opened.__aexit__(None, None, None)


@pytest.fixture
async def files(tmp_path: Path) -> AsyncGenerator[RestartableRingback]:
    async with open_files(tmp_path) as files:
        yield files


@pytest.fixture(scope="module")
async def shared_ringback(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RunningRingback]:
    """For tests of requests that are refused."""
    async with open_files(module_path_factory.mktemp("shared")) as files, files.running() as running:
        yield running


@pytest.fixture
def streams_open_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast response would be one JSON body, which has no event to resume from."""
    monkeypatch.setattr(request_events, "OPEN_AFTER_SECONDS", 0.0)
