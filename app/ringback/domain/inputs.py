"""Input requests of a tool during a call, and the client's answers.

    request_input ──▶ input_requests {r1.1: …} ──answer_input──▶ input_responses {…} ──remove_sent_responses──▶ none
                      status input_required                      status working, once no request is open

An upstream chooses the names of its requests and may repeat a name in a later round. The keys made here are unique in a call,
so a late answer cannot answer another request. They contain no text of the upstream, so events may carry them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, cast

from ringback.domain import json_size, jsontext
from ringback.domain.call import Call, CallPhase, CallStatus, InputRequest, advance_status, enter_phase
from ringback.domain.meta import without_reserved_meta
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY

ELICITATION_METHOD: Final = "elicitation/create"
"""The only kind of input request that is declared to upstreams (`runner.drivers.mrtr`)."""
ACCEPT_INPUT_ADVICE: Final = (
    "If you can answer: over MCP, declare the capability elicitation or request a callback; over REST, start the call with "
    "accepts_input (ringback call --accepts-input)."
)
"""For the client of a call whose tool asks, and which does not accept input."""
REFUSED_KINDS: Final = {"sampling/createMessage": "sampling", "roots/list": "roots"}
"""Kinds of input requests that Ringback refuses: it has no model, and it shares no folders of its clients."""
INPUT_REQUESTS_MAX: Final = 32
"""Open at once. A form with many fields is one request."""
INPUT_BYTES_MAX: Final = 64 * 1024
"""Bytes of all requests of a call, and of all answers: the call's row holds them."""
INPUT_ROUNDS_MAX: Final = 1_000
"""Times that one call may ask for input. Each is an event with its callbacks, and a task may ask at every poll for days."""
_NOT_OFFERED: Final = "The upstream asks for something that it was not offered."


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAnswer:
    call: Call
    accepted: Sequence[str]
    ignored: Sequence[str]
    """Keys without an open request."""
    declines_login: bool = False
    """Whether the answers refuse to sign in to the upstream: the call then ends."""


def request_input(call: Call, requests: Mapping[str, Mapping[str, Any]], *, now: datetime) -> Call:
    """The call with exactly these requests open, by the upstream's names; the same value if nothing changes.

    A request whose answer waits to be sent is not opened again. Raises ValueError for other kinds of requests and above the
    limits.
    """
    check_input_requests(requests)
    still_open = {key: request for key, request in call.input_requests.items() if request.name in requests}
    known = {request.name for request in still_open.values()} | set(call.input_responses)
    new = [name for name in requests if name not in known]
    if not new and len(still_open) == len(call.input_requests):
        return call
    if new:
        require_further_round(call)
    number = call.input_round + bool(new)
    new_requests = {
        f"r{number}.{index}": InputRequest(
            name=name, method=ELICITATION_METHOD, params=without_reserved_meta(requests[name].get("params", {}))
        )
        for index, name in enumerate(new, start=1)
    }
    return _with_requests(replace(call, input_round=number, updated_at=now), still_open | new_requests, now=now)


def require_further_round(call: Call, *, waiting: int = 0) -> None:
    """Raise ValueError if the call may not ask again, after as many `waiting` questions as may each become a round."""
    if call.input_round + waiting >= INPUT_ROUNDS_MAX:
        raise ValueError(f"The upstream asked for input more than {INPUT_ROUNDS_MAX} times.")


def answer_input(call: Call, responses: Mapping[str, Any], *, now: datetime) -> InputAnswer:
    """The call with these answers. A parked call is queued again once no request is open.

    No answer closes a request to sign in: only the login does, or the call ends because the answer refuses it.
    """
    accepted = [key for key in responses if key in call.input_requests]
    ignored = [key for key in responses if key not in call.input_requests]
    answered = [key for key in accepted if key != LOGIN_REQUEST_KEY]
    declines = LOGIN_REQUEST_KEY in accepted and responses[LOGIN_REQUEST_KEY].get("action") != "accept"
    if not answered or declines:
        return InputAnswer(call=call, accepted=accepted, ignored=ignored, declines_login=declines)
    new_responses = {call.input_requests[key].name: responses[key] for key in answered}
    still_open = {key: request for key, request in call.input_requests.items() if key not in answered}
    updated = _with_requests(
        replace(call, input_responses={**call.input_responses, **new_responses}, updated_at=now),
        still_open,
        now=now,
    )
    if updated.phase is CallPhase.PARKED and not still_open:
        updated = enter_phase(updated, CallPhase.QUEUED, now=now)
    return InputAnswer(call=updated, accepted=accepted, ignored=ignored)


def remove_sent_responses(call: Call, names: Collection[str]) -> Call:
    """The call without these answers, which the upstream has received."""
    return replace(
        call, input_responses={name: value for name, value in call.input_responses.items() if name not in names}
    )


def clear_inputs(call: Call, *, now: datetime) -> Call:
    """The call without requests and answers. `input_round` stays, so that keys are not used again."""
    return _with_requests(replace(call, input_responses={}), {}, now=now)


def _with_requests(call: Call, requests: Mapping[str, InputRequest], *, now: datetime) -> Call:
    status = CallStatus.INPUT_REQUIRED if requests else CallStatus.WORKING
    updated = call if status is call.status else advance_status(call, status, now=now)
    return replace(updated, input_requests=requests)


def check_input_requests(requests: object) -> None:
    """Raise ValueError unless these are input requests by name, all of the kind that is offered. They may be any JSON."""
    if not isinstance(requests, Mapping):
        raise ValueError(_NOT_OFFERED)  # noqa: TRY004 - an upstream wrote it
    _check_named_requests(cast("Mapping[str, object]", requests))
    try:
        fits = json_size.fits_row(jsontext.dumps(requests), bytes_max=INPUT_BYTES_MAX)
    except TypeError:
        raise ValueError("The upstream's questions cannot be kept.") from None
    if not fits:
        raise ValueError(
            f"The upstream's questions are larger than {INPUT_BYTES_MAX} bytes, or have thousands of values."
        )


def _check_named_requests(requests: Mapping[str, object]) -> None:
    if LOGIN_REQUEST_KEY in requests:
        raise ValueError(f"The upstream uses the name '{LOGIN_REQUEST_KEY}', which is Ringback's.")
    if len(requests) > INPUT_REQUESTS_MAX:
        raise ValueError(f"The upstream asks more than {INPUT_REQUESTS_MAX} questions at once.")
    for request in requests.values():
        known: Mapping[str, Any] = cast("Mapping[str, Any]", request) if isinstance(request, Mapping) else {}
        method = known.get("method")
        if isinstance(method, str) and (kind := REFUSED_KINDS.get(method)) is not None:
            raise ValueError(
                f"The upstream asks for {kind}, which Ringback refuses to every upstream; MCP 2026-07-28 deprecates {kind}."
            )
        if method != ELICITATION_METHOD or not isinstance(known.get("params", {}), dict):
            raise ValueError(_NOT_OFFERED)
