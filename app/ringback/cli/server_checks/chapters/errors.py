"""Refusals: their codes and their data."""

from collections.abc import Collection
from contextlib import suppress
from typing import Final

from ringback.cli.check_report import CheckLevel
from ringback.cli.server_checks.arguments import make_mistyped_arguments
from ringback.cli.server_checks.cases import Chapter, Deviation, Untestable, expect
from ringback.cli.server_checks.message_stream import Json, Reply, as_object
from ringback.cli.server_checks.rules import ERROR_CODES, INVALID_PARAMS, SERVER_RANGE, require_error
from ringback.cli.server_checks.subject import OfferedEventType, ServerUnderTest, list_catalog, list_modes

CHAPTER: Final = Chapter("errors")
_SOURCE: Final = "Events (SEP-3415), Errors"
JSON_RPC_CODES: Final = frozenset({-32700, -32600, -32601, -32602, -32603})
METHODS: Final = {"poll": "events/poll", "webhook": "events/subscribe", "push": "events/stream"}
UNKNOWN_NAME: Final = "ringback.check.no_such_event"


async def unknown_name(server: ServerUnderTest) -> Reply:
    """A request with a name that is not served, to the first method that the server offers."""
    offered = {mode for each in (await server.require(list_catalog)).descriptors for mode in list_modes(each)}
    return await _refused_request(server, UNKNOWN_NAME, {}, offered)


async def undeclared_mode(server: ServerUnderTest) -> tuple[str, Reply]:
    """A delivery mode that some event type does not offer, and the response to a request for it."""
    descriptors = (await server.require(list_catalog)).descriptors
    offered = [mode for mode in ("webhook", "poll") if any(mode in list_modes(each) for each in descriptors)]
    for descriptor in descriptors:
        missing = next((mode for mode in offered if mode not in list_modes(descriptor)), None)
        if missing is not None:
            return missing, await _request_mode(server, str(descriptor.get("name")), missing, {})
    raise Untestable("every event type offers the same modes, as far as poll and webhook go")


async def _refused_request(server: ServerUnderTest, name: str, arguments: Json, modes: Collection[str]) -> Reply:
    """A request that is refused, in the first of the modes that has a method."""
    mode = next((mode for mode in METHODS if mode in modes), None)
    if mode is None:
        raise Untestable("the server lists no event type")
    return await _request_mode(server, name, mode, arguments)


@CHAPTER.must("error-not-found", "An unknown event name is refused with NotFound", f"{_SOURCE}: NotFound")
async def check_not_found(server: ServerUnderTest) -> str:
    return require_error(await server.observe(unknown_name), "NotFound")


@CHAPTER.must(
    "error-not-found-kind", "NotFound says in `data.kind` what was not found", f"{_SOURCE}: `event` or `subscription`"
)
async def check_kind(server: ServerUnderTest) -> str:
    reply = await server.require(unknown_name)
    if reply.code not in ERROR_CODES["NotFound"]:
        raise Untestable(f"no NotFound came: {reply.describe()}")
    if reply.data.get("kind") != "event":
        raise Deviation(f"data is {reply.error.get('data')!r}")
    return "kind: event"


@CHAPTER.must(
    "error-invalid-params",
    "Arguments that the inputSchema forbids are refused with -32602",
    f"{_SOURCE}: InvalidParams for arguments against the schema",
)
async def check_invalid_params(server: ServerUnderTest) -> str:
    for descriptor in (await server.require(list_catalog)).descriptors:
        wrong, modes = make_mistyped_arguments(as_object(descriptor.get("inputSchema")), {}), list_modes(descriptor)
        if wrong is not None and modes:
            reply = await _refused_request(server, str(descriptor.get("name")), wrong, modes)
            return require_error(reply, "InvalidParams")
    raise Untestable("no inputSchema of this server forbids anything")


@CHAPTER.must(
    "error-unsupported",
    "A delivery mode that a type does not offer is refused with Unsupported; `data` names it",
    f"{_SOURCE}: `data` is `feature: deliveryMode` and the value",
)
async def check_unsupported(server: ServerUnderTest) -> str:
    mode, reply = await server.observe(undeclared_mode)
    if reply.code == INVALID_PARAMS:
        raise Untestable(f"arguments and URLs are checked first: {reply.describe()}")
    observed = require_error(reply, "Unsupported")
    expected = {"feature": "deliveryMode", "value": mode}
    if {name: reply.data.get(name) for name in expected} != expected:
        raise Deviation(f"data is {reply.error.get('data')!r}")
    return observed


@CHAPTER.must(
    "error-server-range",
    "All codes are JSON-RPC's own or lie in -32099 to -32000",
    "JSON-RPC 2.0: codes for implementations",
)
async def check_range(server: ServerUnderTest) -> str:
    await server.require(unknown_name)
    outside = {code for code in server.error_codes if code not in SERVER_RANGE and code not in JSON_RPC_CODES}
    expect(not outside, f"codes: {outside}")
    return f"codes: {sorted(server.error_codes)}"


@CHAPTER.should(
    "error-one-allocation",
    "The codes of a run belong to one allocation: the design sketch's or SEP-3415's",
    f"{_SOURCE}: a client maps numbers to names by one table",
)
async def check_allocation(server: ServerUnderTest) -> str:
    await server.require(unknown_name)
    with suppress(Untestable):
        await server.require(undeclared_mode)
    sketch = {max(codes) for name, codes in ERROR_CODES.items() if name != "InvalidParams"}
    found = server.error_codes & {code for codes in ERROR_CODES.values() for code in codes if len(codes) > 1}
    expect(not found or found <= sketch or not found & sketch, f"codes: {sorted(found)}")
    return f"codes: {sorted(found)}"


@CHAPTER.should(
    "error-name-in-message",
    "The message has the error's name, because two numbers are in use for each",
    "Ours: a client can distinguish the errors whatever the numbers are",
)
async def check_name_in_message(server: ServerUnderTest) -> str:
    reply = await server.require(unknown_name)
    message = str(reply.error.get("message"))
    expect("notfound" in message.replace(" ", "").lower(), f"message: {message}")
    return message


CHAPTER.needs_fixture(
    CheckLevel.MUST,
    "error-forbidden",
    "An event or arguments that the principal may not have are refused with Forbidden",
    f"{_SOURCE}: Forbidden",
    missing="needs a principal with less permission, and to know what it may not have",
)
CHAPTER.needs_fixture(
    CheckLevel.MUST,
    "authz-subscribe-time",
    "The principal's permission is checked at subscribe",
    "Events (SEP-3415), Authorization",
    missing="needs a principal with less permission, and to know what it may not have",
)
CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "authz-delivery-time-reverify",
    "The principal's permission is checked again from time to time",
    "Events (SEP-3415), Authorization",
    missing="needs a principal that loses its permission during the run",
)
CHAPTER.needs_fixture(
    CheckLevel.MUST,
    "error-resource-exhausted",
    "At a quota, ResourceExhausted names it in `data.limit`",
    f"{_SOURCE}: `data.limit` and `data.max`",
    missing="a run does not use up the server's quotas",
)


async def _request_mode(server: ServerUnderTest, name: str, mode: str, arguments: Json) -> Reply:
    if mode == "webhook":
        return await server.subscribe(OfferedEventType({"name": name}, arguments), server.endpoint.add_callback())
    return await server.request(METHODS[mode], {"name": name, "arguments": arguments, "cursor": None})
