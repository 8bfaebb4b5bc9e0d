"""How a client cancels a waiting tools/call of 2026-07-28 over HTTP, where closing the stream does not cancel.

    tools/call                 with the header `Ringback-Cancel-Key`: the client makes a new, random text for each request
    ringback/cancelRequest     with the same header; it may arrive before the tools/call

The gateway serves it, and `ringback mcp` uses it.
"""

from typing import Final

CANCEL_REQUEST_METHOD: Final = "ringback/cancelRequest"
CANCEL_KEY_HEADER: Final = "ringback-cancel-key"
CANCEL_KEY_LENGTH_MAX: Final = 64
"""Twice the 128 bits in hexadecimal that make a key unguessable."""
