"""When a call that waits for a login is sent again without one: an upstream may have stopped asking for it.

    a call parks ──▶ a check, due in a minute ──▶ one of the waiting calls is queued ──▶ accepted: the others are queued, too
                              ▲                                    └──▶ refused again: parked as it was, without an event
                              └── later each time, half an hour at most

The call keeps its status and its request to sign in while it is checked, so no client learns of a check that fails.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from ringback.domain.clock import seconds
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal

FIRST_CHECK_SECONDS: Final = 60.0
"""An upstream whose sign-in failed for a moment is back by then."""
CHECK_SECONDS_MAX: Final = 1800.0
"""Ten thousand owners who wait cost six requests a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginCheck:
    """The next check of the calls that wait for one owner's login to one upstream."""

    upstream: str
    owner: Principal
    due_at: datetime
    pause_seconds: float
    """Before `due_at`."""


def first_check(upstream: str, owner: Principal, *, now: datetime) -> LoginCheck:
    return LoginCheck(
        upstream=upstream, owner=owner, due_at=now + seconds(FIRST_CHECK_SECONDS), pause_seconds=FIRST_CHECK_SECONDS
    )


def next_check(check: LoginCheck, *, now: datetime) -> LoginCheck:
    pause_seconds = min(2 * check.pause_seconds, CHECK_SECONDS_MAX)
    return replace(check, due_at=now + seconds(pause_seconds), pause_seconds=pause_seconds)


class LoginCheckRows(Protocol):
    """One check for each upstream and owner with waiting calls."""

    async def add(self, check: LoginCheck) -> None:
        """A check that is stored already stays as it is."""
        ...

    async def find_due(self, *, now: datetime) -> LoginCheck | None:
        """The one that has been due longest. Its row is locked; one that another unit has locked is passed over.

        One that is due later than any pause lasts is due now: a clock that was far ahead planned it.
        """
        ...

    async def replace(self, check: LoginCheck) -> None: ...

    async def is_waiting(self, call_id: CallId) -> bool:
        """Whether the call has waited since before its check. A login ends that."""
        ...

    async def resume_others(self, call_ids: Collection[CallId], *, now: datetime) -> None:
        """Make a resumption of all calls that wait for the same logins as these."""
        ...

    async def remove(self, upstream: str, owner: Principal) -> None: ...
