"""The key of a subscription: (principal, delivery.url, name, canonical arguments), and its id (mcp-events §6).

Equal arguments have one canonical text, whatever the order of their keys and however their numbers are written (RFC 8785): 1,
1.0 and 1e0 are one number. The id is derived from the key alone, so it is the same after a refresh and after a restart.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import rfc8785

from ringback.protocol.mcp_events.errors import invalid_params

SUBSCRIPTION_ID_PREFIX: Final = "sub_"
ARGUMENTS_BYTES_MAX: Final = 8192
"""Canonical arguments are stored with each subscription. Those of real event types take a few hundred bytes."""
_ID_DIGITS: Final = 32
"""128 bits of SHA-256 in hexadecimal: no two keys of a service share an id."""


def canonical_arguments(arguments: Mapping[str, Any]) -> str:
    """The canonical JSON text of these arguments (RFC 8785).

    Raises `EventError` (InvalidParams) for what has no canonical text: NaN, an integer beyond 2^53 - 1, an unpaired surrogate,
    too many nested levels; and for more than `ARGUMENTS_BYTES_MAX`.
    """
    try:
        text = rfc8785.dumps(dict(arguments))
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError):
        raise invalid_params(
            "The arguments contain a value without a canonical form: NaN, an integer beyond 2^53 - 1, an unpaired surrogate, "
            "or too many nested levels."
        ) from None
    if len(text) > ARGUMENTS_BYTES_MAX:
        raise invalid_params(f"The arguments have more than {ARGUMENTS_BYTES_MAX} bytes.")
    return text.decode()


def subscription_id(principal: str, url: str, name: str, canonical: str) -> str:
    """`sub_` and 32 hexadecimal digits. `url` counts byte by byte, including its query; `canonical` are canonical arguments."""
    key = json.dumps([principal, url, name, canonical]).encode()
    return SUBSCRIPTION_ID_PREFIX + hashlib.sha256(key).hexdigest()[:_ID_DIGITS]
