"""Decodes the JSON-RPC messages of an upstream: checks limits first, repairs invalid Unicode, and classifies messages.

    bytes ──▶ starts like JSON? ──▶ within the limit of containers? ──▶ decodes? ──▶ is a message? ──▶ DecodedMessage
                  │ no                  │ no                               │ no          │ no
                  └─────────────────────┴──────────────────────────────────┴─────────────┴──▶ UndecodedMessage, with any id

The SDK's models are not used: they try each form of a message from the start, and take fourteen times as long for a small
response and six times for a large list (measured). A large list is decoded in slices with pauses for the event loop.
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

from ringback.domain.meta import RINGBACK_META_PREFIX

REPAIRED_META: Final = f"{RINGBACK_META_PREFIX}repairedCharacters"
"""The number of invalid characters replaced by U+FFFD, in the `_meta` of a result."""
CONTAINERS_MAX: Final = 1_000_000
"""Braces and brackets of one message, including those in strings. An object takes about 200 bytes of memory even when empty, so
a message of 16 MiB could take gigabytes. The largest accepted list has about 100,000."""
BATCH_MAX: Final = 256
"""Messages in one JSON-RPC batch (2025-03-26); the rest is ignored."""
CHUNK_BYTES: Final = 128 * 1024
"""Bytes decoded at once: about two milliseconds."""
ID_LENGTH_MAX: Final = 256
"""Our ids are numbers, or a prefix of 16 letters and a number."""
_HEAD_BYTES: Final = 64 * 1024
_TAIL_BYTES: Final = 1024
_ENVELOPE_BYTES: Final = 4096
"""The size of a message without its list: cursor, `_meta` and envelope."""
_CHUNK_TRIES: Final = 8
BOM: Final = b"\xef\xbb\xbf"
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}".encode()
_ESCAPE: Final = re.compile(
    rb"\\(?:u([dD][89abAB][0-9a-fA-F]{2})(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""Any escape, so that an escaped backslash starts none. Groups: a high surrogate, its low one, a lone low one."""
_HUGE_NUMBER: Final = re.compile(rb"[0-9]{300}|[0-9][eE]\+?[0-9]{3}")
"""A possible number beyond the range of doubles, which `from_json` reads as infinity."""
_HUGE_BYTES: Final = 320
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_ID_VALUE: Final = re.compile(rb'\s*:\s*(-?[0-9]{1,18}|"[^"\\]{1,%d}")\s*[,}]' % ID_LENGTH_MAX)
_TRAILING_ID: Final = re.compile(
    rb'[,{]\s*"id"\s*:\s*(-?[0-9]{1,18}|"[^"\\]{1,%d}")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$' % ID_LENGTH_MAX
)
_LIST: Final = re.compile(rb'"(?:tools|resources|resourceTemplates|prompts)"\s*:\s*\[(?=\s*\{)')
_ENTRY_SEPARATOR: Final = re.compile(rb"\}\s*,\s*(?=\{)")


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    message: JSONRPCMessage
    repaired_characters: int = 0
    """The number of invalid characters replaced by U+FFFD."""


@dataclass(frozen=True, slots=True)
class UndecodedMessage:
    reason: str
    """A text that the caller may read: it contains no text of the upstream."""
    request_id: RequestId | None = None
    """The id of the response, if it is one and the id was found."""
    may_be_response: bool = False
    """Whether these bytes may be a response. A heartbeat, a notification and a request are none, however malformed."""


class _UndecodableJson(ValueError):
    """The bytes are not acceptable JSON; the message says why."""


async def decode_messages(text: bytes) -> Sequence[DecodedMessage | UndecodedMessage]:
    """Decode the messages of one line or body, usually one; none if it is blank. Never raises."""
    text = text.strip().removeprefix(BOM).lstrip()
    if not text:
        return ()
    if text[:1] not in {b"{", b"["}:
        return (UndecodedMessage("is no JSON"),)
    try:
        value, repaired = await decode_json(text)
    except _UndecodableJson as wrong:
        return (UndecodedMessage(str(wrong), find_response_id(text), may_be_response=not _starts_as_request(text)),)
    values = cast("list[Any]", value)[:BATCH_MAX] if isinstance(value, list) else [value]
    return [_to_message(one, repaired) for one in values]


def is_batch(text: bytes) -> bool:
    """Whether this line or body is a JSON-RPC batch (2025-03-26), of any number of messages."""
    return text.lstrip().startswith(b"[")


async def decode_json(text: bytes) -> tuple[Any, int]:
    """Return the JSON value and the number of repaired characters; raises `ValueError` with a text for the caller."""
    if text.count(b"{") + text.count(b"[") > CONTAINERS_MAX:
        raise _UndecodableJson(f"has more than {CONTAINERS_MAX} objects and lists")
    try:
        return await _parse(text), 0
    except ValueError:
        pass
    text, repaired = await asyncio.to_thread(repair_unicode, text) if len(text) > CHUNK_BYTES else repair_unicode(text)
    try:
        if not repaired:
            raise _UndecodableJson("cannot be read as JSON, or is nested too deeply")
        return await _parse(text), repaired
    except ValueError:
        raise _UndecodableJson("cannot be read as JSON, or is nested too deeply") from None


def repair_unicode(text: bytes) -> tuple[bytes, int]:
    """Replace invalid UTF-8 and escapes of lone surrogates by U+FFFD; returns the text and the number of replacements."""
    count_before = text.count(_REPLACEMENT)
    text = text.decode(errors="replace").encode()
    count = text.count(_REPLACEMENT) - count_before

    def replace_lone_surrogate(escape: re.Match[bytes]) -> bytes:
        nonlocal count
        high, low, alone = escape.groups()
        if alone is None and (high is None or low is not None):
            return escape[0]
        count += 1
        return rb"\ufffd"

    return _ESCAPE.sub(replace_lone_surrogate, text), count


