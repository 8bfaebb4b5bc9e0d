"""An ordinary MCP server with one slow tool, which the test releases. It uses nothing of Ringback."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mcp.server.mcpserver import Context, MCPServer

from tests.support.upstreams import WAIT_SECONDS, serving

IMPOSSIBLE_TOPIC = "squaring the circle"
"""The topic for which the tool fails."""


@dataclass(slots=True)
class ReportUpstream:
    url: str = ""
    begun_topics: list[str] = field(default_factory=list[str])
    """The topics of the reports that were begun, in order."""
    finish: asyncio.Event = field(default_factory=asyncio.Event)
    """Set it, and the reports get done."""
    _begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_until_begun(self) -> None:
        """Wait until the tool runs."""
        await asyncio.wait_for(self._begun.wait(), WAIT_SECONDS)

    async def build_report(self, topic: str, context: Context) -> str:
        self.begun_topics.append(topic)
        self._begun.set()
        await context.report_progress(1, 2, "halfway there")
        await self.finish.wait()
        if topic == IMPOSSIBLE_TOPIC:
            raise ValueError("it cannot be done")
        return f"All about {topic}."


@asynccontextmanager
async def serving_report_upstream() -> AsyncGenerator[ReportUpstream]:
    reports, server = ReportUpstream(), MCPServer("reports")

    @server.tool()
    async def build_report(topic: str, context: Context) -> str:  # pyright: ignore[reportUnusedFunction] - registered
        """Build a report. It takes a while."""
        return await reports.build_report(topic, context)

    async with serving(server.streamable_http_app()) as http:
        reports.url = http.url
        yield reports
