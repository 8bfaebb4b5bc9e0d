"""An MCP server that offers MCP Events itself, by poll and by stream, on the SDK's server and without any code of Ringback.

    upstream = EventUpstream(modes=["poll"])
    async with serving(upstream.app("modern")) as server:
        upstream.emit("pr.opened", {"repo": "a"})

Its cursor is the number of events that it has emitted. Arguments are filters on `data`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import ConfigDict

from tests.support.upstreams import App, Context, make_app_of_era

UPSTREAM_NAME: Final = "github"
EVENT_NAME: Final = "pr.opened"
LOG_NAME: Final = f"{UPSTREAM_NAME}/{EVENT_NAME}"
_SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"


class _AnyParams(types.RequestParams):
    model_config = ConfigDict(extra="allow")


class _Frame(types.Notification[dict[str, Any], str]):
    """A notification of a stream."""


class EventUpstream:
    def __init__(
        self,
        *,
        modes: Sequence[str] = ("poll", "push"),
        names: Sequence[str] = (EVENT_NAME,),
        next_poll_ms: int = 1000,
        capability: str = "events",
    ) -> None:
        self.modes = list(modes)
        self.names = list(names)
        self.next_poll_ms = next_poll_ms
        self.page_size = 100
        self.log: list[dict[str, Any]] = []
        self.polls: list[Mapping[str, Any]] = []
        """The params of each events/poll."""
        self.streams: list[Mapping[str, Any]] = []
        """The params of each events/stream."""
        self.listen_count = 0
        """The accepted subscriptions/listen requests for changed event types."""
        self.listen_refusals = 0
        """How many of the next ones are refused."""
        self.lost_before = 0
        """Cursors before this place have missed events."""
        self.sends_event_cursors = True
        """If not, only `active` has a cursor."""
        self._capability = capability
        self._changed = asyncio.Event()

    def emit(self, name: str, data: Mapping[str, Any], *, event_id: str | None = None, **members: Any) -> str:
        event_id = event_id or f"e{len(self.log) + 1}"
        occurrence = {"eventId": event_id, "name": name, "timestamp": "2026-11-20T17:00:00Z", "data": dict(data)}
        self.log.append(occurrence | members)
        self._notify()
        return event_id

    async def wait_until_followed(self, count: int = 1) -> None:
        """Wait until it was asked for events this often."""
        while len(self.polls) + len(self.streams) < count:
            await self._wait()

    def app(self, era: str = "modern") -> App:
        app = self.server().streamable_http_app()
        return make_app_of_era(app, era)

    def server(self) -> Server[Any]:
        server = Server(UPSTREAM_NAME, on_list_tools=self._list_tools)
        handlers = {
            "events/list": self._list_events,
            "events/poll": self._poll_events,
            "events/stream": self._stream_events,
            "subscriptions/listen": self._listen,
        }
        for method, handler in handlers.items():
            server.add_request_handler(method, _AnyParams, handler)
        server.middleware.append(self._advertise)
        return server

    async def _advertise(self, ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method in {"initialize", "server/discover"} and isinstance(result, dict):
            known = cast("dict[str, Any]", result)
            capabilities = dict(known["capabilities"])
            if self._capability == "events":
                capabilities["events"] = {"listChanged": True}
            else:
                capabilities["extensions"] = {"io.modelcontextprotocol/events": {}}
            return {**known, "capabilities": capabilities}
        return result

    async def _list_tools(self, _context: Context, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[])

    async def _list_events(self, _context: Context, _params: Any) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"repo": {"type": "string"}}}
        return {
            "events": [
                {
                    "name": name,
                    "description": "A pull request was opened.",
                    "delivery": self.modes,
                    "inputSchema": schema,
                    "payloadSchema": {"type": "object"},
                }
                for name in self.names
            ]
        }

    async def _poll_events(self, context: Context, _params: Any) -> dict[str, Any]:
        params = self._check(context)
        self.polls.append(params)
        self._notify()
        place, truncated = self._place(params)
        limit = min(self.page_size, params.get("maxEvents") or self.page_size)
        page = self.log[place : place + limit]
        return {
            "events": [each for each in page if _matches(params, each)],
            "cursor": str(place + len(page)),
            "truncated": truncated,
            "hasMore": place + len(page) < len(self.log),
            "nextPollMs": self.next_poll_ms,
        }

    async def _stream_events(self, context: Context, _params: Any) -> dict[str, Any]:
        params = self._check(context)
        self.streams.append(params)
        place, truncated = self._place(params)
        meta = {"_meta": {_SUBSCRIPTION_ID: context.request_id}}

        async def send(method: str, values: Mapping[str, Any]) -> None:
            await self._send(context, f"notifications/events/{method}", {**values, **meta})

        await send("active", {"cursor": str(place), "truncated": truncated})
        self._notify()
        while True:
            while place < len(self.log):
                occurrence, place = self.log[place], place + 1
                if _matches(params, occurrence):
                    cursor = {"cursor": str(place)} if self.sends_event_cursors else {}
                    await send("event", {**occurrence, **cursor})
            await self._wait()

    async def _listen(self, context: Context, _params: Any) -> dict[str, Any]:
        wanted = dict(cast("Mapping[str, Any]", context.params)["notifications"])
        if "eventsListChanged" in wanted and self.listen_refusals:
            self.listen_refusals -= 1
            raise MCPError(-32603, "This server is restarting.")
        meta = {"_meta": {_SUBSCRIPTION_ID: context.request_id}}
        acknowledged = {"notifications": wanted, **meta}
        await self._send(context, "notifications/subscriptions/acknowledged", acknowledged)
        known = list(self.names)
        self.listen_count += "eventsListChanged" in wanted
        while True:
            await self._wait()
            if known != self.names:
                known = list(self.names)
                await self._send(context, "notifications/events/list_changed", meta)

    async def _send(self, context: Context, method: str, params: Mapping[str, Any]) -> None:
        frame = cast("Any", _Frame(method=method, params=dict(params)))
        await context.session.send_notification(frame, related_request_id=context.request_id)

    def add_event_type(self, name: str) -> None:
        """Offer another type, and notify the clients that listen for it (2026-07-28)."""
        self.names.append(name)
        self._notify()

    def _check(self, context: Context) -> Mapping[str, Any]:
        params = cast("Mapping[str, Any]", context.params or {})
        if params.get("name") not in self.names:
            raise MCPError(-32011, "NotFound: no such event.", {"kind": "event"})
        return params

    def _place(self, params: Mapping[str, Any]) -> tuple[int, bool]:
        cursor = params.get("cursor")
        if cursor is None:
            return len(self.log), False
        return max(int(cursor), self.lost_before), int(cursor) < self.lost_before

    async def _wait(self) -> None:
        await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _matches(params: Mapping[str, Any], occurrence: Mapping[str, Any]) -> bool:
    arguments = cast("dict[str, Any]", params.get("arguments") or {})
    return occurrence["name"] == params["name"] and all(
        occurrence["data"].get(name) == value for name, value in arguments.items()
    )


async def main() -> None:
    """The upstream as a stdio child process, which emits an event each time that it is asked for its tools."""
    server = EventUpstream().server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
