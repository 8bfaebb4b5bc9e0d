"""Keep legacy MCP sessions, so that they outlive the process that began them.

    initialize ──▶ open_session       stored before the client gets the session's id. A principal that has too many
                                      loses the session that is idle longest: many clients never end theirs
    any request ──▶ find_session      in a process that does not know the id
    every few minutes ──▶ extend      the sessions used meanwhile, in one commit
    DELETE ──▶ end_session            before the client gets the response

Nodes that share a store notify each other when a session changes or ends. A session that is used at several nodes counts as
idle only from the time at which each of them has recorded its use.

A session belongs to its principal, its endpoint and the caller's restriction of upstreams. For any other caller it is unknown.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Protocol

from ringback.domain import jsontext
from ringback.domain.call import CALL_RESOURCE_URI_PREFIX
from ringback.domain.clock import seconds
from ringback.domain.errors import InvalidRequest, QuotaExceeded, Unavailable
from ringback.domain.ids import IdGenerator
from ringback.domain.mcp_sessions import STATE_BYTES_MAX, SUBSCRIPTIONS_MAX, McpSession, McpSessionId, SessionState
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller
from ringback.domain.signals import mcp_session_topic
from ringback.services.access.api_keys import require_held_key

SESSIONS_PER_PRINCIPAL_MAX: Final = 1_000
"""Stored sessions of one principal at one endpoint. Those in memory have a bound over all endpoints
(`mcp_server.live_sessions`)."""
EVICTION_IDLE_SECONDS: Final = 60.0
"""A session that was idle for less long is in use: between two requests, a model thinks for seconds. It is never ended for
another one; then `initialize` is refused."""
SESSION_ID_BYTES: Final = 16
"""Random bytes of an id: 128 bits cannot be guessed."""
IDLE_SECONDS: Final = 30 * 60
"""A session without any request for this long has ended. The SDK's default."""
EXTEND_SECONDS: Final = 5 * 60.0
"""The pause between two commits that record which sessions were used. A stored session lives this much longer than an idle one,
so that no session ends early."""
EXTEND_BATCH_SIZE: Final = 200
"""Sessions in one commit: a few milliseconds of the one writer's time."""
RETRY_AFTER_SECONDS: Final = 30
"""The end of a session cannot be predicted; 30 s is soon enough for the client and rare enough for the service."""

_SESSION_ID_PATTERN: Final = re.compile(rf"[0-9a-f]{{{2 * SESSION_ID_BYTES}}}")
"""What could not be an id of ours is never looked up."""


class SessionUse(Protocol):
    """What a process knows about the use of its sessions; the store learns of it every `EXTEND_SECONDS`."""

    def get_idle_seconds(self, session_id: str) -> float | None:
        """Seconds since the last request, 0 while one is in flight; None if this process has handled none."""
        ...


