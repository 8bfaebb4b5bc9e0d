"""A user's MCP server with `ringback.extension.Events`, its clients, and receivers that accept its challenges.

async with order_client(make_order_server(events), events) as client:
    page = await client.request("events/poll", {"name": "order.shipped", "cursor": None})
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl, BaseModel
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

import ringback.extension
import ringback.extension.fastmcp
from tests.support.extension_servers import SECRET
from tests.support.mcp_wire import LegacyClientSession, ModernClient, legacy_session
from tests.support.receivers import NO_CONTENT, AcceptedConnection, Receiver
from tests.support.upstreams import serving

SHIPPED: Final = "order.shipped"
SEP_DECLARED: Final[dict[str, Any]] = {"extensions": {"io.modelcontextprotocol/events": {}}}
"""The client capabilities of a client that follows SEP-3415."""
PRINCIPALS: Final = ("alice", "bob")
"""Their tokens are `token-alice` and `token-bob`."""


class OrderShipped(BaseModel):
    order_id: str
    carrier: str = "post"


class OrderArguments(BaseModel):
    order_id: str | None = None


SdkEvents = ringback.extension.Events
FastmcpEvents = ringback.extension.fastmcp.Events
AnyEvents = SdkEvents | FastmcpEvents


class SubjectVerifier:
    """Accepts the tokens of `PRINCIPALS`."""

    async def verify_token(self, token: str) -> AccessToken | None:
        subject = token.removeprefix("token-")
        if subject not in PRINCIPALS:
            return None
        return AccessToken(token=token, client_id="app", scopes=[], subject=subject)


def declare_orders(events: AnyEvents, *, has_arguments: bool = True) -> None:
    description = "An order has left the warehouse."
    declare = (
        events.type(SHIPPED, description=description, arguments=OrderArguments)
        if has_arguments
        else events.type(SHIPPED, description=description)
    )
    declare(OrderShipped)


def make_order_server(
    events: SdkEvents, *, authenticates: bool = False, has_arguments: bool = True, **options: Any
) -> MCPServer[Any]:
    declare_orders(events, has_arguments=has_arguments)
    if authenticates:
        url = AnyHttpUrl("http://127.0.0.1:8000/mcp")
        options |= {
            "token_verifier": SubjectVerifier(),
            "auth": AuthSettings(
                issuer_url=url, resource_server_url=url, required_scopes=[], validate_token_resource=False
            ),
        }
    server = MCPServer[Any]("orders", extensions=[events], lifespan=events.lifespan, log_level="ERROR", **options)

    async def ship(order_id: str) -> str:
        """Ship an order of the caller."""
        return await events.emit(OrderShipped(order_id=order_id), principal=events.current_principal())

    def ship_in_thread(order_id: str) -> str:
        return events.emit_from_thread(OrderShipped(order_id=order_id))

    server.add_tool(ship)
    server.add_tool(ship_in_thread)
    return server


def make_fastmcp_order_server(events: FastmcpEvents, *, authenticates: bool = False) -> FastMCP[Any]:
    declare_orders(events)
    tokens = {f"token-{name}": {"client_id": "app", "sub": name} for name in PRINCIPALS}
    server: FastMCP[Any] = FastMCP("orders", auth=StaticTokenVerifier(tokens=tokens) if authenticates else None)
    server.add_extension(events)

    @server.tool
    async def ship(order_id: str) -> str:
        """Ship an order of the caller."""
        return await events.emit(OrderShipped(order_id=order_id), principal=events.current_principal())

    return server


@asynccontextmanager
async def serving_orders(
    server: MCPServer[Any] | FastMCP[Any], **app_options: Any
) -> AsyncGenerator[tuple[httpx.AsyncClient, str]]:
    """The server over a real socket: an HTTP client, and its URL."""
    app = server.http_app() if isinstance(server, FastMCP) else server.streamable_http_app(**app_options)
    async with (
        app.router.lifespan_context(app),
        serving(_without_lifespan(app)) as served,
        httpx.AsyncClient(timeout=None) as http,  # noqa: S113 - the tests bound their waits
    ):
        yield http, served.url


def _without_lifespan(app: Starlette) -> ASGIApp:
    """Uvicorn would open the lifespan a second time, and not close it."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        await app(scope, receive, send)

    return serve


@asynccontextmanager
async def order_client(
    server: MCPServer[Any] | FastMCP[Any], *, era: str = "modern", principal: str | None = None, **app_options: Any
) -> AsyncGenerator[ModernClient | LegacyClientSession]:
    key = None if principal is None else f"token-{principal}"
    async with serving_orders(server, **app_options) as (http, url):
        if era == "modern":
            yield ModernClient(http, url, key=key)
        else:
            async with legacy_session(http, url, key=key) as session:
                yield session


async def accept_challenges(connection: AcceptedConnection) -> None:
    """A receiver that wants callbacks: it echoes challenges and acknowledges everything else."""
    while (request := await connection.request()) is not None:
        body = json.loads(request.body)
        if body.get("type") == "verification":
            echo = json.dumps({"challenge": body["challenge"]}).encode()
            await connection.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(echo), echo)
            )
        else:
            await connection.send(NO_CONTENT)


async def read_occurrences(receiver: Receiver, count: int) -> list[dict[str, Any]]:
    """The first `count` events that reached the receiver, without challenges and other control envelopes."""
    expected = count
    while True:
        requests = await receiver.wait_for_requests(expected)
        bodies = [json.loads(request.body) for request in requests]
        occurrences = [body for body in bodies if "type" not in body]
        if len(occurrences) >= count:
            return occurrences[:count]
        expected = len(requests) + 1


def subscription_params(receiver: Receiver, *, secret: str = SECRET, **params: Any) -> dict[str, Any]:
    return {
        "name": SHIPPED,
        "arguments": {},
        "delivery": {"mode": "webhook", "url": receiver.url(), "secret": secret},
        "cursor": None,
        **params,
    }
