"""What an upstream lists: all pages, every entry as it came, bounded."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import METHOD_NOT_FOUND

from ringback.domain import jsontext
from ringback.domain.upstreams import Listing, ToolInfo
from ringback.upstreams.errors import InvalidUpstreamResponse, UpstreamError
from ringback.upstreams.session import UpstreamSession
from ringback.upstreams.transports.guarded_http import LIST_BYTES_MAX

log = logging.getLogger(__name__)

PAGES_MAX: Final = 100
ENTRIES_MAX: Final = 10_000
"""Far more than any model is shown; an endless list ends here."""
ENTRIES_PER_LOOP_TURN: Final = 100
"""Between two turns of everybody else: some two milliseconds."""

_METHOD_BY_LISTING: Final = {
    Listing.TOOLS: "tools/list",
    Listing.RESOURCES: "resources/list",
    Listing.RESOURCE_TEMPLATES: "resources/templates/list",
    Listing.PROMPTS: "prompts/list",
}
_KEY_BY_LISTING: Final = {
    Listing.TOOLS: "name",
    Listing.RESOURCES: "uri",
    Listing.RESOURCE_TEMPLATES: "uriTemplate",
    Listing.PROMPTS: "name",
}
"""The key by which an entry is known; one without it cannot be asked for."""
_CAPABILITY_BY_LISTING: Final = {
    Listing.RESOURCES: "resources",
    Listing.RESOURCE_TEMPLATES: "resources",
    Listing.PROMPTS: "prompts",
}
"""Without these an upstream is not asked. For its tools it is asked in any case: some have them and do not say so."""


async def fetch_listing(
    session: UpstreamSession, listing: Listing, *, on_truncated: Callable[[], None] = lambda: None
) -> Sequence[Mapping[str, Any]]:
    """The entries in the upstream's order, each name once; raises `RequestFailed`. What it does not offer is empty.

    `on_cut` is called if the upstream has more than is kept: the list then ends with the last entry that is.
    """
    if (
        capability := _CAPABILITY_BY_LISTING.get(listing)
    ) is not None and capability not in session.protocol.capabilities:
        return []
    entries: dict[str, Mapping[str, Any]] = {}
    cursors: set[str] = set()
    params: dict[str, Any] = {}
    size = 0
    for _ in range(PAGES_MAX):
        try:
            page = await session.send_request(_METHOD_BY_LISTING[listing], params)
        except UpstreamError as error:
            if error.error.get("code") == METHOD_NOT_FOUND:
                return []
            raise
        listed = page.get(listing)
        if not isinstance(listed, list):
            raise InvalidUpstreamResponse(f"The upstream's list of {listing} is no list.")
        size_after = await _add_page(
            cast("list[Any]", listed), listing, entries, size, modern=session.protocol.is_modern
        )
        if size_after is None:
            break
        size, cursor = size_after, page.get("nextCursor")
        if not isinstance(cursor, str):
            return list(entries.values())
        if cursor in cursors:
            break
        cursors.add(cursor)
        params = {"cursor": cursor}
    on_truncated()
    return list(entries.values())


def parse_tools(entries: Iterable[Mapping[str, Any]]) -> Mapping[str, ToolInfo]:
    """The tools among listed entries, by name."""
    tools = (_parse_tool(entry) for entry in entries)
    return {tool.name: tool for tool in tools if tool is not None}


def _entry_bytes(entry: Any) -> int:
    try:
        return len(jsontext.dumps(entry))
    except TypeError:
        raise InvalidUpstreamResponse(
            "The upstream lists something that cannot be kept: it is nested too deeply, say."
        ) from None


async def _add_page(
    listed: list[Any], listing: Listing, entries: dict[str, Mapping[str, Any]], size: int, *, modern: bool
) -> int | None:
    """Add a page to the entries, in turns with everybody else; the bytes of all so far, None if there is no room for more."""
    for number, entry in enumerate(listed, start=1):
        size += _entry_bytes(entry)
        if size > LIST_BYTES_MAX or len(entries) >= ENTRIES_MAX:
            return None
        known = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        name = known.get(_KEY_BY_LISTING[listing])
        if isinstance(name, str) and name and (listing is not Listing.TOOLS or _is_callable_tool(known, modern=modern)):
            entries[name] = known
        else:
            log.debug("upstream.entry_dropped", extra={"listing": str(listing)})
        if number % ENTRIES_PER_LOOP_TURN == 0:
            await asyncio.sleep(0)
    return size


def _is_callable_tool(entry: Mapping[str, Any], *, modern: bool) -> bool:
    """2026-07-28: a tool whose x-mcp-header annotations are invalid MUST be dropped by clients."""
    tool = _parse_tool(entry)
    return tool is not None and not (modern and find_invalid_x_mcp_header(tool.input_schema) is not None)


def _parse_tool(entry: Mapping[str, Any]) -> ToolInfo | None:
    name, schema, description = entry.get("name"), entry.get("inputSchema"), entry.get("description")
    if not isinstance(name, str) or not name or not isinstance(schema, dict):
        return None
    return ToolInfo(
        name=name,
        description=description if isinstance(description, str) else None,
        input_schema=cast("dict[str, Any]", schema),
        raw=entry,
    )
