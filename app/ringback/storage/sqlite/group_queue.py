"""The order in which waiting units of work form groups: those that start calls first, in groups of their own.

    admissions ──▶ up to 6, or half of them ──▶ group ─╮   while other units wait, their group follows 18 admissions
    others ──▶ all, up to 128 ─────────────────▶ group ─┴▶ BEGIN … COMMIT
                 └─ half of them while admissions wait, or one for each two admissions before them

A client waits for the commit of an admission (`ringback.admission`). If other units ran in the same transaction, each 202 would
come later by their time, and one such unit may end dozens of calls. They wait for no client, and their own group follows.

A call needs three groups of others, one after the other: it is leased, dispatched and ended. `max_concurrent` of its upstream
bounds the calls between these groups, so the ends in a second depend on how often such a group comes. Admissions are therefore
counted in units, not in groups: with 64 clients that start calls without a pause, a group holds 32 admissions, and the others
came after 96 (27 to 51 ends for 550 starts in a second of CPU time, measured).

In both, principals take turns, and the service itself counts as one: beside a principal that starts 250 calls a second, some
twenty of its units wait, and a unit of another principal would come a group later.
"""

from typing import Final

from ringback.storage.unit_queues import PrincipalQueue
from ringback.storage.units import UnitOfWork

UNITS_IN_GROUP_MAX: Final = 128
"""Larger groups gain little (100 rows a commit reach 36,000 rows/s of the possible 41,000, measured), and a full group occupies
the event loop for some ten milliseconds."""
ADMISSIONS_AT_ONCE: Final = 6
"""Admissions in a group. They arrive in bursts, because clients start their next calls when callbacks arrive. The first of a
burst should not wait for the transactions of all others."""
ADMISSION_SHARE_DIVISOR: Final = 2
"""Or this share of the waiting ones, if that is more: on a slow disk, a commit takes longer than the transactions of six."""
ADMISSIONS_IN_A_ROW: Final = 3 * ADMISSIONS_AT_ONCE
"""After so many, a group of other units is next: those end calls and extend leases, so they must not starve."""
ADMISSIONS_BEFORE_OTHERS_MAX: Final = 32
"""The most admissions between two groups of others while others wait, however many clients start calls."""
OTHERS_AT_ONCE: Final = 4
"""Other units in a group while admissions wait for its end."""
OTHERS_SHARE_DIVISOR: Final = 2
"""Or this share of the other waiting units, if that is more: many starts must not let their queue grow without a limit."""
ADMISSIONS_FOR_OTHER: Final = 2
"""Or one other unit for so many admissions in a row, if that is more."""


class GroupQueue:
    def __init__(self) -> None:
        self.waiting_admissions = PrincipalQueue()
        self.waiting_others = PrincipalQueue()
        self._admissions_in_a_row = 0
        """Since the last group of others, while others waited."""

    def __bool__(self) -> bool:
        return bool(self.waiting_admissions or self.waiting_others)

    def add_unit(self, unit: UnitOfWork) -> None:
        (self.waiting_admissions if unit.is_admission else self.waiting_others).add_unit(unit)

    def take_group(self) -> list[UnitOfWork]:
        """The units of the next transaction, either admissions or others; empty if none waits."""
        if not self.waiting_admissions or (self.waiting_others and self._admissions_in_a_row >= ADMISSIONS_IN_A_ROW):
            return self._take_others()
        return self._take_admissions()

    def _take_admissions(self) -> list[UnitOfWork]:
        count_max = max(ADMISSIONS_AT_ONCE, len(self.waiting_admissions) // ADMISSION_SHARE_DIVISOR)
        if self.waiting_others:
            count_max = min(count_max, ADMISSIONS_BEFORE_OTHERS_MAX - self._admissions_in_a_row)
        group = _take_first(self.waiting_admissions, count_max)
        self._admissions_in_a_row = self._admissions_in_a_row + len(group) if self.waiting_others else 0
        return group

    def _take_others(self) -> list[UnitOfWork]:
        count_max = UNITS_IN_GROUP_MAX
        if self.waiting_admissions:
            share = len(self.waiting_others) // OTHERS_SHARE_DIVISOR
            count_max = max(OTHERS_AT_ONCE, share, self._admissions_in_a_row // ADMISSIONS_FOR_OTHER)
        self._admissions_in_a_row = 0
        return _take_first(self.waiting_others, count_max)


def _take_first(units: PrincipalQueue, count_max: int) -> list[UnitOfWork]:
    count = min(len(units), count_max, UNITS_IN_GROUP_MAX)
    return [unit for unit in (units.pop_unit() for _ in range(count)) if unit is not None]
