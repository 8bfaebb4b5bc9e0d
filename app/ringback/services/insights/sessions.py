"""Client sessions, as their calls show them."""

from dataclasses import dataclass
from typing import Final

from ringback.domain.call import Call
from ringback.domain.call_rows import CallFilter
from ringback.domain.cursor import Page
from ringback.domain.errors import InvalidRequest, NotFound
from ringback.domain.insights import ClientSession, SessionCounts
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope

SESSION_CALLS_COUNTED_MAX: Final = 5_000
"""Calls of one session that are counted: some milliseconds."""

SESSION_PAGE_SIZE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInsights:
    """One client session: its numbers, and a page of its calls, newest first."""

    client_session_id: str
    counts: SessionCounts
    calls: Page[Call, str]


class SessionReader:
    def __init__(self, *, store: Store) -> None:
        self._store = store

    async def list_sessions(self, caller: Caller, *, position: str | None, limit: int) -> Page[ClientSession, str]:
        """The caller's sessions that have calls, that of the newest call first; for an operator, those of all principals."""
        caller.require_scope(Scope.READ)
        return await self._store.scan(
            caller.principal,
            lambda tx: tx.client_sessions.list_page(caller.listed_principal, position=position, limit=limit),
        )

    async def read_session(
        self, caller: Caller, client_session_id: str, *, position: str | None, limit: int
    ) -> SessionInsights:
        """One session of the caller's principal. Raises as `Insights.read_session`."""
        caller.require_scope(Scope.READ)
        if caller.sees_all_principals:
            raise InvalidRequest("Name one principal: a client_session_id belongs to one, and others may use the same.")

        async def read(tx: Transaction) -> SessionInsights:
            counts = await tx.client_sessions.count_calls(
                caller.principal, client_session_id, limit=SESSION_CALLS_COUNTED_MAX
            )
            if counts is None:
                raise NotFound("No call of yours has this client_session_id. List your sessions: GET /v1/sessions")
            where = CallFilter(client_session_id=client_session_id)
            calls = await tx.calls.list_page(caller.principal, where, position=position, limit=limit)
            return SessionInsights(client_session_id=client_session_id, counts=counts, calls=calls)

        return await self._store.scan(caller.principal, read)
