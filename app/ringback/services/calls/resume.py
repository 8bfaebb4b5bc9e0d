"""Resume: exchange a resume token for a call, its result, and the events since the token was issued.

A resume token names one call; it does not authenticate the caller. The API key does, and a token of another principal gets the
same response as a forged one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.cursor import LogPosition
from ringback.domain.errors import NotFound, ResumeTokenExpired, Unavailable
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import call_changed_topic
from ringback.notifier.log_positions import read_log_position
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.services.audit import record_own_change
from ringback.services.calls.call_reads import ResultReader, get_changeable_call, get_own_call, is_large
from ringback.services.events.events import read_event_page
from ringback.services.lifecycle import Lifecycle
from ringback.services.long_polling import poll_until
from ringback.signing.resume_token import ExpiredResumeToken, InvalidResumeToken, ResumeClaims, is_well_formed
from ringback.telemetry.spans import link_current_span

RESUME_EVENTS_MAX = 100
"""Events in one response. The fresh token stands after the last of them, so the next resume returns the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedCall:
    call: Call
    result: bytes | None = field(repr=False)
    """The stored CallToolResult as JSON; None without one."""
    events: Sequence[Event]
    """The call's events after the token's position."""
    is_truncated: bool
    """Whether the token belongs to an event log that a restored backup has replaced. `events` then holds all its events."""
    resume_token: str = field(repr=False)
    """A fresh token, placed after these events."""


class CallResumption:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        tokens: CallResumeTokens,
        lifecycle: Lifecycle,
        wait_seconds_max: float,
    ) -> None:
        self._store = store
        self._results = ResultReader(store=store)
        self._clock = clock
        self._tokens = tokens
        self._lifecycle = lifecycle
        self._wait_seconds_max = wait_seconds_max

    async def resume_call(
        self,
        caller: Caller,
        token: str,
        *,
        wait_seconds: float = 0.0,
        reserve: Callable[[Call], None] = lambda _: None,
    ) -> ResumedCall:
        """Return the state of the call; with `wait_seconds`, when it has ended or that time has passed.

        `reserve` is called before a large result is read, and may refuse the read.
        """
        caller.require_scope(Scope.READ)
        claims = await self._read_claims(caller, token)

        async def read() -> ResumedCall:
            return await self._store.read(lambda tx: self._read_resumed_call(tx, caller.principal, claims))

        resumed = await poll_until(
            read,
            lambda resumed: resumed.call.is_final,
            signals=self._store.signals,
            topics=[call_changed_topic(CallId(claims.call_id))],
            wait_seconds=min(wait_seconds, self._wait_seconds_max),
            clock=self._clock,
            lifecycle=self._lifecycle,
        )
        link_current_span(resumed.call.id, resumed.call.traceparent)
        if not is_large(resumed.call):
            return resumed
        reserve(resumed.call)
        result = await self._results.read_large_result(resumed.call)
        if result is None:  # the call was deleted since it was read, and this says so
            return await read()
        return replace(resumed, result=result)

    async def issue_token(self, caller: Caller, call_id: str, *, revoke_previous: bool = False) -> str:
        """Issue a token of the call, placed at the end of the log. With `revoke_previous`, all other tokens become invalid.

        Revoking includes the tokens in callbacks, also in those that have not been sent yet.
        """
        caller.require_scope(Scope.CALLS)

        async def read_call(tx: Transaction) -> Call:
            if revoke_previous:
                return await get_changeable_call(tx, caller, call_id)
            return await get_own_call(tx, caller.principal, call_id)

        async def issue(tx: Transaction) -> str:
            call = await read_call(tx)
            if revoke_previous:
                version = await tx.calls.revoke_tokens(call.id, now=tx.now())
                call = replace(call, token_version=version or call.token_version)
                await record_own_change(tx, caller, "issue_resume_token", call.id, detail="revoke_older=true")
            head = await tx.event_log.get_head(caller.principal)
            return self._tokens.issue_token(call, position=await read_log_position(tx, caller.principal, head))

        return await (self._store.write_for(caller.principal, issue) if revoke_previous else self._store.read(issue))

    async def _read_claims(self, caller: Caller, token: str) -> ResumeClaims:
        try:
            claims = self._tokens.read_token(token, principal=caller.principal, now=self._clock.now())
        except ExpiredResumeToken:
            raise ResumeTokenExpired("The resume token has expired together with its call's result.") from None
        except InvalidResumeToken:
            if is_well_formed(token) and await self._store.read(lambda tx: tx.sealing_keys.lacks_any()):
                raise Unavailable(
                    "This node lacks a key of other nodes, and one of them may know this resume token. Send the request again."
                ) from None
            raise unknown_token_error() from None
        return claims

    async def _read_resumed_call(self, tx: Transaction, principal: Principal, claims: ResumeClaims) -> ResumedCall:
        try:
            call = await get_own_call(tx, principal, claims.call_id)
        except NotFound:
            raise unknown_token_error() from None
        if call.token_version != claims.token_version:
            raise unknown_token_error()
        position = LogPosition(claims.cursor_seq, claims.cursor_mark)
        page = await read_event_page(
            tx, principal, EventFilter(call_id=call.id), position=position, limit=RESUME_EVENTS_MAX
        )
        return ResumedCall(
            call=call,
            result=await tx.call_completions.get_result(call.id) if call.is_final and not is_large(call) else None,
            events=page.events,
            is_truncated=page.is_log_lost,
            resume_token=self._tokens.issue_token(call, position=page.position),
        )


def unknown_token_error() -> NotFound:
    """The same error for forged, foreign, revoked and unknown tokens."""
    return NotFound(
        "This resume token is not one of yours. Send it unchanged, with an API key of the principal that received it."
    )
