"""What an upstream lists: all pages, every Tool object as it came, bounded."""

import logging
from collections.abc import Mapping
from typing import Any, Final, cast

from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringback.domain.upstreams import ToolInfo
from ringback.runner.failures import NoAnswer, Refused
from ringback.runner.link import Link

log = logging.getLogger(__name__)

PAGES_MAX: Final = 100
TOOLS_MAX: Final = 10_000
"""Far more than any model is shown; an endless list ends here."""


async def list_tools(link: Link) -> Mapping[str, ToolInfo]:
    """The tools by name, in the upstream's order; raises `RequestFailed`. A server without tools has an empty list."""
    tools: dict[str, ToolInfo] = {}
    params: dict[str, Any] = {}
    for _ in range(PAGES_MAX):
        try:
            page = await link.request("tools/list", params)
        except Refused as refusal:
            if refusal.error.get("code") == METHOD_NOT_FOUND:
                return {}
            raise
        _take(page, tools, modern=link.protocol_version in MODERN_PROTOCOL_VERSIONS)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or len(tools) >= TOOLS_MAX:
            break
        params = {"cursor": cursor}
    return tools


def _take(page: dict[str, Any], tools: dict[str, ToolInfo], *, modern: bool) -> None:
    listed = page.get("tools")
    if not isinstance(listed, list):
        raise NoAnswer("The upstream's list of tools is no list.")
    for raw in cast("list[Any]", listed)[:TOOLS_MAX]:
        tool = _tool(raw)
        # 2026-07-28: a tool whose x-mcp-header annotations are invalid MUST be dropped by clients.
        if tool is None or (modern and find_invalid_x_mcp_header(tool.input_schema) is not None):
            log.debug("upstream.tool_dropped")
        else:
            tools[tool.name] = tool


def _tool(raw: Any) -> ToolInfo | None:
    if not isinstance(raw, dict):
        return None
    tool = cast("dict[str, Any]", raw)
    name, schema, description = tool.get("name"), tool.get("inputSchema"), tool.get("description")
    if not isinstance(name, str) or not name or not isinstance(schema, dict):
        return None
    return ToolInfo(
        name=name,
        description=description if isinstance(description, str) else None,
        input_schema=cast("dict[str, Any]", schema),
        raw=tool,
    )
