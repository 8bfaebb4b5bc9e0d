"""Resume: a token becomes a call, its result, and the events since.

A resume token narrows what a caller may see to one call; it never replaces the caller. With authentication on, the API key
decides who is asking, and a token of somebody else's is as unknown as a forged one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.cursor import Place
from ringback.domain.errors import NotFound, ResumeTokenExpired
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import changed
from ringback.notifier.places import place_at
from ringback.notifier.resume_tokens import CallTokens
from ringback.services.calls import own_call
from ringback.services.events import read_page
from ringback.services.lifecycle import Lifecycle
from ringback.services.waiting import look_until
from ringback.signing.resume_token import BadToken, ExpiredToken, ResumeClaims

EVENTS_MAX = 100
"""Events handed out at once; the fresh token stands after the last of them, so the rest comes with the next resume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    call: Call
    result: bytes | None = field(repr=False)
    """The stored CallToolResult as JSON, once there is one."""
    events: Sequence[Event]
    """This call's events after the token's place."""
    truncated: bool
    """Whether that place is in a log that was lost when a backup was restored. Then these are all of the call's events."""
    resume_token: str = field(repr=False)
    """A fresh token, standing after these events."""


class Resume:
    def __init__(self, *, store: Store, clock: Clock, tokens: CallTokens, lifecycle: Lifecycle) -> None:
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._lifecycle = lifecycle

    async def resume(self, caller: Caller, token: str, *, wait_seconds: float = 0.0) -> Resumed:
        """Where the call stands; with `wait_seconds`, once it has ended or that time is over."""
        caller.require(Scope.READ)
        claims = self._claims(caller, token)
        return await look_until(
            lambda: self._store.read(lambda tx: self._look(tx, caller.principal, claims)),
            lambda resumed: resumed.call.final,
            signals=self._store.signals,
            topics=[changed(CallId(claims.call_id))],
            wait_seconds=wait_seconds,
            clock=self._clock,
            lifecycle=self._lifecycle,
        )

    async def issue(self, caller: Caller, call_id: str, *, revoke_older: bool = False) -> str:
        """A fresh token of the call, standing at the end of the log; with `revoke_older`, the only one that still works.

        Revoking reaches the tokens in callbacks too, also in those that are still on their way.
        """
        caller.require(Scope.CALLS)

        async def issue(tx: Transaction) -> str:
            call = await own_call(tx, caller.principal, call_id)
            if revoke_older:
                version = await tx.calls.revoke_tokens(call.id, now=tx.now())
                call = replace(call, token_version=version or call.token_version)
            head = await tx.event_places.head(caller.principal)
            return self._tokens.issue(call, after=await place_at(tx, caller.principal, head))

        return await (self._store.write(issue) if revoke_older else self._store.read(issue))

    def _claims(self, caller: Caller, token: str) -> ResumeClaims:
        try:
            claims = self._tokens.read(token, principal=caller.principal, now=self._clock.now())
        except ExpiredToken:
            raise ResumeTokenExpired("The resume token has expired together with its call's result.") from None
        except BadToken:
            raise unknown_token() from None
        return claims

    async def _look(self, tx: Transaction, principal: Principal, claims: ResumeClaims) -> Resumed:
        try:
            call = await own_call(tx, principal, claims.call_id)
        except NotFound:
            raise unknown_token() from None
        if call.token_version != claims.token_version:
            raise unknown_token()
        after = Place(claims.cursor_seq, claims.cursor_mark)
        page = await read_page(tx, principal, EventFilter(call_id=call.id), after=after, limit=EVENTS_MAX)
        return Resumed(
            call=call,
            result=await tx.calls.result(call.id) if call.final else None,
            events=page.events,
            truncated=page.log_was_lost,
            resume_token=self._tokens.issue(call, after=page.reached),
        )


def unknown_token() -> NotFound:
    """Forged, foreign, revoked and unknown: one answer."""
    return NotFound(
        "This resume token is not one of yours. Send it as you got it, with the API key of the principal it was made for."
    )
