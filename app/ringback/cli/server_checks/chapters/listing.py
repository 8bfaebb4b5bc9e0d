"""events/list and its descriptors."""

from collections.abc import Callable
from typing import Any, Final, cast

from ringback.cli.check_report import CheckLevel
from ringback.cli.server_checks.arguments import make_arguments
from ringback.cli.server_checks.cases import UNREADABLE_RESPONSE, Chapter, Untestable, expect
from ringback.cli.server_checks.message_stream import Json
from ringback.cli.server_checks.rules import INVALID_PARAMS
from ringback.cli.server_checks.subject import ABSENT, MODES, Catalog, ServerUnderTest, list_catalog

CHAPTER: Final = Chapter("listing")
_SOURCE: Final = "Events (SEP-3415), Listing"


async def _list_types(server: ServerUnderTest) -> Catalog:
    catalog = await server.require(list_catalog)
    if not catalog.descriptors:
        raise Untestable("the server lists no event type for this principal")
    return catalog


@CHAPTER.must(
    "list-implemented",
    "`events/list` answers `{events: […], nextCursor?}`",
    f"{_SOURCE}: a server with the extension implements events/list",
)
async def check_implemented(server: ServerUnderTest) -> str:
    catalog = await server.observe(list_catalog)
    events = [event for page in catalog.pages for event in cast("list[Any]", page.result["events"])]
    expect(all(isinstance(event, dict) for event in events), "an entry of `events` is no object")
    return f"{len(events)} event types"


@CHAPTER.must(
    "list-pagination",
    "`nextCursor` is a non-empty string, works, and the pages end",
    f"{_SOURCE}, and MCP, Pagination: a missing nextCursor ends the list",
)
async def check_pagination(server: ServerUnderTest) -> str:
    catalog = await server.require(list_catalog)
    cursors = [page.result["nextCursor"] for page in catalog.pages if page.result.get("nextCursor") is not None]
    if not cursors:
        raise Untestable("the list is one page")
    expect(all(isinstance(cursor, str) and cursor for cursor in cursors), f"nextCursor is {cursors!r}")
    expect(not catalog.has_repeated_cursor, "a nextCursor came twice")
    if not catalog.is_complete:
        raise Untestable(f"the list goes on after {len(catalog.pages)} pages")
    return f"{len(catalog.pages)} pages"


@CHAPTER.must(
    "descriptor-name",
    "Each event type has a non-empty `name`, and no two have the same",
    f"{_SOURCE}: `name` identifies the event type",
)
async def check_name(server: ServerUnderTest) -> str:
    names = [each.get("name", ABSENT) for each in (await _list_types(server)).descriptors]
    for name in names:
        expect(isinstance(name, str) and bool(name), f"a name is {name!r}")
    expect(len(set(names)) == len(names), f"a name is listed twice: {names}")
    return ", ".join(cast("list[str]", names))


@CHAPTER.should(
    "descriptor-description",
    "Each event type has a non-empty `description`",
    f"{_SOURCE}: a model chooses event types by their descriptions",
)
async def check_description(server: ServerUnderTest) -> str:
    return await _check_each(server, "description", _is_text)


@CHAPTER.must(
    "descriptor-delivery-subset",
    "`delivery` is a non-empty list of poll, push and webhook, without repeats",
    f"{_SOURCE}: no mode is mandatory, at least one is offered; AI SDK drops the whole list for an unknown mode",
)
async def check_delivery(server: ServerUnderTest) -> str:
    def is_subset(value: Any) -> bool:
        modes = cast("list[Any]", value) if isinstance(value, list) else []
        return bool(modes) and all(mode in MODES for mode in modes) and len(set(modes)) == len(modes)

    return await _check_each(server, "delivery", is_subset)


@CHAPTER.must(
    "descriptor-input-schema",
    "`inputSchema` is an object that can be read as a JSON Schema",
    f"{_SOURCE}: `inputSchema` is the JSON Schema of the subscription's arguments",
)
async def check_input_schema(server: ServerUnderTest) -> str:
    return await _check_each(server, "inputSchema", _is_readable_schema)


@CHAPTER.must(
    "descriptor-payload-schema",
    "`payloadSchema` is an object",
    f"{_SOURCE}: `payloadSchema` is the JSON Schema of `data`",
)
async def check_payload_schema(server: ServerUnderTest) -> str:
    return await _check_each(server, "payloadSchema", _is_object)


@CHAPTER.should("descriptor-meta", "`_meta`, when there, is an object", "MCP, General fields: `_meta` is an object")
async def check_meta(server: ServerUnderTest) -> str:
    return await _check_each(server, "_meta", _is_object_or_absent)


@CHAPTER.should(
    "list-unknown-cursor",
    "A cursor that the server never gave is refused with -32602",
    "MCP, Pagination: an invalid cursor is answered with Invalid params",
)
async def check_unknown_cursor(server: ServerUnderTest) -> str:
    reply = await server.request("events/list", {"cursor": "ringback-check-no-such-cursor"})
    expect(reply.code == INVALID_PARAMS, reply.describe())
    return reply.describe()


_NO_CATALOG_CHANGE: Final = "nothing in the protocol changes a catalog"

CHAPTER.needs_fixture(
    CheckLevel.MUST,
    "list-changed-notification",
    "A changed catalog sends notifications/events/list_changed",
    f"{_SOURCE}: with `listChanged: true`, changes of the catalog are announced",
    missing=_NO_CATALOG_CHANGE,
)
CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "schema-evolution-additive",
    "The schemas of a name change only by addition",
    f"{_SOURCE}: subscribers know the older schema",
    missing=_NO_CATALOG_CHANGE,
)
CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "removal-terminates-subscriptions",
    "A removed event type ends its subscriptions, each in the way of its mode",
    f"{_SOURCE}: NotFound with `data.kind: event`, or Unsupported with `data.reason: schema_changed`",
    missing=_NO_CATALOG_CHANGE,
)


async def _check_each(server: ServerUnderTest, member: str, is_valid: Callable[[object], bool]) -> str:
    descriptors = (await _list_types(server)).descriptors
    for each in descriptors:
        value = each.get(member, ABSENT)
        expect(is_valid(value), f"{member} of {_label(each)} is {value!r}")
    return f"{member} of {len(descriptors)} event types"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_readable_schema(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    try:
        make_arguments(cast("Json", value))
    except UNREADABLE_RESPONSE:
        return False
    return True


def _is_object_or_absent(value: object) -> bool:
    return value is ABSENT or isinstance(value, dict)


def _label(descriptor: Json) -> str:
    return repr(descriptor.get("name", "an event type without a name"))
