"""The key of a subscription: (principal, delivery.url, name, canonical arguments), and its id (mcp-events §6).

A server that subscribes for its clients adds which of them it is (`subscriber`): a client that knows the URL of another one
must neither replace its secret nor end its subscription.

Equal arguments have one canonical text, whatever the order of their keys and however their numbers are written (RFC 8785): 1,
1.0 and 1e0 are one number. The id is derived from the key alone, so it is the same after a refresh and after a restart.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, cast

import rfc8785

from ringback.protocol.mcp_events.errors import invalid_params

SUBSCRIPTION_ID_PREFIX: Final = "sub_"
ARGUMENTS_BYTES_MAX: Final = 8192
"""Canonical arguments are stored with each subscription. Those of real event types take a few hundred bytes."""
_SAFE_INTEGER_MAX: Final = 2**53 - 1
"""RFC 8785 refuses larger integers, because readers may round them (RFC 7493 §2.2)."""
_ID_DIGITS: Final = 32
"""128 bits of SHA-256 in hexadecimal: no two keys of a service share an id."""


def canonical_arguments(arguments: Mapping[str, Any]) -> str:
    """The canonical JSON text of these arguments (RFC 8785).

    Raises `EventError` (InvalidParams) for what has no canonical text: NaN, an integer of more digits than a double has, an
    unpaired surrogate, too many nested levels; and for more than `ARGUMENTS_BYTES_MAX`.
    """
    try:
        text = rfc8785.dumps(_with_doubles(dict(arguments)))
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError, OverflowError):
        raise invalid_params(
            "The arguments contain a value without a canonical form: NaN, an integer of more digits than a double has, an "
            "unpaired surrogate, or too many nested levels."
        ) from None
    if len(text) > ARGUMENTS_BYTES_MAX:
        raise invalid_params(f"The arguments have more than {ARGUMENTS_BYTES_MAX} bytes.")
    return text.decode()


def _with_doubles(value: Any) -> Any:
    """The value with its large integers as doubles: 10^20 and 1e20 are one number.

    An integer that a double would round stays, and fails: two ids of 64 bits must not become one subscription.
    """
    match value:
        case dict():
            members = cast("dict[str, Any]", value)
            return {key: _with_doubles(member) for key, member in members.items()}
        case list():
            return [_with_doubles(each) for each in cast("list[Any]", value)]
        case int() if abs(value) > _SAFE_INTEGER_MAX and rfc8785.dumps(float(value)) == str(value).encode():
            return float(value)
        case _:
            return value


def subscription_id(principal: str, url: str, name: str, canonical: str, subscriber: str | None = None) -> str:
    """`sub_` and 32 hexadecimal digits. `url` counts byte by byte, including its query; `canonical` are canonical arguments."""
    parts = [principal, url, name, canonical]
    key = json.dumps(parts if subscriber is None else [*parts, subscriber]).encode()
    return SUBSCRIPTION_ID_PREFIX + hashlib.sha256(key).hexdigest()[:_ID_DIGITS]
