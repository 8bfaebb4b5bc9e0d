"""requestState of 2026-07-28: what a client carries from one round of questions to the next.

A client may show it to anybody and send anything in its place, so it is sealed, for its principal and for the method it
belongs to.
"""

from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from ringback.domain import jsontext
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.gateway import Gateway
from ringback.signing import base64text
from ringback.signing.sealing import UnsealError


def sealed(gateway: Gateway, exchange: Exchange, carried: Any) -> str:
    return base64text.encode(gateway.sealer.seal(jsontext.dumps(carried), place=_place(exchange)))


def opened(gateway: Gateway, exchange: Exchange, state: str) -> Any:
    """What was sealed; -32602 for everything that this principal was not given for this method."""
    try:
        return jsontext.loads(gateway.sealer.unseal(base64text.decode(state), place=_place(exchange)))
    except (ValueError, UnsealError):
        raise unknown_state() from None


def unknown_state() -> MCPError:
    return MCPError(
        INVALID_PARAMS, "This requestState is not one of yours. Send it as you got it, with the same request."
    )


def _place(exchange: Exchange) -> str:
    return f"mcp.request_state.{exchange.context.method}.{exchange.caller.principal}"
