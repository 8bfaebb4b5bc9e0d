"""Sends a tool's questions to the client that waits for the tool's result.

    modern   the response is an InputRequiredResult under the upstream's own keys; the client sends its request again with the
             answers. The requestState contains the call id and the call's own key for each of these keys
    legacy   `elicitation/create` on the stream of the waiting request

A client without elicitation, or one that does not answer, gets a pending result; the questions stay open for REST and other
clients. The call's own keys (`domain.inputs`) are never reused, so a late answer cannot answer another question.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from ringback.asyncio_tasks import end_tasks
from ringback.backoff import Backoff
from ringback.domain.call import Call, InputRequest
from ringback.domain.errors import (
    CallEnded,
    InvalidRequest,
    QuotaExceeded,
    RingbackError,
    StoreUnavailable,
    Unavailable,
)
from ringback.domain.principal import Caller
from ringback.domain.signals import answer_refused_topic
from ringback.mcp_server import meta
from ringback.mcp_server.elicitation_ids import AskedQuestion
from ringback.mcp_server.gateway import Gateway, Result
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.request_state import seal_request_state, unknown_request_state, unseal_request_state
from ringback.mcp_server.session_notifications import send_to_request
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from ringback.telemetry.logs import call_facts
from ringback.waits import wait_first

log = logging.getLogger(__name__)


ELICITATION_TIMEOUT_SECONDS: Final = 50.0
"""How long a user may take while the client waits; after that the client gets a pending result. Clients time out after 60 s."""
STORE_WAIT_SECONDS: Final = 20.0
"""How long an answer waits for the store. No client sends it again, and the Python SDK 1.x sends nothing else meanwhile."""
_STORE_BACKOFF: Final = Backoff(first_seconds=0.1, longest_seconds=1.0)
_REFUSALS: Final = (InvalidRequest, QuotaExceeded, StoreUnavailable)
"""What another answer of the same client, or a later one, can avoid."""


def can_elicit(context: RequestContext, requests: Iterable[InputRequest]) -> bool:
    """Whether the client of this request supports all these questions."""
    return context.supports_elicitation({str(request.params.get("mode", "form")) for request in requests})


def answers_login(context: RequestContext) -> bool:
    """Whether a repeated modern request answers the request to sign in to the upstream."""
    responses: dict[str, Any] = (context.sdk_context.params or {}).get("inputResponses") or {}
    return LOGIN_REQUEST_KEY in responses


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a call for a legacy client."""

    call: Call
    key: str
    """In the call's `input_requests`."""
    meta: Mapping[str, Any]
    """Added to the `_meta` of its params."""
    refusal: str | None = None
    """Why the last answer was refused. A client shows its user the message of a question, and nothing else."""

    @property
    def request(self) -> InputRequest:
        return self.call.input_requests[self.key]

    @property
    def params(self) -> dict[str, Any]:
        params = meta.with_meta(self.request.params, self.meta)
        if self.refusal is not None:
            params["message"] = f"{params.get('message', '')}\n\nThe last answer was refused: {self.refusal}"
        return params


async def elicit_input(gateway: Gateway, context: RequestContext, question: Question, *, sent_max: int = 1) -> bool:
    """Send a legacy client a question, and store the answer; return whether it was answered.

    If the client cannot answer, the question stays open for other clients. After an answer that is refused, the question is
    sent again with the reason, up to `sent_max` times. Cancelling this coroutine cancels the question.
    """
    for _ in range(sent_max):
        try:
            answer = await _receive_answer(gateway, context, question)
            await _store_patiently(gateway, context.caller, question.call.id, {question.key: answer})
        except (MCPError, ValidationError, RingbackError) as problem:
            log.info("question.not_answered", extra={**call_facts(question.call), "problem": type(problem).__name__})
            if not isinstance(problem, _REFUSALS):
                return False
            question = replace(question, refusal=problem.detail)
        else:
            return True
    return False


async def _receive_answer(gateway: Gateway, context: RequestContext, question: Question) -> dict[str, Any]:
    """The client's answer. Raises `InvalidRequest` if it has reached another node, which could not store it."""
    elicitation = gateway.elicitation_ids.open_elicitation(question.call, question.key)
    with elicitation as request_id, anyio.CancelScope() as scope:
        topic = answer_refused_topic(context.caller.principal, request_id)
        with gateway.node_signals.subscribe(scope.cancel, topic, also_after_losses=False):
            return await _send_elicitation(context, request_id, question)
    raise InvalidRequest("Another node has refused the answer to this question.")


async def _send_elicitation(context: RequestContext, request_id: str, question: Question) -> dict[str, Any]:
    """Send the params as the upstream wrote them, under our id: the session's own method chooses one itself."""
    channel = context.sdk_context.session._request_outbound  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    method, params = question.request.method, question.params
    return _parse_answer(await channel.send_raw_request(method, params, {"request_id": request_id}))


def _parse_answer(result: Mapping[str, Any]) -> dict[str, Any]:
    """Raises `ValidationError`."""
    answer = types.ElicitResult.model_validate(result, by_name=False)
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