class McpSessions:
    def __init__(self, store: Store, *, ids: IdGenerator) -> None:
        self._store = store
        self._ids = ids

    def new_session_id(self) -> str:
        return self._ids.random_bytes(SESSION_ID_BYTES).hex()

    async def require_session_quota(self, caller: Caller, endpoint: str, use: SessionUse) -> None:
        """Raise `QuotaExceeded` if the principal has `SESSIONS_PER_PRINCIPAL_MAX` sessions here, and all are in use."""
        await self._store.read(lambda tx: self._find_surplus(tx, caller, endpoint, use))

    async def open_session(
        self, caller: Caller, session_id: str, endpoint: str, initialize: Mapping[str, Any], use: SessionUse
    ) -> Collection[str]:
        """Store a session whose `initialize` succeeded. `initialize` has the protocol version that was negotiated.

        A second `initialize` of a session leaves its log level and subscriptions as they are: in this process they go on, too.
        Return the sessions of this principal that were ended, so that this one fits into the quota. Raises `QuotaExceeded` if
        all are in use, and `Unauthenticated` if the caller's key was deleted meanwhile.
        """
        new_state = SessionState(initialize=initialize)
        _require_size(new_state, "The params of initialize are")

        async def insert(tx: Transaction) -> Collection[str]:
            await require_held_key(tx, caller)
            ended: Collection[McpSessionId] = ()
            state = new_state
            if (session := await tx.mcp_sessions.get(McpSessionId(session_id), now=tx.now())) is None:
                ended = await self._find_surplus(tx, caller, endpoint, use, lock=True)
            else:
                state = replace(session.state, initialize=initialize)
                _require_size(state, "The params of initialize and the session's subscriptions are")
            for surplus_id in ended:
                await _delete_session(tx, surplus_id)
            await tx.mcp_sessions.save(
                McpSession(
                    id=McpSessionId(session_id),
                    principal=caller.principal,
                    upstreams=caller.upstreams,
                    endpoint=endpoint,
                    state=state,
                    created_at=tx.now(),
                    expires_at=tx.now() + seconds(IDLE_SECONDS + EXTEND_SECONDS),
                )
            )
            return ended

        return await self._store.write_for(caller.principal, insert)

    async def find_session(self, caller: Caller, session_id: str, endpoint: str) -> McpSession | None:
        """The session; None if it is unknown, has ended, or belongs to another caller or endpoint.

        Raises `Unavailable` if this node cannot read it and others can.
        """
        if not _SESSION_ID_PATTERN.fullmatch(session_id):
            return None

        async def find(tx: Transaction) -> McpSession | None:
            session = await tx.mcp_sessions.get(McpSessionId(session_id), now=tx.now())
            if session is None and await _is_left_to_others(tx, caller, session_id, endpoint):
                raise Unavailable(
                    "This node lacks a key of other nodes, and one of them knows your session. Send the request again."
                )
            return _keep_own_session(session, caller, endpoint)

        return await self._store.read(find)

    async def end_session(self, caller: Caller, session_id: str, endpoint: str) -> bool:
        """End the session for good; False if the caller does not own it."""
        if await self.find_session(caller, session_id, endpoint) is None:
            return False
        return await self._store.write_for(caller.principal, lambda tx: _delete_session(tx, McpSessionId(session_id)))

    async def change_state(
        self, caller: Caller, session_id: str, endpoint: str, change: Callable[[SessionState], SessionState]
    ) -> None:
        """Store a changed state. `change` has no effects: it may run again. A session that has ended stays ended."""

        async def update(tx: Transaction) -> None:
            stored = await tx.mcp_sessions.get(McpSessionId(session_id), now=tx.now())
            if (session := _keep_own_session(stored, caller, endpoint)) is None:
                return
            state = change(session.state)
            _require_size(state, "The session's subscriptions are")
            await tx.mcp_sessions.save_state(replace(session, state=state))
            tx.notify(mcp_session_topic(session_id))

        await self._store.write_for(caller.principal, update)

    async def extend_sessions(self, session_ids: Collection[str]) -> Collection[str]:
        """Record that these sessions are in use. Return those that have ended elsewhere, or were never stored."""
        ids, known = [McpSessionId(each) for each in session_ids], set[str]()
        for start in range(0, len(ids), EXTEND_BATCH_SIZE):
            known |= await self._extend_batch(ids[start : start + EXTEND_BATCH_SIZE])
        return set(session_ids) - known

    async def _extend_batch(self, ids: Collection[McpSessionId]) -> set[str]:
        async def extend(tx: Transaction) -> set[str]:
            expires_at = tx.now() + seconds(IDLE_SECONDS + EXTEND_SECONDS)
            return set(await tx.mcp_sessions.extend(ids, expires_at=expires_at, now=tx.now()))

        return await self._store.write(extend)

    async def _find_surplus(
        self, tx: Transaction, caller: Caller, endpoint: str, use: SessionUse, *, lock: bool = False
    ) -> Collection[McpSessionId]:
        """The sessions that must end before the principal opens another one: none, or the one that is idle longest.

        With `lock`, the principal's units that get so far run one after the other: otherwise several would end the same one.
        """
        limit, now = SESSIONS_PER_PRINCIPAL_MAX, tx.now()
        if await tx.mcp_sessions.count(caller.principal, endpoint, now=now, limit=limit) < limit:
            return ()
        if lock:
            await tx.usage.get_usage(caller.principal, lock=True)
        expiries = await tx.mcp_sessions.list_expiries(caller.principal, endpoint, now=now, limit=limit + 1)
        idle_seconds = {
            each: self._get_idle_seconds(use, each, expires_at, now) for each, expires_at in expiries.items()
        }
        surplus = sorted(idle_seconds, key=idle_seconds.__getitem__, reverse=True)[: len(expiries) - limit + 1]
        if any(idle_seconds[each] < EVICTION_IDLE_SECONDS for each in surplus):
            raise sessions_exceeded()
        return surplus

    def _get_idle_seconds(
        self, use: SessionUse, session_id: McpSessionId, expires_at: datetime, now: datetime
    ) -> float:
        """Since the last use in this process, else since the last recorded one.

        Another node may have used the session since, and records that within `EXTEND_SECONDS`: so much is not counted.
        """
        here = use.get_idle_seconds(session_id)
        recorded = IDLE_SECONDS + EXTEND_SECONDS - (expires_at - now).total_seconds()
        if self._store.is_exclusive:
            return recorded if here is None else here
        elsewhere = max(0.0, recorded - EXTEND_SECONDS)
        return elsewhere if here is None else min(here, elsewhere)