def find_response_id(text: bytes) -> RequestId | None:
    """Find the id of a response that cannot be decoded: at the top level of its start, or right before its end."""
    found = _find_leading_id(text[:_HEAD_BYTES])
    if found is None:
        at_the_end = _TRAILING_ID.search(text[-_TAIL_BYTES:])
        found = None if at_the_end is None else at_the_end[1]
    return None if not found else cast("RequestId", orjson.loads(found))


def _starts_as_request(text: bytes) -> bool:
    """Whether these bytes begin as a request or a notification, whose method stands before large values."""
    return _find_leading_id(text[:_HEAD_BYTES]) == b""


def _find_leading_id(head: bytes) -> bytes | None:
    """The id as JSON; empty for a request or notification, None if the start has no id."""
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
    if await _may_contain_infinity(text):
        orjson.loads(text)  # raises for a number beyond the range of doubles
    if len(text) > 2 * CHUNK_BYTES and (value := await _parse_long_list(text)) is not None:
        return value
    return from_json(text, allow_inf_nan=False)


async def _may_contain_infinity(text: bytes) -> bool:
    for start in range(0, len(text), CHUNK_BYTES):
        if _HUGE_NUMBER.search(text, start, start + CHUNK_BYTES + _HUGE_BYTES) is not None:
            return True
        if len(text) > CHUNK_BYTES:
            await asyncio.sleep(0)
    return False


async def _parse_long_list(text: bytes) -> Any:
    """Decode a message with a long list in slices; None if the message has another form.

    A slice that ends between two objects, and is a JSON array when put in brackets, ends between two entries: JSON is read from
    left to right, so a slice that is complete up to there is also complete in the message.
    """
    start = _LIST.search(text, 0, _ENVELOPE_BYTES)
    if start is None:
        return None
    envelope = _parse_envelope(text, start.end())
    if envelope is None:
        return None
    message, entries, end = envelope
    offset = start.end()
    while offset < end:
        chunk = _parse_chunk(text, offset, end)
        if chunk is None:
            return None
        more, offset = chunk
        entries += more
        await asyncio.sleep(0)
    return message


def _parse_envelope(text: bytes, start: int) -> tuple[Any, list[Any], int] | None:
    """Decode the message without the entries of the list; returns it, its empty list, and the offset of the closing bracket."""
    end = len(text)
    for _ in range(_CHUNK_TRIES):
        end = text.rfind(b"]", max(start, len(text) - _ENVELOPE_BYTES), end)
        if end < 0:
            break
        try:
            message = from_json(text[:start] + text[end:], allow_inf_nan=False)
        except ValueError:
            continue
        result = _as_object(_as_object(message).get("result"))
        lists = [cast("list[Any]", value) for value in result.values() if value == []]
        return (message, lists[0], end) if len(lists) == 1 else None
    return None


def _as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _parse_chunk(text: bytes, offset: int, end: int) -> tuple[list[Any], int] | None:
    """Decode some entries from the offset; returns them and the offset of the next ones."""
    for cut in _iter_cut_positions(text, offset, end):
        try:
            more = from_json(b"[" + text[offset:cut].rstrip().removesuffix(b",") + b"]", allow_inf_nan=False)
        except ValueError:
            continue
        return cast("list[Any]", more), cut
    return None


def _iter_cut_positions(text: bytes, offset: int, end: int) -> Iterator[int]:
    """Yield offsets about a slice ahead at which an entry may end, then the end of the list."""
    at = offset + CHUNK_BYTES
    for _ in range(_CHUNK_TRIES):
        found = _ENTRY_SEPARATOR.search(text, at, end)
        if found is None:
            break
        yield found.end()
        at = found.end()
    yield end


# -- the shape of a message ------------------------------------------------------------------------------------------------


def _to_message(value: Any, repaired: int) -> DecodedMessage | UndecodedMessage:
    if not isinstance(value, dict):
        return UndecodedMessage("is no JSON-RPC message")
    message = cast("dict[str, Any]", value)
    if "method" in message:
        return _to_request(message, repaired)
    request_id = _normalize_id(message.get("id"))
    match message:
        case {"jsonrpc": "2.0", "result": dict()} if request_id is not None:
            result = _with_repaired_meta(message["result"], repaired)
            return DecodedMessage(
                JSONRPCResponse.model_construct(jsonrpc="2.0", id=request_id, result=result), repaired
            )
        case {"jsonrpc": "2.0", "error": {"code": int() as code, "message": str()}} if not isinstance(code, bool):
            error = ErrorData.model_validate(message["error"])
            return DecodedMessage(JSONRPCError.model_construct(jsonrpc="2.0", id=request_id, error=error), repaired)
        case _:
            may_be_response = not message.keys().isdisjoint({"id", "result", "error"})
            return UndecodedMessage("is no JSON-RPC response", request_id, may_be_response=may_be_response)


def _to_request(message: dict[str, Any], repaired: int) -> DecodedMessage | UndecodedMessage:
    try:
        if "id" in message:
            return DecodedMessage(JSONRPCRequest.model_validate(message), repaired)
        return DecodedMessage(JSONRPCNotification.model_validate(message), repaired)
    except ValueError:
        return UndecodedMessage("is no JSON-RPC message")


def _normalize_id(value: Any) -> RequestId | None:
    """Accept 7.0 for 7: languages that only have doubles may write it."""
    match value:
        case bool():
            return None
        case int() | str():
            return value
        case float() if value.is_integer():
            return int(value)
        case _:
            return None


def _with_repaired_meta(result: dict[str, Any], repaired: int) -> dict[str, Any]:
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
