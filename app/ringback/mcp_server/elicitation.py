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
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.meta import extended

log = logging.getLogger(__name__)


class RawRequest(types.Request[dict[str, Any], str]):
    """Params go out as the upstream wrote them."""


def can_be_asked(exchange: Exchange, requests: Iterable[InputRequest]) -> bool:
    """Whether this client, in this request, can be asked all these."""
    return exchange.elicits({str(request.params.get("mode", "form")) for request in requests})


async def put_question(
    gateway: Gateway, exchange: Exchange, call: Call, key: str, request: InputRequest, *, about: Mapping[str, Any]
) -> bool:
    """Ask, and take the answer for the call; `about` goes into the question's `_meta`. Whether it was answered.

    A client that cannot say leaves the question open for whoever else may answer it. Cancelling this takes the question back.
    """
    try:
        answer = await _elicit(exchange, request, about)
        await gateway.answers.answer(exchange.caller, call.id, {key: answer})
    except (MCPError, ValidationError, RingbackError) as problem:
        log.info("question.not_answered", extra={"call_id": call.id, "problem": type(problem).__name__})
        return False
    return True


async def _elicit(exchange: Exchange, request: InputRequest, about: Mapping[str, Any]) -> dict[str, Any]:
    params = extended(without_reserved_meta(request.params), about)
    place = ServerMessageMetadata(related_request_id=exchange.context.request_id)
    asked = cast("Any", RawRequest(method=request.method, params=params))
    result = await exchange.context.session.send_request(asked, types.ElicitResult, metadata=place)
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)
