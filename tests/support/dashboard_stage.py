"""A whole service with a dashboard for a real browser: TLS, an upstream, and a receiver that a test breaks and mends.

    async with serving_dashboard(tmp_path) as stage, open_session(chromium) as session:
        tab = await session.open_tab(stage.url("/calls"))

The browser resolves each name of `.example` to this machine, so that pages of several sites meet in it.
"""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mcp_types as types

from ringback.client import Call, CallbackOptions, RingbackClient
from ringback.domain.principal import DEFAULT_SCOPES, Scope
from ringback.server import LAST_RESPONSES_SECONDS, build_http_server
from tests.support.api_server import LOOPBACK_LIMITS
from tests.support.application import RunningApplication, running_application
from tests.support.limits import WAIT_SECONDS
from tests.support.prompt_server import PromptServer
from tests.support.receivers import (
    NO_CONTENT,
    AcceptedConnection,
    CertificateAuthority,
    Receiver,
    response,
    serving_receiver,
)
from tests.support.upstreams import ControlledUpstream, make_http_config, serving

SERVICE_HOST: Final = "ringback.example"
PRODUCT_HOST: Final = "product.example"
"""A site that embeds the pages of a portal link."""
HOSTILE_HOST: Final = "hostile.example"
FORM_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["text"],
    "properties": {
        "text": {"type": "string", "description": "What to repeat."},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        "format": {"type": "string", "enum": ["plain", "html"]},
        "is_loud": {"type": "boolean"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
"""The arguments of the tool `form`, which returns them."""
STEPS_SECONDS: Final = [1]
"""The retry schedule of the stage's webhooks: a delivery is dead after a second."""


@dataclass(slots=True)
class MendableReceiver:
    """A receiver that responds with 500 until the test mends it."""

    is_broken: bool = False

    async def behave(self, connection: AcceptedConnection) -> None:
        while await connection.request() is not None:
            await connection.send(response("500 Internal Server Error") if self.is_broken else NO_CONTENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardStage:
    origin: str
    ringback: RunningApplication
    upstream: ControlledUpstream
    receiver: MendableReceiver
    callbacks: Receiver

    def url(self, path: str = "") -> str:
        """The URL of a page of the dashboard."""
        return f"{self.origin}/ui{path}"

    async def create_agent(self, principal: str) -> RingbackClient:
        return await self.ringback.create_agent_client(principal)

    async def create_key(self, principal: str, scopes: frozenset[Scope] = DEFAULT_SCOPES) -> str:
        """The text of a new API key."""
        _, key = await self.ringback.app.services.api_keys.create_key(
            principal, name="browser", scopes=scopes, upstreams=None
        )
        return key

    async def start_call(self, agent: RingbackClient, tool: str, **options: Any) -> Call:
        """Start a call with a callback to the stage's receiver."""
        callback: CallbackOptions = {"url": self.callbacks.url(), "retries": {"schedule": STEPS_SECONDS}}
        return (await agent.start_call("stage", tool, {"text": "hello"}, callback=callback, **options)).call

    async def finish_call(self, agent: RingbackClient, tool: str, **options: Any) -> Call:
        """Start a call and wait for its end."""
        call = await self.start_call(agent, tool, **options)
        return await asyncio.wait_for(agent.wait(call.id), WAIT_SECONDS)

    async def wait_for_resume_token(self, call: Call) -> str:
        """The token in the callback about the end of this call."""
        for count in itertools.count(1):
            (*_, latest) = (await self.callbacks.wait_for_requests(count))[:count]
            data = json.loads(latest.body)["data"]
            if data["call_id"] == call.id:
                return str(data["resume_token"])
        raise AssertionError


@asynccontextmanager
async def serving_dashboard(folder: Path, **settings: Any) -> AsyncGenerator[DashboardStage]:
    upstream, receiver = ControlledUpstream(), MendableReceiver()
    upstream.tools.append(types.Tool(name="form", description="Repeats its arguments.", input_schema=FORM_SCHEMA))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        origin = f"https://{SERVICE_HOST}:{listener.getsockname()[1]}"
        async with (
            serving(upstream.app()) as server,
            serving_receiver(receiver.behave) as callbacks,
            running_application(folder, make_http_config(server.url), public_url=origin, **settings) as ringback,
            _serving_tls(ringback, listener),
        ):
            yield DashboardStage(
                origin=origin,
                ringback=ringback,
                upstream=upstream,
                receiver=receiver,
                callbacks=callbacks,
            )


@asynccontextmanager
async def _serving_tls(ringback: RunningApplication, listener: socket.socket) -> AsyncGenerator[None]:
    """Serve the API by the product's own server, which leaves TLS to a proxy: here its event loop does it."""
    config = build_http_server(ringback.app.api, limits=LOOPBACK_LIMITS).config
    server = PromptServer(config, grace_seconds=LAST_RESPONSES_SECONDS)
    server.config.load()
    server.config.ssl = CertificateAuthority().server(SERVICE_HOST)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield
    finally:
        server.stop()
        await task


@dataclass(slots=True)
class Site:
    """Another site, whose every page is this."""

    origin: str
    html: str = ""


@asynccontextmanager
async def serving_site(host: str) -> AsyncGenerator[Site]:
    site = Site("")

    async def respond(connection: AcceptedConnection) -> None:
        while await connection.request() is not None:
            await connection.send(response("200 OK", site.html.encode(), **{"content-type": "text/html"}))

    async with serving_receiver(respond, tls=CertificateAuthority().server(host)) as server:
        site.origin = f"https://{host}:{server.port}"
        yield site
