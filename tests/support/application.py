"""The whole service in this process, built by bootstrap as the command builds it, without fakes.

    async with running_application(tmp_path, http_config(server.url)) as ringback, listening() as phone:
        alice = await ringback.agent("alice")
        await alice.register_webhook(phone.url, secret=SECRET)

Requests to the API use no socket; upstreams and receivers use real ones.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

import httpx

from ringback.bootstrap import Application, Environment, ReadConfigs, open_application
from ringback.client import Call, RingbackClient
from ringback.domain.principal import DEFAULT_SCOPES, Scope
from ringback.receiver import Callback, ReceiverApp
from ringback.settings import Settings
from ringback.upstreams.config import UpstreamEntry
from tests.support.databases import database_url, needed_settings
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, make_http_config, serving

PUBLIC_URL: Final = "https://ringback.example"
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass(slots=True)
class RunningApplication:
    app: Application
    stop: asyncio.Event
    _stack: AsyncExitStack

    async def create_agent_client(self, principal: str, *, scopes: frozenset[Scope] = DEFAULT_SCOPES) -> RingbackClient:
        """A client with an API key of this principal."""
        _, key = await self.app.services.api_keys.create_key(principal, name="test", scopes=scopes, upstreams=None)
        return await self.client(api_key=key)

    async def client(self, *, api_key: str | None = None) -> RingbackClient:
        transport = httpx.ASGITransport(app=self.app.api)
        return await self._stack.enter_async_context(RingbackClient(PUBLIC_URL, api_key=api_key, transport=transport))

    async def get(self, path: str) -> httpx.Response:
        """The raw response to a request without a key."""
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=self.app.api), base_url=PUBLIC_URL) as http:
            return await http.get(path)


@asynccontextmanager
async def running_application(
    folder: Path,
    *upstreams: UpstreamEntry,
    read_configs: ReadConfigs | None = None,
    environment: Environment | None = None,
    **settings: Any,
) -> AsyncGenerator[RunningApplication]:
    """A running service with its files in `folder`; drained and closed at the end of the context."""
    configured = Settings.model_validate(
        {
            "database_url": database_url(folder),
            **needed_settings(),
            "public_url": PUBLIC_URL,
            "callback_private_cidrs": (ip_network("127.0.0.0/8"),),
            "callback_http": True,
            "drain_seconds": 0.0,
            **settings,
        }
    )
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(
            open_application(configured, upstreams, read_configs=read_configs, environment=environment)
        )
        stop = asyncio.Event()
        work = asyncio.create_task(app.run(stop))
        clients = await stack.enter_async_context(AsyncExitStack())
        try:
            yield RunningApplication(app, stop, clients)
        finally:
            stop.set()
            await asyncio.wait_for(work, 3 * WAIT_SECONDS)


@dataclass(slots=True)
class CallbackReceiver:
    """An agent's receiver: the verified callbacks in the order of their arrival."""

    url: str
    receiver: ReceiverApp
    callbacks: list[Callback] = field(default_factory=list[Callback])

    async def wait_for_callback(self, correlation_id: str) -> Callback:
        """The next callback with this correlation id, or one that arrived earlier."""
        return await self.receiver.wait_for(correlation_id=correlation_id, timeout_seconds=WAIT_SECONDS)


@asynccontextmanager
async def serving_callbacks(*secrets: str) -> AsyncGenerator[CallbackReceiver]:
    """A receiver on a real socket that accepts signatures of these secrets, or of `SECRET`."""
    callbacks: list[Callback] = []

    async def take(callback: Callback) -> None:
        callbacks.append(callback)

    receiver = ReceiverApp(secrets or (SECRET,), on_callback=take)
    async with serving(receiver) as server:
        yield CallbackReceiver(f"http://127.0.0.1:{server.port}/callbacks", receiver, callbacks)


@asynccontextmanager
async def running_with_upstream(
    folder: Path, stage: ControlledUpstream, **options: Any
) -> AsyncGenerator[tuple[RunningApplication, CallbackReceiver]]:
    """A service with this upstream, and a receiver."""
    async with (
        serving(stage.app()) as server,
        serving_callbacks() as phone,
        running_application(folder, make_http_config(server.url), **options) as ringback,
    ):
        yield ringback, phone


async def start_upstream_call(agent: RingbackClient, tool: str, phone: CallbackReceiver, **options: Any) -> Call:
    """Start a call with a callback to `phone`. Its correlation id is the tool's name."""
    named: dict[str, Any] = {"correlation_id": tool} | options
    started = await agent.start_call(
        "stage", tool, {"text": "hello"}, callback={"url": phone.url, "secret": SECRET}, **named
    )
    return started.call


async def wait_until_ended(agent: RingbackClient, call: Call) -> Call:
    """Wait until the call ends, and return it."""
    return await asyncio.wait_for(agent.wait(call.id), WAIT_SECONDS)
