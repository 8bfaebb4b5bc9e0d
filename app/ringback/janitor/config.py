"""How long rows are kept, and how much the janitor does at once."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from ringback.domain.clock import seconds
from ringback.domain.ports import Transaction
from ringback.domain.retry import RETRY_SCHEDULES
from ringback.domain.upkeep import Upkeep


class MaintenanceTask(NamedTuple):
    run: Callable[[Transaction], Awaitable[bool]]
    """Runs one bounded batch; returns whether there may be more to do."""
    needs: Mapping[Upkeep, float | None] | None = None
    """The rows without which the task has nothing to do, and how many seconds after their instant it works on them (None: at
    any time). Without `needs` the task runs in every interval."""

    def may_have_work(self, first: Mapping[Upkeep, datetime], now: datetime) -> bool:
        """`first` are the first instants of all kinds of rows (`UpkeepRows`)."""
        return self.needs is None or any(
            kind in first and (after is None or first[kind] + seconds(after) <= now)
            for kind, after in self.needs.items()
        )


class BatchRows:
    """How many rows the task that runs now may handle at once. The janitor runs one task at a time.

    A unit that PostgreSQL ends because it takes too long would otherwise be the same unit each time, of the same first rows.
    """

    def __init__(self, most: int) -> None:
        self.rows = most
        self._most = most
        self._fewer: dict[str, int] = {}
        """By the names of tasks that were too slow with more."""

    def begin(self, task: str) -> None:
        self.rows = self._fewer.get(task, self._most)

    def at_most(self, rows: int) -> int:
        """The rows of the task, of which it never handles more than these."""
        self.rows = min(self.rows, rows)
        return self.rows

    def reduce(self, task: str) -> None:
        """The task was too slow: it has half as many rows from now on."""
        self._fewer[task] = max(1, self.rows // 2)

    def raise_again(self, task: str) -> None:
        """The task has succeeded: it has a tenth more."""
        if task in self._fewer:
            self._fewer[task] = self.rows + 1 + self.rows // 10
            if self._fewer[task] >= self._most:
                del self._fewer[task]


FINISH_BATCH_SIZE: Final = 50
"""Calls that one transaction may finish: each also writes its event and its deliveries."""
GIVE_UP_SECONDS_MAX: Final = max(schedule.give_up_seconds for schedule in RETRY_SCHEDULES.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long rows are kept after their end, in seconds. The constructor checks that no period is shorter than the one before.

    A resume token expires with its result, so results are kept beyond the last delivery attempt: a token that arrives works.
    """

    result_seconds: float = 7 * 24 * 3600.0
    event_seconds: float = 14 * 24 * 3600.0
    tombstone_seconds: float = 30 * 24 * 3600.0
    audit_seconds: float = 90 * 24 * 3600.0
    """Of the audit log, since the change."""

    def __post_init__(self) -> None:
        if not GIVE_UP_SECONDS_MAX < self.result_seconds <= self.event_seconds <= self.tombstone_seconds:
            raise ValueError(
                f"Retention must be in order: results longer than deliveries are attempted ({GIVE_UP_SECONDS_MAX:.0f} s), "
                "and at most as long as events; events at most as long as tombstones."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JanitorConfig:
    retention: Retention = field(default_factory=Retention)
    interval_seconds: float = 5.0
    batch_size: int = 200
    """Rows that one transaction removes or releases: about ten milliseconds of the one writer's time. See `BatchRows`."""
    exclusive_owner: str | None = None
    """The owner of all valid leases, if no other process serves the store. None: only expired leases are void."""