async def store_answer(gateway: Gateway, caller: Caller, asked: AskedQuestion, message: Mapping[str, Any]) -> None:
    """Store a client's answer to a question that another node asked. Raises `Unavailable`: a 202 would lose the answer.

    If the answer is refused, the node that asked responds to the waiting request, as if the answer had reached that node.
    """
    try:
        answer = _parse_answer(message.get("result") or {})
        await _store_patiently(gateway, caller, asked.call_id, {asked.key: answer})
    except Unavailable:
        raise
    except (ValidationError, RingbackError) as problem:
        log.info("question.not_answered", extra={"call_id": asked.call_id, "problem": type(problem).__name__})
        if gateway.node_signals.has_other_nodes:
            with suppress(StoreUnavailable):  # then the wait of the node that asked ends at its own time
                await gateway.node_signals.notify_nodes(answer_refused_topic(caller.principal, message["id"]))


async def _store_patiently(gateway: Gateway, caller: Caller, call_id: str, responses: Mapping[str, Any]) -> None:
    """Store answers. While the store is away they wait here: no SDK sends an answer again."""
    until = gateway.clock.monotonic() + STORE_WAIT_SECONDS
    for failures in count(1):
        try:
            await gateway.input_answers.answer_input(caller, call_id, responses)
        except StoreUnavailable as problem:
            pause_seconds = _STORE_BACKOFF.pause_seconds(failures)
            if problem.needs_operator or gateway.clock.monotonic() + pause_seconds > until:
                raise
        else:
            return
        await gateway.clock.sleep(pause_seconds)


class CallElicitation:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    # -- modern --

    def build_input_required_result(self, context: RequestContext, call: Call) -> Result:
        """An InputRequiredResult with the call's open questions."""
        requests = {
            each.name: {"method": each.method, "params": _select_modern_params(each)}
            for each in call.input_requests.values()
        }
        keys = {each.name: key for key, each in call.input_requests.items()}
        state = seal_request_state(self._gateway, context, {"call_id": call.id, "keys": keys})
        return meta.with_call_meta(
            {"resultType": "input_required", "inputRequests": requests, "requestState": state}, call
        )

    async def resume_call(self, context: RequestContext, state: str, *, upstream: str, tool: str) -> Call:
        """The call of a repeated request, after the answers in the request are stored."""
        state_data = unseal_request_state(self._gateway, context, state)
        call = await self._gateway.calls.get_for_waiting(context.caller, state_data["call_id"])
        if (call.upstream, call.tool) != (upstream, tool):
            raise unknown_request_state()
        return await self._apply_responses(context, call, state_data["keys"])

    async def apply_early_responses(self, context: RequestContext, call: Call) -> Call | None:
        """The call after the answers that its first request already contained; None if it contained none.

        A client that knows a tool's first question may send the answer with the call (SEP-2322). One that does not match the
        question counts as none: the call has begun, so the client gets the question instead of an error.
        """
        if call.input_round > 1 or (context.sdk_context.params or {}).get("requestState") is not None:
            return None
        keys = {each.name: key for key, each in call.input_requests.items()}
        try:
            updated = await self._apply_responses(context, call, keys)
        except InvalidRequest:
            return None
        return None if updated is call else updated

    async def _apply_responses(self, context: RequestContext, call: Call, keys: Mapping[str, str]) -> Call:
        """The call after the request's answers, by the upstream's keys, are stored; answers without a question are ignored."""
        received: dict[str, Any] = (context.sdk_context.params or {}).get("inputResponses") or {}
        responses = {keys[name]: response for name, response in received.items() if name in keys}
        if not responses or call.is_final:
            return call
        try:
            return (await self._gateway.input_answers.answer_input(context.caller, call.id, responses)).call
        except CallEnded:
            return await self._gateway.calls.get_for_waiting(context.caller, call.id)

    # -- legacy --

    async def elicit_all(self, context: RequestContext, call: Call) -> bool:
        """Send all open questions at once; return whether the call continues.

        The first answer counts, wherever it comes from; the remaining questions are then cancelled.
        """
        call_meta = meta.build_call_meta(call)
        answers = asyncio.gather(
            *(elicit_input(self._gateway, context, Question(call, key, call_meta)) for key in call.input_requests)
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
            await end_tasks([answers, status_change])

    async def announce_login(self, context: RequestContext, call: Call) -> None:
        """Notify a legacy client that the login which `call` waited for is complete (2025-11-25, URL mode elicitation)."""
        request = call.input_requests.get(LOGIN_REQUEST_KEY)
        if request is not None:
            params = {"elicitationId": request.params["elicitationId"]}
            await send_to_request(context, "notifications/elicitation/complete", params)


def _select_modern_params(request: InputRequest) -> Mapping[str, Any]:
    """2026-07-28 has no `elicitationId`, which Ringback's own requests and those of legacy upstreams have."""
    if request.params.get("mode") != "url":
        return request.params
    return {name: value for name, value in request.params.items() if name != "elicitationId"}


def is_upstream_task(call: Call) -> bool:
    """Whether the upstream runs the call as a task; then its questions belong to the task."""
    return call.handle is not None and call.handle.task_id is not None
