"""Calls on an MCP server, without a service in between. Needs `pip install "ringback[mcp]"`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import CallRequest
from ringback.client.durable.target import without_secrets

if TYPE_CHECKING:
    import httpx2

    from ringback.client.durable.direct.calls import DirectCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """How to reach an MCP server."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    transport: "httpx2.AsyncBaseTransport | None" = None


class McpTarget:
    """An MCP server over streamable HTTP, of either era.

    A call can be rejoined if the server runs it as a task (2026-07-28 or 2025-11-25), or stores the events of its sessions.
    Questions of tools are passed on with 2026-07-28 only: an earlier server asks on the connection of the call, for which
    Ringback is made.
    """

    may_repeat_start = False

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        transport: "httpx2.AsyncBaseTransport | None" = None,
    ) -> None:
        """`headers` go with every request, for example `{"Authorization": "Bearer …"}`. They are not stored.

        `transport` sends the requests, for example one with TLS settings or a proxy of your own. It stays open.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                "McpTarget needs the http(s) URL of an MCP server. Put a server that is a command behind a Ringback: "
                "ringback serve --upstream NAME=COMMAND"
            )
        if find_spec("mcp") is None:
            raise ImportError('Calls on an MCP server need the MCP SDK: pip install "ringback[mcp]"')
        self.url = without_secrets(url)
        self._server = McpServer(url=url, headers=dict(headers or {}), transport=transport)
        self._calls: DirectCalls | None = None

    def check_request(self, request: CallRequest) -> None:
        if request.upstream is not None:
            raise ValueError("`upstream` names a server behind a Ringback. This target is an MCP server itself.")
        if request.callback is not None:
            raise ValueError("A callback needs a Ringback. Give DurableCaller the URL of one, without a path.")
        if request.timeout_seconds is not None:
            raise ValueError(
                "`timeout_seconds` needs a Ringback, which then ends the call. A join has a timeout of its own."
            )

    async def aclose(self) -> None:
        """Nothing stays open between calls."""

    async def run_call(self, call: LocalCall) -> None:
        await self._get_calls().run_call(call)

    async def cancel_call(self, call: LocalCall) -> None:
        await self._get_calls().cancel_call(call)

    async def answer_call(self, call: LocalCall, responses: Mapping[str, Mapping[str, Any]]) -> None:
        await self._get_calls().answer_call(call, responses)

    def _get_calls(self) -> "DirectCalls":
        if self._calls is None:
            from ringback.client.durable.direct.calls import DirectCalls  # noqa: PLC0415 - it imports the SDK

            self._calls = DirectCalls(self._server)
        return self._calls
