"""JSON-RPC messages out of an upstream's bytes: bounded before they are decoded, repaired where that is possible, told apart.

    bytes ──▶ is it JSON at all? ──▶ few enough values? ──▶ decoded ──▶ the shape of a message ──▶ Read
                  │ no                   │ no                 │ no          │ no
                  ▼                      └────────────────────┴─────────────┴──▶ Unreadable, with the id if there is one
                noise

Not by the SDK's models: these try one form after the other, each time from the start, and take fourteen times as long for a
small answer, six times for a large list (measured). A large list is decoded in slices, between which others get their turn.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic_core import from_json

from ringback.domain.meta import OURS

REPAIRED_META: Final = f"{OURS}repairedCharacters"
"""In a result's `_meta`: how many characters stand as U+FFFD in it because the upstream sent halves of them."""
OPENERS_MAX: Final = 1_000_000
"""Braces and brackets of one message, those in texts counted too. An object takes some 200 bytes of memory, however little
stands in it, so a message of 16 MiB could take gigabytes; the largest list that is taken has about 100,000."""
BATCH_MAX: Final = 256
"""Messages in one JSON-RPC batch (2025-03-26); of more, the rest is not read."""
SLICE_BYTES: Final = 128 * 1024
"""Decoded at once: some two milliseconds."""
ID_LENGTH_MAX: Final = 256
"""Ours are numbers, or a mark of 16 letters and a number."""
_HEAD_BYTES: Final = 64 * 1024
_TAIL_BYTES: Final = 1024
_ENVELOPE_BYTES: Final = 4096
"""Around a list: its cursor, `_meta`, and the message."""
_SLICE_TRIES: Final = 8
BOM: Final = b"\xef\xbb\xbf"
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()
_ESCAPE: Final = re.compile(
    rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""Any escape, so that a backslash that is escaped itself begins none. Groups: a high surrogate, its low one, a lone low one."""
_HUGE: Final = re.compile(rb"[0-9]{300}|[0-9][eE]\+?[0-9]{3}")
"""What may be a number beyond every double, which this decoder reads as infinity."""
_HUGE_BYTES: Final = 320
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_ID_VALUE: Final = re.compile(rb'\s*:\s*(-?[0-9]{1,18}|"[^"\\]{1,%d}")\s*[,}]' % ID_LENGTH_MAX)
_ID_AT_THE_END: Final = re.compile(
    rb'[,{]\s*"id"\s*:\s*(-?[0-9]{1,18}|"[^"\\]{1,%d}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$' % ID_LENGTH_MAX
)
_LIST: Final = re.compile(rb'"(?:tools|resources|resourceTemplates|prompts)"\s*:\s*\[(?=\s*\{)')
_BETWEEN: Final = re.compile(rb"\}\s*,\s*(?=\{)")


@dataclass(frozen=True, slots=True)
class Read:
    message: JSONRPCMessage
    repaired: int = 0
    """Characters that were no Unicode."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    reason: str
    """May be shown to whoever made the call: no word of it is the upstream's."""
    request_id: RequestId | None = None
    """That of the answer, if it is one and its id could be found."""


class _Wrong(ValueError):
    """The bytes are no JSON that is taken; the message says why."""


async def read_messages(text: bytes) -> Sequence[Read | Unreadable]:
    """What stands in one line or body, usually one message; nothing if there are only blanks. Never raises."""
    text = text.strip().removeprefix(BOM).lstrip()
    if not text:
        return ()
    if text[:1] not in {b"{", b"["}:
        return (Unreadable("is no JSON"),)
    try:
        value, repaired = await decode(text)
    except _Wrong as wrong:
        return (Unreadable(str(wrong), find_id(text)),)
    values = cast("list[Any]", value)[:BATCH_MAX] if isinstance(value, list) else [value]
    return [_shaped(one, repaired) for one in values]


async def decode(text: bytes) -> tuple[Any, int]:
    """The JSON value, and how many characters were repaired; raises `ValueError` with words for whoever made the call."""
    if text.count(b"{") + text.count(b"[") > OPENERS_MAX:
        raise _Wrong(f"has more than {OPENERS_MAX} objects and lists")
    try:
        return await _parse(text), 0
    except ValueError:
        pass
    text, repaired = await asyncio.to_thread(repair, text) if len(text) > SLICE_BYTES else repair(text)
    try:
        if not repaired:
            raise _Wrong("cannot be read as JSON, or is nested too deeply")
        return await _parse(text), repaired
    except ValueError:
        raise _Wrong("cannot be read as JSON, or is nested too deeply") from None


def repair(text: bytes) -> tuple[bytes, int]:
    """The text with U+FFFD for bytes that are no UTF-8 and for escapes of half a surrogate pair, and how many there are."""
    before = text.count(_REPLACEMENT)
    text = text.decode(errors="replace").encode()
    count = text.count(_REPLACEMENT) - before

    def whole(escape: re.Match[bytes]) -> bytes:
        nonlocal count
        high, low, alone = escape.groups()
        if alone is None and (high is None or low is not None):
            return escape[0]
        count += 1
        return rb"\ufffd"

    return _ESCAPE.sub(whole, text), count


def find_id(text: bytes) -> RequestId | None:
    """The id of the answer that these bytes would have been: at the top level of the start, or right before the end."""
    found = _id_at_the_start(text[:_HEAD_BYTES])
    if found is None:
        at_the_end = _ID_AT_THE_END.search(text[-_TAIL_BYTES:])
        found = None if at_the_end is None else at_the_end[1]
    return None if not found else cast("RequestId", orjson.loads(found))


def _id_at_the_start(head: bytes) -> bytes | None:
    """As JSON; empty if this is no answer but a request or notification, None if the start does not tell."""
    depth = 0
    for token in _TOKEN.finditer(head):
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
            case b'"method"' if depth == 1:
                return b""
            case b'"id"' if depth == 1 and (value := _ID_VALUE.match(head, token.end())) is not None:
                return value[1]
            case _:
                pass
    return None


# -- decoding --------------------------------------------------------------------------------------------------------------


async def _parse(text: bytes) -> Any:
    if await _may_hold_infinity(text):
        orjson.loads(text)  # raises for a number that no double holds
    if len(text) > 2 * SLICE_BYTES and (value := await _parse_list(text)) is not None:
        return value
    return from_json(text, allow_inf_nan=False)


async def _may_hold_infinity(text: bytes) -> bool:
    for start in range(0, len(text), SLICE_BYTES):
        if _HUGE.search(text, start, start + SLICE_BYTES + _HUGE_BYTES) is not None:
            return True
        if len(text) > SLICE_BYTES:
            await asyncio.sleep(0)
    return False


async def _parse_list(text: bytes) -> Any:
    """A message with a long list in it, decoded in slices; None if it is not made like that.

    A slice that ends between two objects and is a JSON array between brackets ends between two entries: JSON reads from left to
    right, so what is whole up to there is whole in the message too.
    """
    start = _LIST.search(text, 0, _ENVELOPE_BYTES)
    if start is None:
        return None
    envelope = _envelope(text, start.end())
    if envelope is None:
        return None
    message, entries, end = envelope
    place = start.end()
    while place < end:
        taken = _slice(text, place, end)
        if taken is None:
            return None
        more, place = taken
        entries += more
        await asyncio.sleep(0)
    return message


def _envelope(text: bytes, start: int) -> tuple[Any, list[Any], int] | None:
    """The message with the list empty, that list in it, and where its closing bracket stands: near the end, as a rule."""
    end = len(text)
    for _ in range(_SLICE_TRIES):
        end = text.rfind(b"]", max(start, len(text) - _ENVELOPE_BYTES), end)
        if end < 0:
            break
        try:
            message = from_json(text[:start] + text[end:], allow_inf_nan=False)
        except ValueError:
            continue
        result = _object(_object(message).get("result"))
        lists = [cast("list[Any]", value) for value in result.values() if value == []]
        return (message, lists[0], end) if len(lists) == 1 else None
    return None


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _slice(text: bytes, place: int, end: int) -> tuple[list[Any], int] | None:
    """Some entries from this place on, and where the next ones begin."""
    for cut in _cuts(text, place, end):
        try:
            more = from_json(b"[" + text[place:cut].rstrip().removesuffix(b",") + b"]", allow_inf_nan=False)
        except ValueError:
            continue
        return cast("list[Any]", more), cut
    return None


def _cuts(text: bytes, place: int, end: int) -> Iterator[int]:
    """Places where an entry may end, a slice away from the last; then the end of all."""
    at = place + SLICE_BYTES
    for _ in range(_SLICE_TRIES):
        found = _BETWEEN.search(text, at, end)
        if found is None:
            break
        yield found.end()
        at = found.end()
    yield end


# -- the shape of a message ------------------------------------------------------------------------------------------------


def _shaped(value: Any, repaired: int) -> Read | Unreadable:
    if not isinstance(value, dict):
        return Unreadable("is no JSON-RPC message")
    message = cast("dict[str, Any]", value)
    if "method" in message:
        return _asking(message, repaired)
    request_id = _id_of(message.get("id"))
    match message:
        case {"jsonrpc": "2.0", "result": dict()} if request_id is not None:
            kept = _saying_so(message["result"], repaired)
            return Read(JSONRPCResponse.model_construct(jsonrpc="2.0", id=request_id, result=kept), repaired)
        case {"jsonrpc": "2.0", "error": {"code": int() as code, "message": str()}} if not isinstance(code, bool):
            error = ErrorData.model_validate(message["error"])
            return Read(JSONRPCError.model_construct(jsonrpc="2.0", id=request_id, error=error), repaired)
        case _:
            return Unreadable("is no JSON-RPC response", request_id)


def _asking(message: dict[str, Any], repaired: int) -> Read | Unreadable:
    try:
        if "id" in message:
            return Read(JSONRPCRequest.model_validate(message), repaired)
        return Read(JSONRPCNotification.model_validate(message), repaired)
    except ValueError:
        return Unreadable("is no JSON-RPC message")


def _id_of(value: Any) -> RequestId | None:
    """A language whose numbers are all doubles may write the id 7 as 7.0."""
    match value:
        case bool():
            return None
        case int() | str():
            return value
        case float() if value.is_integer():
            return int(value)
        case _:
            return None


def _saying_so(result: dict[str, Any], repaired: int) -> dict[str, Any]:
    if not repaired:
        return result
    match result.get("_meta"):
        case None:
            meta: dict[str, Any] = {}
        case dict():
            meta = result["_meta"]
        case _:
            return result
    return {**result, "_meta": {**meta, REPAIRED_META: repaired}}
