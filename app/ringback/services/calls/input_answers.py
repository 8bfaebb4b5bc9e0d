"""Answers to the questions of a call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, cast

from ringback.domain import inputs, json_size, jsontext
from ringback.domain.call import Call, CallPhase
from ringback.domain.errors import CallEnded, InvalidRequest
from ringback.domain.inputs import INPUT_BYTES_MAX, InputAnswer
from ringback.domain.login_waits import unfinished_login_completion
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC, call_answered_topic
from ringback.notifier.recorder import Recorder
from ringback.services.audit import record_own_change
from ringback.services.calls.call_reads import get_changeable_call
from ringback.services.limits.schema_checks import ANSWERS_REFUSED, SchemaCheckLimiter

INPUT_RESPONSES_MAX: Final = 64
"""More than the open questions of a call, so that a client can also send its earlier answers again."""
ELICIT_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})


class AnswerContent(NamedTuple):
    """The content of an accepted answer, and the requestedSchema of its question."""

    key: str
    schema: Mapping[str, Any]
    content: Any


class AnswerSchemas(Protocol):
    """Validates answers against JSON Schemas of upstreams, in bounded time."""

    def find_errors(self, contents: Sequence[AnswerContent]) -> Sequence[Mapping[str, str]]:
        """The first errors, each with `pointer` and `detail`. A schema that cannot be used has none."""
        ...


@dataclass(frozen=True, slots=True)
class InputAnswers:
    store: Store
    recorder: Recorder
    schemas: AnswerSchemas
    check_limiter: SchemaCheckLimiter

    async def answer_input(self, caller: Caller, call_id: str, responses: Mapping[str, Any]) -> InputAnswer:
        """Answer some or all open questions of the call. Answers without an open question are ignored and listed.

        `responses` are ElicitResults by the call's own keys: `{"r1.1": {"action": "accept", "content": {…}}}`. Raises
        `InvalidRequest` if the content of one does not match its question; all questions then stay open.
        """
        caller.require_scope(Scope.CALLS)
        _check_responses(responses)
        _check_responses_size(responses)  # also here: the transaction checks the contents, also those of a large answer

        async def apply_answer(tx: Transaction) -> InputAnswer:
            call = await get_changeable_call(tx, caller, call_id)
            if call.is_final:
                raise CallEnded(f"The call has ended as {call.status}; it has no open questions.", call_id=call.id)
            self._check_contents(caller.principal, call, responses)
            answer = inputs.answer_input(call, responses, now=tx.now())
            if answer.declines_login:
                await record_own_change(tx, caller, "answer_call", call.id)
                return await self._end_without_login(tx, answer)
            if answer.call is not call:
                _check_responses_size(answer.call.input_responses)
                await record_own_change(tx, caller, "answer_call", call.id)
                await self.recorder.record_input_requests(tx, call, answer.call, lease_token=None)
                tx.notify(call_answered_topic(call.id))
                if answer.call.phase is CallPhase.QUEUED:
                    tx.notify(CALL_QUEUED_TOPIC)
            return answer

        return await self.store.write_for(caller.principal, apply_answer)

    def _check_contents(self, principal: Principal, call: Call, responses: Mapping[str, Any]) -> None:
        contents = [
            AnswerContent(key, schema, response.get("content", {}))
            for key, response in responses.items()
            if response["action"] == "accept"
            and (request := call.input_requests.get(key)) is not None
            and isinstance(schema := request.params.get("requestedSchema"), Mapping)
        ]
        if not contents:
            return
        with self.check_limiter.measure_check(principal, ANSWERS_REFUSED):
            errors = self.schemas.find_errors(contents)
        if errors:
            detail = "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors)
            raise InvalidRequest(
                f"The answer does not match the requestedSchema of its question: {detail}. The questions stay open.",
                errors=errors,
                requested_schemas={each.key: each.schema for each in contents if _is_named(each, errors)},
            )

    async def _end_without_login(self, tx: Transaction, answer: InputAnswer) -> InputAnswer:
        completion = unfinished_login_completion(answer.call, is_refused=True)
        ended = await self.recorder.finish_call(tx, answer.call, completion, lease_token=None)
        return replace(answer, call=ended or answer.call)


def _is_named(content: AnswerContent, errors: Sequence[Mapping[str, str]]) -> bool:
    pointer = jsontext.format_pointer(["responses", content.key, "content"])
    return any(error["pointer"].startswith(pointer) for error in errors)


def _check_responses(responses: Mapping[str, Any]) -> None:
    if not responses or len(responses) > INPUT_RESPONSES_MAX:
        raise InvalidRequest(f"responses must hold 1 to {INPUT_RESPONSES_MAX} answers, by the keys in input_requests.")
    for key, response in responses.items():
        if not _is_elicit_result(response):
            shown = key[: len("r100.32")]
            raise InvalidRequest(
                f"The answer '{shown}' must be an object like "
                '{"action": "accept", "content": {…}}, with the content that the requestedSchema of its question asks for; '
                'action can also be "decline" or "cancel", without content.',
                key=shown,
            )


def _is_elicit_result(response: Any) -> bool:
    """Check the form of an MCP ElicitResult."""
    if not isinstance(response, dict):
        return False
    result = cast("dict[str, Any]", response)
    action = result.get("action")
    return isinstance(action, str) and action in ELICIT_ACTIONS and isinstance(result.get("content", {}), dict)


def _check_responses_size(responses: Mapping[str, Any]) -> None:
    try:
        fits = json_size.fits_row(jsontext.dumps(responses), bytes_max=INPUT_BYTES_MAX)
    except TypeError:
        fits = False
    if not fits:
        raise InvalidRequest(
            f"All answers of a call together have at most {INPUT_BYTES_MAX} bytes, and not thousands of values. Send shorter "
            "answers."
        )