def with_log_level(state: SessionState, level: str) -> SessionState:
    return replace(state, log_level=level)


def with_subscription(state: SessionState, uri: str) -> SessionState:
    """Beyond `SUBSCRIPTIONS_MAX`, the oldest subscription to a call is dropped: calls end, and other resources stay."""
    kept = [each for each in state.subscriptions if each != uri]
    if len(kept) >= SUBSCRIPTIONS_MAX:
        kept.remove(next((each for each in kept if each.startswith(CALL_RESOURCE_URI_PREFIX)), kept[0]))
    return replace(state, subscriptions=(*kept, uri))


def without_subscription(state: SessionState, uri: str) -> SessionState:
    return replace(state, subscriptions=tuple(each for each in state.subscriptions if each != uri))


def _keep_own_session(session: McpSession | None, caller: Caller, endpoint: str) -> McpSession | None:
    if session is None or (session.principal, session.upstreams) != (caller.principal, caller.upstreams):
        return None
    return session if session.endpoint == endpoint else None


async def _is_left_to_others(tx: Transaction, caller: Caller, session_id: str, endpoint: str) -> bool:
    """Whether the caller has this session, sealed with a key that this node lacks."""
    if not await tx.sealing_keys.lacks_any():
        return False
    limit = SESSIONS_PER_PRINCIPAL_MAX + 1
    return session_id in await tx.mcp_sessions.list_expiries(caller.principal, endpoint, now=tx.now(), limit=limit)


async def _delete_session(tx: Transaction, session_id: McpSessionId) -> bool:
    tx.notify(mcp_session_topic(session_id))
    return await tx.mcp_sessions.delete(session_id)


def sessions_exceeded() -> QuotaExceeded:
    limit = SESSIONS_PER_PRINCIPAL_MAX
    return QuotaExceeded(
        f"Your quota 'sessions' of {limit} at this endpoint is used up, and each of them was used within the last "
        f"{EVICTION_IDLE_SECONDS:.0f} seconds. No session was opened. End sessions that you no longer need: DELETE with their "
        "Mcp-Session-Id. Otherwise a new session ends the one that is idle longest, after it was idle for "
        f"{EVICTION_IDLE_SECONDS:.0f} seconds.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
        quota="sessions",
        limit=limit,
    )


def _require_size(state: SessionState, subject: str) -> None:
    try:
        size = len(jsontext.dumps([state.initialize, state.subscriptions]))
    except TypeError:
        raise InvalidRequest(
            f"The request contains an integer of more than {jsontext.INTEGER_DIGITS_MAX} digits, an unpaired surrogate, or too "
            "many nested levels."
        ) from None
    if size > STATE_BYTES_MAX:
        raise InvalidRequest(f"{subject} {size} bytes as JSON; at most {STATE_BYTES_MAX} are kept for one session.")
