"""The modern requestState, which a client carries from one round of questions to the next.

A client may disclose or replace it, so it is sealed for its principal and its method.
"""

from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from ringback.domain import jsontext
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.request_context import RequestContext
from ringback.signing.base64_text import decode_base64, encode_base64
from ringback.signing.sealing import UnsealError


def seal_request_state(gateway: Gateway, context: RequestContext, data: Any) -> str:
    return encode_base64(gateway.sealer.seal(jsontext.dumps(data), associated_data=_get_associated_data(context)))


def unseal_request_state(gateway: Gateway, context: RequestContext, state: object) -> Any:
    """The sealed data; raises -32602 for a state that this principal did not get for this method.

    The SDK checks the type of the state only for the methods that have one.
    """
    if not isinstance(state, str):
        raise unknown_request_state()
    try:
        return jsontext.loads(
            gateway.sealer.unseal(decode_base64(state), associated_data=_get_associated_data(context))
        )
    except (ValueError, UnsealError):
        raise unknown_request_state() from None


def unknown_request_state() -> MCPError:
    return MCPError(INVALID_PARAMS, "Unknown requestState. Send it unchanged, with the same request.")


def _get_associated_data(context: RequestContext) -> str:
    return f"mcp.request_state.{context.sdk_context.method}.{context.caller.principal}"
