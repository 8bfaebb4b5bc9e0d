"""Calls that wait until the owner of their credentials signs in to the upstream, and the port of the store for them.

    running ──the upstream requires a login──▶ parked, input_required ──login──▶ queued ──▶ running
                                               {ringback/login: url}  └─refused, cancelled, deadline──▶ ended

The request to sign in is an elicitation in URL mode, which Ringback makes: it has the URL of Ringback's own login page and no
text of the upstream. The URL is the same for each call and contains no secret. The tool of a call without a handle did not run,
so the call may be sent again; a handle is kept, and the call goes on from it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from ringback.domain.call import (
    Call,
    CallPhase,
    CallStatus,
    InputRequest,
    advance_status,
    enter_phase,
    has_no_upstream_state,
    without_dispatch,
)
from ringback.domain.call_outcome import CallCompletion, CallOutcome, failed_completion
from ringback.domain.ids import CallId
from ringback.domain.inputs import ELICITATION_METHOD
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import CredentialsScope, UnreadableTokens, UpstreamTokens
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY, login_command


def awaits_login(call: Call) -> bool:
    return LOGIN_REQUEST_KEY in call.input_requests


def find_login_url(call: Call) -> str | None:
    """The page on which the user signs in, so that the call goes on; None if the call does not wait for that."""
    request = call.input_requests.get(LOGIN_REQUEST_KEY)
    return None if request is None else str(request.params["url"])


def ends_when_cancelled(call: Call) -> bool:
    """Whether a cancellation ends the call at once: no upstream runs it, or the upstream accepts no cancellation now."""
    return has_no_upstream_state(call) or (call.phase is CallPhase.PARKED and awaits_login(call))


def still_requires_login(tokens: UpstreamTokens | UnreadableTokens | None, *, refused_version: int | None) -> bool:
    """Whether tokens of this version, the stored ones, do not suffice for a call. `refused_version` did not.

    Of those that cannot be read here, another node finds out.
    """
    if tokens is None or (isinstance(tokens, UpstreamTokens) and tokens.access_token is None):
        return True
    return tokens.version == refused_version


def park_for_login(call: Call, *, login_url: str, now: datetime) -> Call:
    """The running call, parked until the login. Its other open requests and answers stay as they are.

    A call that was only checked (`domain.login_checks`) keeps its request to sign in.
    """
    if awaits_login(call):
        parked = enter_phase(replace(call, updated_at=now), CallPhase.PARKED, now=now)
        return parked if call.handle is not None else without_dispatch(parked)
    message = (
        f"Sign in to '{call.upstream}' so that the tool '{call.tool}' can run. The call goes on by itself after that. "
        "If your key lacks the scope 'admin' for a login that all users share, ask the operator to sign in. "
        f"If Ringback runs on your own machine, you can run this in a terminal instead: {login_command(call.upstream)}"
    )
    number = call.input_round + 1
    request = InputRequest(
        name=LOGIN_REQUEST_KEY,
        method=ELICITATION_METHOD,
        params={"mode": "url", "url": login_url, "elicitationId": f"{call.id}.{number}", "message": message},
    )
    waiting = (
        call if call.status is CallStatus.INPUT_REQUIRED else advance_status(call, CallStatus.INPUT_REQUIRED, now=now)
    )
    parked = enter_phase(
        replace(
            waiting,
            input_requests={**call.input_requests, LOGIN_REQUEST_KEY: request},
            input_round=number,
            updated_at=now,
        ),
        CallPhase.PARKED,
        now=now,
    )
    return parked if call.handle is not None else without_dispatch(parked)


def resume_after_login(call: Call, *, now: datetime) -> Call:
    """The parked call, queued again without the request to sign in."""
    still_open = {key: request for key, request in call.input_requests.items() if key != LOGIN_REQUEST_KEY}
    resumed = call if still_open else advance_status(call, CallStatus.WORKING, now=now)
    return enter_phase(replace(resumed, input_requests=still_open), CallPhase.QUEUED, now=now)


def unfinished_login_completion(call: Call, *, is_refused: bool) -> CallCompletion:
    """The completion of a call whose user refused to sign in, or did not sign in before the deadline."""
    what = "The user refused to sign in" if is_refused else "The call's deadline passed before the user signed in"
    ran = call.dispatched_at is not None or call.runs > 0
    consequence = "The tool may have done its work; its result was not fetched." if ran else "The tool did not run."
    outcome = CallOutcome.REJECTED if is_refused else CallOutcome.TIMED_OUT
    if is_refused and ran:
        outcome = CallOutcome.UNKNOWN
    return failed_completion(outcome, f"{what} to upstream '{call.upstream}'. {consequence}")


ANY_VERSION: Final = 2**62
"""Above the version of all tokens."""
NO_TOKENS_VERSION: Final = 0
"""Stands for no tokens at all. Versions of tokens begin at their login, in milliseconds since 1970."""


# -- rows --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginResumption:
    """An owner has signed in to an upstream, and calls that waited for it may still be parked."""

    upstream: str
    owner: Principal
    tokens_version: int
    """Of the login. Only calls that were refused with older tokens are queued; one that is refused again waits for the next."""
    worked_at: datetime
    """When the last batch of calls was queued. The resumption that was worked on longest ago is next."""


class LoginWaitRows(Protocol):
    """Which calls wait for a login, by upstream and owner of the tokens. The end of a call removes its row."""

    async def lock(self, upstream: str, owner: Principal) -> None:
        """Other units that lock the same owner's logins wait until this transaction ends.

        A call that parks is therefore before a login, which then queues it, or after it and finds the new tokens.
        """
        ...

    async def add(self, call_id: CallId, upstream: str, owner: Principal, *, tokens_version: int) -> None:
        """`tokens_version` is that of the tokens that did not suffice; `NO_TOKENS_VERSION` if there were none.

        A call that waits already comes after those that were refused less often. A resumption that is worked on does not
        queue the call again.
        """
        ...

    async def list_waiting(
        self, upstream: str, owner: Principal, *, tokens_version: int, limit: int
    ) -> Sequence[CallId]:
        """The calls that were refused with older tokens than these, first those of the oldest tokens."""
        ...

    async def remove(self, call_ids: Collection[CallId]) -> None: ...

    async def resume_orphans(self, upstream: str, owners: CredentialsScope, *, now: datetime) -> None:
        """Make a resumption for each owner of this kind who has waiting calls: they are queued once, without a login."""
        ...

    async def save_resumption(self, resumption: LoginResumption) -> None:
        """There is one for each owner and upstream; it keeps the version of the last login."""
        ...

    async def find_next_resumption(self) -> LoginResumption | None:
        """The one that was worked on longest ago."""
        ...

    async def remove_resumption(self, resumption: LoginResumption) -> None:
        """One of a later login stays."""
        ...
