"""Headers that a webhook's owner adds to its callbacks: an API key of a gateway, a tenant, a route.

They are sealed at rest together with the signing secrets, and shown by name only. No owner can set a header that frames the
request, belongs to the connection or proves the callback. Values are printable ASCII, so none contains a line break.
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

HEADERS_MAX: Final = 10
"""Headers of one webhook. Gateways need one or two."""
HEADER_NAME_LENGTH_MAX: Final = 64
HEADER_VALUE_LENGTH_MAX: Final = 4096
"""Characters. A JWT with many claims has some 2,000."""
HEADERS_LENGTH_MAX: Final = 6144
"""Characters of all names and values: with the signatures, a request stays below the 8 KiB that nginx and Apache accept."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token (RFC 9110 §5.6.2)."""
_FORBIDDEN_NAMES: Final = frozenset(
    {
        # about the connection (RFC 9110 §7.6.1)
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        # about the request and its body
        "host",
        "content-length",
        "content-type",
        "content-encoding",
        "accept-encoding",
        "expect",
        "user-agent",
    }
)
_FORBIDDEN_PREFIXES: Final = ("proxy-", "webhook-", "x-mcp-", "mcp-", "svix-")
"""Of proxies (Proxy-Authorization), of signatures (Standard Webhooks and its older name), and of MCP."""

CallbackHeaders = tuple[tuple[str, str], ...]
"""Pairs of a name in lower case and a value, sorted by name."""


def parse_headers(headers: Mapping[str, str]) -> CallbackHeaders:
    """The headers as they are stored; raises ValueError with a sentence that says what to change and has no value in it."""
    if len(headers) > HEADERS_MAX:
        raise ValueError(f"A webhook has at most {HEADERS_MAX} headers.")
    pairs = tuple(sorted((name.lower(), value.strip(" ")) for name, value in headers.items()))
    for name, value in pairs:
        _check_name(name)
        _check_value(name, value)
    if len(dict(pairs)) < len(pairs):
        raise ValueError("Two headers have the same name; upper and lower case do not differ.")
    if sum(len(name) + len(value) for name, value in pairs) > HEADERS_LENGTH_MAX:
        raise ValueError(f"The headers together are longer than {HEADERS_LENGTH_MAX} characters.")
    return pairs


def redact_header_values(text: str, headers: CallbackHeaders) -> str:
    """The text without the values of these headers: a receiver may echo a request, and excerpts are stored in clear.

    A value as JSON, HTML or a URL has it is removed, too, and one that the end of the text cuts off. Longer values come first,
    as a value may contain another one.
    """
    for name, value in sorted(headers, key=lambda header: -len(header[1])):
        if len(value) >= REDACTED_LENGTH_MIN:
            for spelling in _list_spellings(value):
                text = _cut_off_end(text.replace(spelling, f"[{name}]"), spelling)
    return text


REDACTED_LENGTH_MIN: Final = 6
"""Characters. A shorter value is a flag rather than a secret, and would remove ordinary words."""


_JSON: Final = {'"': '\\"', "\\": "\\\\"}
_JSON_TABLES: Final = tuple(
    str.maketrans(table)
    for table in (
        _JSON,
        {**_JSON, "/": "\\/"},  # PHP
        {**_JSON, **{each: f"\\u{ord(each):04x}" for each in "<>&"}},  # Go, Ruby on Rails
        {**_JSON, **{each: f"\\u{ord(each):04X}" for each in "<>&'+`\""}},  # .NET
    )
)


def _list_spellings(value: str) -> Sequence[str]:
    """The value as it is, and as an echo in JSON, HTML or a URL writes it; the longest first. Most values have one spelling."""
    spellings = {value, html.escape(value), quote(value, safe=""), *(value.translate(table) for table in _JSON_TABLES)}
    return sorted(spellings, key=lambda spelling: (-len(spelling), spelling))


def _cut_off_end(text: str, value: str) -> str:
    for length in range(min(len(value) - 1, len(text)), REDACTED_LENGTH_MIN - 1, -1):
        if text.endswith(value[:length]):
            return text[:-length]
    return text


def _check_name(name: str) -> None:
    if len(name) > HEADER_NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise ValueError(
            f"A header's name has at most {HEADER_NAME_LENGTH_MAX} letters, digits and hyphens, and no colon."
        )
    if name in _FORBIDDEN_NAMES or name.startswith(_FORBIDDEN_PREFIXES):
        raise ValueError(f"The header '{name}' cannot be set: the service sets it, or it belongs to the connection.")


def _check_value(name: str, value: str) -> None:
    if not value or len(value) > HEADER_VALUE_LENGTH_MAX or not (value.isascii() and value.isprintable()):
        raise ValueError(
            f"The value of the header '{name}' must have 1 to {HEADER_VALUE_LENGTH_MAX} printable ASCII characters."
        )
