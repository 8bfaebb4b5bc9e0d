"""A session of ADK, as its service stores it: which calls are parked in it, and which have their responses.

Some models name the first call of every response alike. So the id of the call at Ringback, which each response has, says which
call the response belongs to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from google.adk.events import Event
from google.adk.sessions import Session
from google.genai import types

PENDING: Final = "pending"
CALL_ID: Final = "ringback_call_id"
"""The key of a call's id in every response that the session stores."""


def name_session(app_name: str, user_id: str, session_id: str) -> str:
    """The client_session_id of a session's calls, with which a webhook selects them."""
    return "/".join(quote(part, safe="") for part in (app_name, user_id, session_id))


def parse_session_name(name: str | None) -> tuple[str, str, str] | None:
    """App, user and session of a name that `name_session` has made, else None."""
    match [unquote(part) for part in (name or "").split("/")]:
        case [app_name, user_id, session_id]:
            return app_name, user_id, session_id
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Parking:
    """The event that parked a call. A model's parallel calls share one event."""

    index: int
    pending: dict[str, types.FunctionResponse]
    """Its `pending` responses, by call_id."""


def find_parking(session: Session, call_id: str) -> Parking | None:
    for index, event in enumerate(session.events):
        pending = {
            parked_id: response
            for response in event.get_function_responses()
            if (parked_id := _find_parked_id(response)) is not None
        }
        if call_id in pending:
            return Parking(index, pending)
    return None


def _find_parked_id(response: types.FunctionResponse) -> str | None:
    """The id of the call that this response has parked; None for any other response."""
    content = response.response or {}
    return content.get(CALL_ID) if content.get("status") == PENDING else None


def has_response(session: Session, call_id: str) -> bool:
    """Whether the tool has responded with the result itself: its call had ended when it was started."""
    own = (event for event in session.events if event.author != "user")
    responses = (response for event in own for response in event.get_function_responses())
    return any((response.response or {}).get(CALL_ID) == call_id for response in responses)


def find_answer(session: Session, answers: Sequence[types.FunctionResponse], *, after: int) -> int | None:
    """The index of the event with which this session was continued for these calls, which an earlier event parked."""
    for index, event in enumerate(session.events[after:], after):
        if event.author == "user" and any(
            _is_same_answer(response, answer) for response in event.get_function_responses() for answer in answers
        ):
            return index
    return None


def _is_same_answer(response: types.FunctionResponse, answer: types.FunctionResponse) -> bool:
    """By the calls' ids. Responses of earlier versions have none."""
    call_id = (answer.response or {}).get(CALL_ID)
    return response.id == answer.id and (response.response or {}).get(CALL_ID, call_id) == call_id


def waits_for_namesake(session: Session, called: types.FunctionCall) -> bool:
    """Whether another function call with the id of this one waits for its response, or is made before it in one step.

    The same function call again is no other: it finds its call.
    """
    waiting: dict[str, types.FunctionCall] = {}
    made = [called]
    for event in session.events:
        made = [each for each in event.get_function_calls() if each.id == called.id] or made
        for response in event.get_function_responses():
            if response.id == called.id and event.author == "user":
                _remove_answered(waiting, response)
            elif response.id == called.id and (call_id := _find_parked_id(response)) is not None:
                waiting[call_id] = made[0]
    current = made[0] if len(made) == 1 else called  # `made` has the arguments as the model wrote them
    return any((each.name, each.args) != (current.name, current.args) for each in [*waiting.values(), made[0]])


def _remove_answered(waiting: dict[str, types.FunctionCall], answer: types.FunctionResponse) -> None:
    call_id = (answer.response or {}).get(CALL_ID)
    if call_id is None:  # of an earlier version
        waiting.clear()
    else:
        waiting.pop(call_id, None)


def has_answered(event: Event) -> bool:
    """Whether the agent has answered with this event. A response of a parked call and an error end a run without an answer."""
    if event.author == "user" or event.error_code is not None:
        return False
    return event.is_final_response() and not event.get_function_responses()
