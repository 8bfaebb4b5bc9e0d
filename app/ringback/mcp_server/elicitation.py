"""One question of a tool put to the client of a session (before 2026-07-28), on the stream of a request that waits."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from ringback.domain.call import Call, InputRequest
from ringback.domain.errors import CallEnded, RingbackError
from ringback.domain.meta import without_reserved_meta
from ringback.mcp_server import meta
from ringback.mcp_server.gateway import Gateway, Result
from ringback.mcp_server.meta import with_meta
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.request_state import seal_request_state, unknown_request_state, unseal_request_state
from ringback.waits import wait_first

log = logging.getLogger(__name__)


class RawElicitRequest(types.Request[dict[str, Any], str]):
    """Params go out as the upstream wrote them."""


def can_elicit(context: RequestContext, requests: Iterable[InputRequest]) -> bool:
    """Whether this client, in this request, can be asked all these."""
    return context.supports_elicitation({str(request.params.get("mode", "form")) for request in requests})


async def elicit_input(
    gateway: Gateway,
    context: RequestContext,
    call: Call,
    key: str,
    input_request: InputRequest,
    *,
    call_meta: Mapping[str, Any],
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


async def _send_elicitation(
    context: RequestContext, request: InputRequest, call_meta: Mapping[str, Any]
) -> dict[str, Any]:
    params = with_meta(without_reserved_meta(request.params), call_meta)
    metadata = ServerMessageMetadata(related_request_id=context.sdk_context.request_id)
    message = cast("Any", RawElicitRequest(method=request.method, params=params))
    result = await context.sdk_context.session.send_request(message, types.ElicitResult, metadata=metadata)
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


# Questions of a tool put to the client that waits for its answer.
#
#     2026-07-28   the answer is an InputRequiredResult under the upstream's own keys, and the client sends its request again
#                  with the responses. The requestState names the call and, for each of these keys, the call's own
#     before       `elicitation/create` on the stream of the waiting request
#
# Whoever cannot be asked, or does not answer, gets a pending result; the questions stay open for every other door. The call's own
# keys (`domain.inputs`) are never used twice, so an answer that comes late answers nothing by mistake.

ELICITATION_TIMEOUT_SECONDS: Final = 50.0
"""How long a user may take while the client waits; then it is told where to answer. Clients give up after 60 s."""


class CallElicitation:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def can_elicit(self, context: RequestContext, call: Call) -> bool:
        """Whether this client, in this request, can be asked what the call asks now."""
        return can_elicit(context, call.input_requests.values())

    # -- 2026-07-28 --

    def build_input_required_result(self, context: RequestContext, call: Call) -> Result:
        """An InputRequiredResult."""
        requests = {each.name: {"method": each.method, "params": each.params} for each in call.input_requests.values()}
        keys = {each.name: key for key, each in call.input_requests.items()}
        state = seal_request_state(self._gateway, context, {"call_id": call.id, "keys": keys})
        return meta.with_call_meta(
            {"resultType": "input_required", "inputRequests": requests, "requestState": state}, call
        )

    async def resume_call(self, context: RequestContext, state: str, *, upstream: str, tool: str) -> Call:
        """The call of a request that is sent again, with the responses taken that it brings."""
        state_data = unseal_request_state(self._gateway, context, state)
        call = await self._gateway.calls.get_for_waiting(context.caller, state_data["call_id"])
        if (call.upstream, call.tool) != (upstream, tool):
            raise unknown_request_state()
        return await self._apply_responses(context, call, state_data["keys"])

    async def apply_early_responses(self, context: RequestContext, call: Call) -> Call | None:
        """The call with the answers taken that the request that began it brought along; None when it brought none.

        A client that knows what a tool asks first may answer unasked (SEP-2322).
        """
        if call.input_round > 1 or (context.sdk_context.params or {}).get("requestState") is not None:
            return None
        updated = await self._apply_responses(
            context, call, {each.name: key for key, each in call.input_requests.items()}
        )
        return None if updated is call else updated

    async def _apply_responses(self, context: RequestContext, call: Call, keys: Mapping[str, str]) -> Call:
        """The call after what the request answers, by the upstream's keys; what is not asked is ignored."""
        received: dict[str, Any] = (context.sdk_context.params or {}).get("inputResponses") or {}
        responses = {keys[name]: response for name, response in received.items() if name in keys}
        if not responses or call.is_final:
            return call
        try:
            return (await self._gateway.input_answers.answer_input(context.caller, call.id, responses)).call
        except CallEnded:
            return await self._gateway.calls.get_for_waiting(context.caller, call.id)

    # -- before --

    async def elicit_all(self, context: RequestContext, call: Call) -> bool:
        """Ask everything that is open, all at once; whether the call goes on then.

        The first answer counts, whatever door it comes through; what is still asked here then is taken back.
        """
        call_meta = meta.build_call_meta(call)
        answers = asyncio.gather(
            *(
                elicit_input(self._gateway, context, call, key, each, call_meta=call_meta)
                for key, each in call.input_requests.items()
            )
        )
        status_change = asyncio.ensure_future(
            self._gateway.calls.wait_for_call(
                context.caller, call, wait_seconds=ELICITATION_TIMEOUT_SECONDS, until_final=False
            )
        )
        try:
            await wait_first(asyncio.shield(answers), asyncio.shield(status_change))
            return (
                status_change.result()[0].status is not call.status if status_change.done() else all(answers.result())
            )
        finally:
            answers.cancel()
            status_change.cancel()
            await asyncio.gather(answers, status_change, return_exceptions=True)


def is_upstream_task(call: Call) -> bool:
    """Whether the upstream made a task of it: then what it asks belongs to the task."""
    return call.handle is not None and "task_id" in call.handle.data
