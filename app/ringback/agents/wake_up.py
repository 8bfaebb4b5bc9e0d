"""What wakes an agent: a callback in any of the forms in which a process gets it."""

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ringback.agents.call_state import CallState, CallStateKind
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from ringback.receiver import Callback, NotReady, parse

WAKING_EVENTS: Final = frozenset({"call.finished", "call.input_required"})
"""The events after which an agent has something to do."""

CallbackForm = Callback | Mapping[str, Any] | bytes | str
"""A callback: of `ringback.receiver`, its JSON body, or the line that `ringback listen` gives to a command."""

AskPerson = Callable[[CallState], Awaitable[None]]
"""Shows the questions of a call, its `input_requests`, to a person. The request `ringback/login` has the URL at which the
person signs in, and needs no answer. The answers to the others go to `RingbackClient.answer`, from any process, at any time
before the call's deadline."""

PARKING_MINUTES_MAX: Final = 10
"""After this time since its end, a call that no state mentions belongs to an agent that died before it stored its state. A
framework stores it when the other tools of the same step have ended. For as long, a process that continues an agent's run, and
keeps no lease of it, may be at work after what it has stored last: a turn of a model takes minutes."""

log = logging.getLogger(__name__)


class NotParkedYet(NotReady):
    """The callback came before the agent's framework had stored its state, or while another process continues the run.

    It comes again: a receiver refuses it with 503. If that process has died, the run can be continued ten minutes after its
    last stored step (LangGraph, Google ADK) or a minute after the death (OpenAI Agents): the first callback after that does.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)

    def __reduce__(self) -> tuple[Any, ...]:
        """As that of `NotReady`, for the argument of this class."""
        return type(self), (str(self),)


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUp:
    """The call that an event is about. It is only a reason to look: what happened is read from Ringback."""

    call_id: str
    client_session_id: str | None = None
    tool_call_id: str | None = None
    """The correlation_id of the callback."""


def parse_wake_up(callback: CallbackForm) -> WakeUp | None:
    """The call of a callback, or None if its event wakes no agent. Raises `MalformedBody` for what is not a callback."""
    envelope = callback if isinstance(callback, Callback) else parse(_as_bytes(callback))
    if not isinstance(envelope, Callback) or envelope.name not in WAKING_EVENTS or envelope.call_id is None:
        return None
    return WakeUp(
        call_id=envelope.call_id, client_session_id=envelope.client_session_id, tool_call_id=envelope.correlation_id
    )


def find_tool_call(wake_up: WakeUp, state: CallState) -> tuple[str | None, str | None]:
    """The client_session_id and the tool_call_id of the call: as Ringback knows them, because a callback proves nothing.

    Of an expired call Ringback knows neither, and the callback's are used: a forged one finds nothing that waits for the call.
    """
    known = wake_up if state.is_expired else state
    return known.client_session_id, known.tool_call_id


def _as_bytes(callback: Mapping[str, Any] | bytes | str) -> bytes:
    if isinstance(callback, bytes):
        return callback
    return (callback if isinstance(callback, str) else json.dumps(dict(callback))).encode()


async def ask_person(state: CallState, ask: AskPerson | None) -> None:
    """Await `ask` if the call asks. Without `ask`, log that no person is asked.

    For the call of the callback only: the callback of another call is no reason to show a question again.
    """
    if state.kind is not CallStateKind.INPUT_REQUIRED:
        return
    login = state.input_requests.get(LOGIN_REQUEST_KEY)
    if ask is None and login is not None:
        log.warning(
            "The call %s waits until a person signs in at %s, but wake() has no `ask`",
            state.call_id,
            login["params"].get("url"),
        )
        return
    if ask is None:
        log.warning(
            "The call %s asks a person, but wake() has no `ask`; the call waits until its deadline", state.call_id
        )
        return
    await ask(state)


def refuse_if_early(state: CallState, now: datetime) -> None:
    """Raise `NotParkedYet` if the agent's state may still be stored. Else its process has died before, and nothing wakes it."""
    if is_recent(state.changed_at, now):
        raise NotParkedYet(
            f"No stored state of an agent has the call {state.call_id} yet. Refuse the callback; it comes again."
        )
    log.warning("No stored state of an agent has the call %s; its agent died before it was stored", state.call_id)


def refuse_while_running(problem: str, acted_at: Collection[datetime | None], now: datetime) -> None:
    """Raise `NotParkedYet` if the process that acted last at one of these times may still be at work. None is now."""
    latest = max(instant or now for instant in acted_at)
    if is_recent(latest, now):
        until = (latest + timedelta(minutes=PARKING_MINUTES_MAX)).astimezone(UTC)
        raise NotParkedYet(
            f"{problem} If the process that runs it has died, the first callback after {until:%Y-%m-%dT%H:%M:%SZ} "
            "continues it. Refuse the callback; it comes again."
        )


def is_recent(instant: datetime | None, now: datetime) -> bool:
    """Whether the process that acts since this instant may still be at work. None is now."""
    return instant is None or instant > now - timedelta(minutes=PARKING_MINUTES_MAX)


def current_time() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the adapters' default clock; `clock` replaces it
