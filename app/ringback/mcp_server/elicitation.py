"""One question of a tool put to the client of a session (before 2026-07-28), on the stream of a request that waits."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from ringback.domain.call import Call, InputRequest
from ringback.domain.errors import RingbackError
from ringback.domain.meta import without_reserved_meta
from ringback.mcp_server.exchange import RequestContext
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.meta import with_meta

log = logging.getLogger(__name__)


class RawElicitRequest(types.Request[dict[str, Any], str]):
    """Params go out as the upstream wrote them."""


def can_elicit(context: RequestContext, requests: Iterable[InputRequest]) -> bool:
    """Whether this client, in this request, can be asked all these."""
    return context.supports_elicitation({str(request.params.get("mode", "form")) for request in requests})


async def elicit_input(
    gateway: Gateway, context: RequestContext, call: Call, key: str, input_request: InputRequest, *, call_meta: Mapping[str, Any]
) -> bool:
    """Ask, and take the answer for the call; `about` goes into the question's `_meta`. Whether it was answered.

    A client that cannot say leaves the question open for whoever else may answer it. Cancelling this takes the question back.
    """
    try:
        answer = await _send_elicitation(context, input_request, call_meta)
        await gateway.input_answers.answer_input(context.caller, call.id, {key: answer})
    except (MCPError, ValidationError, RingbackError) as problem:
        log.info("question.not_answered", extra={"call_id": call.id, "problem": type(problem).__name__})
        return False
    return True


async def _send_elicitation(context: RequestContext, request: InputRequest, call_meta: Mapping[str, Any]) -> dict[str, Any]:
    params = with_meta(without_reserved_meta(request.params), call_meta)
    metadata = ServerMessageMetadata(related_request_id=context.sdk_context.request_id)
    message = cast("Any", RawElicitRequest(method=request.method, params=params))
    result = await context.sdk_context.session.send_request(message, types.ElicitResult, metadata=metadata)
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)
