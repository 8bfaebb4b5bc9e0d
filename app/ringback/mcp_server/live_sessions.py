"""The legacy sessions that this process has in memory, at all endpoints together.

A session takes 50 to 60 KB of memory, and up to 1.7 MB with the largest `initialize` (measured): one with a large `initialize`
has several places. Sessions are stored as well, so a session that leaves memory does not end. It is unloaded, and its next
request continues it (`session_manager`).

    a principal has all places that it may have    its longest idle session is unloaded
    the process has no free place                  the longest idle one of the principal with the most places is unloaded, if
                                                   that has at least as many as the one that needs the place
    none of these is idle                          the new session is refused

So a principal with many sessions makes room for others, and takes no place of one that has fewer. A session with a request in
flight, which may be its own stream, is never unloaded.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

PLACES_MAX: Final = 10_000
"""Places of the process: as many sessions as it is built to have idle streams."""
PRINCIPAL_PLACES_MAX: Final = PLACES_MAX * 3 // 4
"""Those of one principal: its sessions may all have requests in flight, and then it makes no room for others."""
PLACE_BYTES: Final = 2 * 1024
"""One more place for so many bytes of the params of `initialize` as JSON. In memory they take up to 26 times as much."""


def count_places(initialize_bytes: int) -> int:
    """The places of a session that keeps so many bytes of its `initialize`."""
    return 1 + initialize_bytes // PLACE_BYTES


@dataclass(slots=True, eq=False)
class LiveSession:
    principal: str
    places: int
    unload: Callable[[], None]
    """Drops the session from memory; the stored one goes on with its next request. Calls `LiveSessions.remove`."""
    requests_in_flight: int = 0


@dataclass(slots=True)
class _PrincipalSessions:
    sessions: set[LiveSession] = field(default_factory=set[LiveSession])
    places: int = 0
    idle: OrderedDict[LiveSession, None] = field(default_factory=OrderedDict[LiveSession, None])
    """Those without a request in flight, the longest idle one first."""

    def unload_longest_idle(self) -> bool:
        """False if none is idle."""
        if not self.idle:
            return False
        next(iter(self.idle)).unload()
        return True


class LiveSessions:
    def __init__(self) -> None:
        self._of_principals: dict[str, _PrincipalSessions] = {}
        self._places = 0

    def count_places(self, principal: str | None = None) -> int:
        """The places in use: those of this principal, or all."""
        return self._places if principal is None else self._of_principal(principal).places

    def add(self, session: LiveSession) -> bool:
        """Add a session, and unload others as needed. False if there is no room for it."""
        if not self._make_room(session.principal, session.places):
            return False
        of_principal = self._of_principals.setdefault(session.principal, _PrincipalSessions())
        of_principal.sessions.add(session)
        of_principal.idle[session] = None
        self._change_places(of_principal, session.places)
        return True

    def resize(self, session: LiveSession, places: int) -> bool:
        """Give a session that is in use other places. False, and no change, if there is no room for them."""
        added = places - session.places
        if session not in self._of_principal(session.principal).sessions:
            return True
        if not self._make_room(session.principal, added):
            return False
        session.places = places
        self._change_places(self._of_principals[session.principal], added)
        return True

    def remove(self, session: LiveSession) -> None:
        """Nothing happens for a session that was removed already."""
        of_principal = self._of_principal(session.principal)
        if session not in of_principal.sessions:
            return
        of_principal.sessions.remove(session)
        of_principal.idle.pop(session, None)
        self._change_places(of_principal, -session.places)
        if not of_principal.sessions:
            del self._of_principals[session.principal]

    @contextmanager
    def use_session(self, session: LiveSession) -> Generator[None]:
        """The session has a request in flight until the context ends."""
        session.requests_in_flight += 1
        self._of_principal(session.principal).idle.pop(session, None)
        try:
            yield
        finally:
            session.requests_in_flight -= 1
            of_principal = self._of_principal(session.principal)
            if not session.requests_in_flight and session in of_principal.sessions:
                of_principal.idle[session] = None

    def _of_principal(self, principal: str) -> _PrincipalSessions:
        return self._of_principals.get(principal) or _PrincipalSessions()

    def _change_places(self, of_principal: _PrincipalSessions, change: int) -> None:
        of_principal.places += change
        self._places += change

    def _make_room(self, principal: str, places: int) -> bool:
        while self._of_principal(principal).places + places > PRINCIPAL_PLACES_MAX:
            if not self._of_principal(principal).unload_longest_idle():
                return False
        while self._places + places > PLACES_MAX:
            if not self._find_largest_idle(principal).unload_longest_idle():
                return False
        return True

    def _find_largest_idle(self, principal: str) -> _PrincipalSessions:
        """The principal with the most places of those that may make room, or this one itself.

        A millisecond for ten thousand principals, and only while the process has no free place.
        """
        own = self._of_principal(principal)
        may_make_room = (each for each in self._of_principals.values() if each.idle and each.places >= own.places)
        return max(may_make_room, key=lambda each: each.places, default=own)
