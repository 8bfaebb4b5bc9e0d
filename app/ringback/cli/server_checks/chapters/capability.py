"""What a server declares in its handshakes."""

from typing import Any, Final, cast

from ringback.cli.server_checks.cases import Chapter, Deviation, Untestable, expect, fail
from ringback.cli.server_checks.connection import EVENTS_EXTENSION, Era
from ringback.cli.server_checks.message_stream import Json, Reply
from ringback.cli.server_checks.rules import METHOD_NOT_FOUND
from ringback.cli.server_checks.subject import ABSENT, ServerUnderTest, list_catalog

CHAPTER: Final = Chapter("capability")
_SOURCE: Final = "Events (SEP-3415), Capability"


async def handshake(server: ServerUnderTest) -> Reply:
    """The handshake of the run's era."""
    if server.connection.era is Era.MODERN:
        return await server.connection.discover()
    return await server.connection.initialize()


async def declared_settings(server: ServerUnderTest) -> dict[str, Any]:
    """What the handshake declares for Events, by where it stands."""
    reply = await server.observe(handshake)
    if not reply.has_result:
        fail(f"the handshake answered {reply.describe()}")
    return find_declarations(reply)


def find_declarations(reply: Reply) -> dict[str, Any]:
    capabilities = cast("Json", reply.result.get("capabilities") or {})
    extensions = cast("Json", capabilities.get("extensions") or {})
    found = {f"extensions[{EVENTS_EXTENSION!r}]": extensions.get(EVENTS_EXTENSION, ABSENT)}
    found["events"] = capabilities.get("events", ABSENT)
    return {place: value for place, value in found.items() if value is not ABSENT}


@CHAPTER.must(
    "capability-events-object",
    "The capability of Events is declared and is an object",
    f"{_SOURCE}: a server declares the extension with an object of settings, which may be empty",
)
async def check_events_object(server: ServerUnderTest) -> str:
    declared = await server.observe(declared_settings)
    expect(bool(declared), "neither capabilities.extensions nor capabilities has Events")
    for place, value in declared.items():
        expect(isinstance(value, dict), f"{place} is {value!r}")
    if "events" in declared and len(declared) == 1:
        raise Deviation("only the older top-level `events` is declared, not capabilities.extensions")
    return ", ".join(f"{place}: {value}" for place, value in declared.items())


@CHAPTER.should(
    "capability-top-level",
    "The capability also stands at the top level, as `events`",
    "The design sketch, which ChatGPT and the AI SDK read: without it they find no Events",
)
async def check_top_level(server: ServerUnderTest) -> str:
    declared = await server.require(declared_settings)
    expect("events" in declared, "capabilities.events is absent")
    return f"events: {declared['events']}"


@CHAPTER.must(
    "capability-list-changed-flag",
    "`listChanged`, when declared, is a boolean",
    f"{_SOURCE}: `listChanged: true` promises notifications/events/list_changed",
)
async def check_list_changed_flag(server: ServerUnderTest) -> str:
    flags = await _list_flags(server)
    for flag in flags:
        expect(isinstance(flag, bool), f"listChanged is {flag!r}")
    return f"listChanged: {flags[0]}" if flags else "listChanged is not declared"


@CHAPTER.must(
    "capability-empty-settings",
    "Settings without `listChanged` are valid: the server lists events all the same",
    f"{_SOURCE}: empty settings mean Events without notifications of changed lists",
)
async def check_empty_settings(server: ServerUnderTest) -> str:
    if await _list_flags(server):
        raise Untestable("this server declares listChanged")
    return f"{len((await server.observe(list_catalog)).descriptors)} event types with empty settings"


@CHAPTER.should(
    "capability-both-handshakes",
    "A server that speaks both eras declares Events in `server/discover` and in `initialize`",
    "The page of ChatGPT for plugins, and the AI SDK: they accept either handshake",
)
async def check_both_handshakes(server: ServerUnderTest) -> str:
    replies = {"server/discover": await server.connection.discover()}
    if server.connection.era is Era.MODERN:
        replies["initialize"] = await server.connection.initialize()
    spoken = {method: reply for method, reply in replies.items() if reply.has_result}
    if len(spoken) < len(replies):
        raise Untestable("the server does not speak both eras")
    silent = [method for method, reply in spoken.items() if not find_declarations(reply)]
    expect(not silent, f"no Events in {', '.join(silent)}")
    return f"declared in {' and '.join(spoken)}"


@CHAPTER.must(
    "fallback-method-not-found",
    "A server without Events answers `events/list` with -32601",
    "JSON-RPC 2.0, Method not found; a server without the extension does not know its methods",
)
async def check_fallback(server: ServerUnderTest) -> str:
    if await server.require(declared_settings):
        raise Untestable("this server has Events")
    reply = await server.request("events/list", {})
    expect(reply.code == METHOD_NOT_FOUND, reply.describe())
    return reply.describe()


async def _list_flags(server: ServerUnderTest) -> list[Any]:
    declared = await server.require(declared_settings)
    settings = [cast("Json", value) for value in declared.values() if isinstance(value, dict)]
    return [each["listChanged"] for each in settings if "listChanged" in each]
