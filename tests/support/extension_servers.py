"""A user's MCP server with `ringback.extension.Callbacks`, and helpers for its clients and receivers.

held = HeldTool()
async with callbacks, serving(a_server(callbacks, held).streamable_http_app()) as http, Client(http.url) as client:
    await client.call_tool("build_report", {"about": "rain"}, meta=asking(receiver))
"""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any, Final

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolRequestParams, ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from ringback.domain.clock import SystemClock
from ringback.extension import Callbacks
from ringback.signing.standard_webhooks import verify
from tests.support.receivers import ReceivedRequest, Receiver

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LOCAL_RECEIVER_SETTINGS: Final[dict[str, Any]] = {"callback_private_cidrs": ("127.0.0.0/8",), "callback_http": True}
"""Settings that let callbacks go to receivers of this machine."""
UPSTREAM_NAME: Final = "reports"
ELICITATION_SCHEMA: Final[dict[str, Any]] = {"type": "object", "properties": {"year": {"type": "integer"}}}


class FastClock(SystemClock):
    """A clock with very short pauses."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(min(seconds, 0.01))


class HeldTool:
    """A tool that waits until the test releases it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.called_off = asyncio.Event()
        """Whether the request was cancelled, whether the tool ended or not."""

    async def __call__(self) -> None:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class CancellationObserver(Extension):
    """Wraps the callbacks and records when the SDK cancels a request."""

    identifier = "tests/hang-ups"

    def __init__(self, held: HeldTool) -> None:
        self._held = held

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,  # noqa: ARG002 - an Extension's names
        ctx: Any,
        call_next: CallNext,
    ) -> HandlerResult:
        try:
            return await call_next(ctx)
        except asyncio.CancelledError:
            self._held.called_off.set()
            raise


def make_extension_server(callbacks: Callbacks, held: HeldTool | None = None, **options: Any) -> MCPServer[Any]:
    held = held or HeldTool()
    server = MCPServer[Any](
        UPSTREAM_NAME, extensions=[CancellationObserver(held), callbacks], log_level="ERROR", **options
    )

    async def build_report(about: str) -> str:
        return f"a report about {about}"

    async def build_slowly(ctx: Context) -> str:
        await held()
        await ctx.report_progress(1, 1)
        return "a slow report"

    async def until_held() -> str:
        await held.entered.wait()
        return "a client is being held"

    async def fail() -> str:
        raise ValueError("no paper")

    async def refuse() -> str:
        raise MCPError(-32042, "not today", {"retry": False})

    async def peek(ctx: Context) -> str:
        """Return the tool's view of its request."""
        return json.dumps([ctx.request_context.meta, ctx.request_context.params], default=str)

    async def ask(ctx: Context) -> str | InputRequiredResult:
        if ctx.input_responses is None:
            question = ElicitRequestFormParams(message="Which year?", requested_schema=ELICITATION_SCHEMA)
            return InputRequiredResult(input_requests={"year": ElicitRequest(params=question)}, request_state="asked")
        answer = ctx.input_responses["year"]
        assert isinstance(answer, ElicitResult)
        return f"{ctx.request_state}: a report about {(answer.content or {})['year']}"

    for tool in (build_report, build_slowly, until_held, fail, refuse, peek, ask):
        server.add_tool(tool)
    return server


def callback_meta(receiver: Receiver, **callback: Any) -> Any:
    """`_meta` with a callback."""
    return {
        "ringback/callback": {"url": receiver.url(), "secret": SECRET, **callback},
        "ringback/correlationId": "c1",
        "ringback/clientSessionId": "s1",
    }


def verify_callback(request: ReceivedRequest, secret: str = SECRET) -> dict[str, Any]:
    """The `data` of a callback, whose signature must be valid."""
    verify(request.headers, request.body, [secret], now=datetime.now(UTC))  # noqa: TID251 - signed by the machine's clock
    return dict(json.loads(request.body)["data"])
