"""Fetches a list of an upstream: all pages, every valid entry unchanged, with limits on size and count."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import METHOD_NOT_FOUND

from ringback.domain import jsontext
from ringback.domain.upstreams import Listing, ToolInfo
from ringback.protocol.errors import InvalidUpstreamResponse, UpstreamError
from ringback.protocol.mcp_events.names import EventMethod, offers_events
from ringback.protocol.transport_errors import LIST_BYTES_MAX
from ringback.upstreams.catalog.listed_entries import repair_entry
from ringback.upstreams.session import UpstreamSession

log = logging.getLogger(__name__)

PAGES_MAX: Final = 100
ENTRIES_MAX: Final = 10_000
"""Far more than a model sees; the limit ends an endless list."""
ENTRIES_PER_LOOP_TURN: Final = 100
"""Entries handled between two pauses for the event loop: about two milliseconds."""

_METHOD_BY_LISTING: Final = {
    Listing.TOOLS: "tools/list",
    Listing.RESOURCES: "resources/list",
    Listing.RESOURCE_TEMPLATES: "resources/templates/list",
    Listing.PROMPTS: "prompts/list",
    Listing.EVENTS: EventMethod.LIST,
}
_KEY_BY_LISTING: Final = {
    Listing.TOOLS: "name",
    Listing.RESOURCES: "uri",
    Listing.RESOURCE_TEMPLATES: "uriTemplate",
    Listing.PROMPTS: "name",
    Listing.EVENTS: "name",
}
"""The key that identifies an entry. An entry without it cannot be requested and is dropped."""
_CAPABILITY_BY_LISTING: Final = {
    Listing.RESOURCES: "resources",
    Listing.RESOURCE_TEMPLATES: "resources",
    Listing.PROMPTS: "prompts",
}
"""A list is only requested with its capability. Tools are always requested, because some servers do not declare them."""


async def fetch_listing(
    session: UpstreamSession,
    listing: Listing,
    *,
    client_capabilities: Mapping[str, Any] | None = None,
    on_truncated: Callable[[], None] = lambda: None,
) -> Sequence[Mapping[str, Any]]:
    """Fetch the entries in the order of the upstream, each name once; raises `RequestFailed`. A missing list is empty.

    `client_capabilities` are declared to a modern upstream. `on_truncated` is called if the upstream has more entries than the
    limits allow.
    """
    if not _is_offered(session, listing):
        return []
    entries: dict[str, Mapping[str, Any]] = {}
    cursors: set[str] = set()
    params: dict[str, Any] = {}
    size = 0
    for _ in range(PAGES_MAX):
        page = await _fetch_page(session, listing, params, client_capabilities)
        if page is None:
            return []
        known_count = len(entries)
        size_after = await _add_page(page[listing], listing, entries, size, modern=session.protocol.is_modern)
        if size_after is None:
            break
        size, cursor = size_after, page.get("nextCursor")
        if not isinstance(cursor, str) or (cursor in cursors and len(entries) == known_count):
            return list(entries.values())  # some servers end with a cursor that leads to known entries, such as ""
        if cursor in cursors:
            break
        cursors.add(cursor)
        params = {"cursor": cursor}
    on_truncated()
    return list(entries.values())


async def _fetch_page(
    session: UpstreamSession, listing: Listing, params: dict[str, Any], client_capabilities: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """A page whose entries are a list; None if the upstream does not have the method."""
    try:
        page = await session.send_request(_METHOD_BY_LISTING[listing], params, client_capabilities=client_capabilities)
    except UpstreamError as error:
        if error.error.get("code") == METHOD_NOT_FOUND:
            return None
        raise
    session.check_list(page)
    if not isinstance(page.get(listing), list):
        raise InvalidUpstreamResponse(f"The upstream's response has no list under '{listing}'.")
    return page


def _is_offered(session: UpstreamSession, listing: Listing) -> bool:
    if listing is Listing.EVENTS:
        return offers_events(session.profile.capabilities)
    capability = _CAPABILITY_BY_LISTING.get(listing)
    return capability is None or capability in session.protocol.capabilities


def parse_tools(entries: Iterable[Mapping[str, Any]]) -> Mapping[str, ToolInfo]:
    """The tools among listed entries, by name."""
    tools = (_parse_tool(entry) for entry in entries)
    return {tool.name: tool for tool in tools if tool is not None}


def _entry_bytes(entry: Any) -> int:
    try:
        return len(jsontext.dumps(entry))
    except TypeError:
        raise InvalidUpstreamResponse(
            "The upstream lists an entry that cannot be stored, for example because it is nested too deeply."
        ) from None


async def _add_page(
    listed: list[Any], listing: Listing, entries: dict[str, Mapping[str, Any]], size: int, *, modern: bool
) -> int | None:
    """Add a page with pauses for the event loop. Returns the total bytes so far, or None if a limit is reached."""
    for number, entry in enumerate(listed, start=1):
        size += _entry_bytes(entry)
        if size > LIST_BYTES_MAX or len(entries) >= ENTRIES_MAX:
            return None
        known = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        name = known.get(key := _KEY_BY_LISTING[listing])
        if isinstance(name, str) and name and (listing is not Listing.TOOLS or _is_callable_tool(known, modern=modern)):
            entries[name] = repair_entry(known, listing, key=key)
            if entries[name] is not known:
                await asyncio.sleep(0)  # a repair may take milliseconds
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
