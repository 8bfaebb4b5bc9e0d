"""An MCP server that shows each holder of a token a world of its own, behind one URL.

    worlds = OwnedUpstream(["alice", "bob"])
    async with serving(worlds.app("modern")) as server: …

Requests are routed by their bearer token. Each world is a `LibraryUpstream` whose tools, resources, prompts, completions,
results and errors name its owner, so a text that names another owner shows a leak.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any, Final

import mcp_types as types
from mcp import MCPError

from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.protocol.errors import LoginRequired, RequestNotSent
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.followed_login import FollowedLogin
from ringback.upstreams.oauth.token_source import OnWait
from tests.support.library_upstream import LibraryUpstream
from tests.support.upstreams import (
    App,
    Context,
    Message,
    Receive,
    Scope,
    Send,
    make_app_of_era,
    send_response,
)

ODD_TOOL: Final = "a tool with odd characters"
"""The name of a tool ends in it, so that its alias at /mcp is shortened."""


class OwnedWorld(LibraryUpstream):
    """What one owner sees."""

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.owner = owner
        self.books = [f"book://{owner}"]
        self.prompts = [types.Prompt(name=f"{owner}-prompt")]
        self.tool_names = [f"{owner}-tool", f"{owner} has {ODD_TOOL}"]
        self.request_count = 0
        self.is_holding = False
        self.held_count = 0
        self.released = asyncio.Event()

    async def _list_tools(self, _context: Context, _params: Any) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {f"{self.owner}-argument": {"type": "string"}}}
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in self.tool_names])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        del context, params
        if self.is_holding:
            self.held_count += 1
            await self.released.wait()
        text = types.TextContent(type="text", text=f"a result of {self.owner}")
        return types.CallToolResult(content=[text])

    async def _list_templates(self, _context: Context, _params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template=f"book://{self.owner}/{{page}}", name=f"pages of {self.owner}")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read(self, _context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if params.uri not in self.books:
            raise MCPError(-32602, f"{self.owner} has no such book.")
        contents = types.TextResourceContents(uri=params.uri, text=f"a book of {self.owner}")
        return types.ReadResourceResult(contents=[contents])

    async def _complete(self, _context: Context, _params: Any) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[f"{self.owner}-value"]))


class OwnedUpstream:
    def __init__(self, owners: Iterable[str]) -> None:
        self.worlds = {owner: OwnedWorld(owner) for owner in owners}
        self.refused_count = 0

    def __getitem__(self, owner: str) -> OwnedWorld:
        return self.worlds[owner]

    def app(self, era: str) -> App:
        apps = {owner: world.server().streamable_http_app() for owner, world in self.worlds.items()}
        routed: dict[str, App] = {
            f"Bearer {make_token(owner)}": make_app_of_era(app, era) for owner, app in apps.items()
        }

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await _run_lifespans(apps.values(), receive, send)
                return
            token = dict(scope["headers"]).get(b"authorization", b"").decode()
            if token not in routed:
                self.refused_count += 1
                await send_response(send, 401, "text/plain", b"Unauthorized")
                return
            self.worlds[token.removeprefix("Bearer token-of-")].request_count += 1
            await routed[token](scope, receive, send)

        return serve


def make_token(owner: str) -> str:
    return f"token-of-{owner}"


async def _run_lifespans(apps: Iterable[Any], receive: Receive, send: Send) -> None:
    assert (await receive())["type"] == "lifespan.startup"
    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app.router.lifespan_context(app))
        await send(_message("lifespan.startup.complete"))
        await receive()
    await send(_message("lifespan.shutdown.complete"))


def _message(kind: str) -> Message:
    return {"type": kind}


class ScriptedTokens:
    """The token of one owner, which never changes. Implements `upstreams.oauth.token_source.TokenSource`."""

    version = 1

    def __init__(self, owner: Principal) -> None:
        self.owner = owner
        self.login = FollowedLogin()

    async def check_login(self) -> None:
        """It never changes."""

    async def get_token(
        self, *, other_than: str | None = None, refusal: Refusal | None = None, on_wait: OnWait | None = None
    ) -> str | None:
        del refusal, on_wait
        if other_than is not None:
            raise LoginRequired("Sign in first.")
        return None if self.owner == SHARED_OWNER else make_token(self.owner)

    async def explain_refusal(self, refusal: Refusal, *, token: str | None) -> RequestNotSent | None:
        del refusal, token
        return LoginRequired("Sign in first.")

    async def read_version(self) -> int | None:
        return self.version

    async def wait_changed(self) -> None:
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        """Nothing is open."""


class ScriptedTokenSources:
    """Each principal is signed in with a token of its own."""

    def get_source(self, config: UpstreamConfig, owner: Principal) -> ScriptedTokens:
        del config
        return ScriptedTokens(owner)
