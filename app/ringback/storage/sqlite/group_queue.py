"""The order in which waiting units of work form groups: those that start calls first, in groups of their own.

    admissions ──▶ up to 6, or half of them ──▶ group ─╮   at most 3 such groups in a row while other units wait
    others ──▶ all, up to 128 ─────────────────▶ group ─┴▶ BEGIN … COMMIT
                 └─ half of them while admissions wait

A client waits for the commit of an admission (`ringback.admission`). If other units ran in the same transaction, each 202 would
come later by their time, and one such unit may end dozens of calls. They wait for no client, and their own group follows.
"""

from collections import deque
from typing import Final

from ringback.storage.units import UnitOfWork

UNITS_IN_GROUP_MAX: Final = 128
"""Larger groups gain little (100 rows a commit reach 36,000 rows/s of the possible 41,000, measured), and a full group occupies
the event loop for some ten milliseconds."""
ADMISSIONS_AT_ONCE: Final = 6
"""Admissions in a group. They arrive in bursts, because clients start their next calls when callbacks arrive. The first of a
burst should not wait for the transactions of all others."""
ADMISSION_SHARE_DIVISOR: Final = 2
"""Or this share of the waiting ones, if that is more: on a slow disk, a commit takes longer than the transactions of six."""
ADMISSION_GROUPS_IN_A_ROW: Final = 3
"""Groups of admissions before a group of other units: those end calls and extend leases, so they must not starve."""
OTHERS_AT_ONCE: Final = 4
"""Other units in a group while admissions wait for its end."""
OTHERS_SHARE_DIVISOR: Final = 2
"""Or this share of the other waiting units, if that is more: many starts must not let their queue grow without a limit."""


class GroupQueue:
    def __init__(self) -> None:
        self.waiting_admissions: deque[UnitOfWork] = deque()
        self.waiting_others: deque[UnitOfWork] = deque()
        self._admission_groups_in_a_row = 0
        """While other units waited."""

    def __bool__(self) -> bool:
        return bool(self.waiting_admissions or self.waiting_others)

    def add_unit(self, unit: UnitOfWork) -> None:
        (self.waiting_admissions if unit.is_admission else self.waiting_others).append(unit)

    def take_group(self) -> list[UnitOfWork]:
        """The units of the next transaction, either admissions or others; empty if none waits."""
        if not self.waiting_admissions or (
            self.waiting_others and self._admission_groups_in_a_row >= ADMISSION_GROUPS_IN_A_ROW
        ):
            self._admission_groups_in_a_row = 0
            return _take_first(self.waiting_others, self._others_max())
        self._admission_groups_in_a_row = self._admission_groups_in_a_row + 1 if self.waiting_others else 0
        return _take_first(
            self.waiting_admissions, max(ADMISSIONS_AT_ONCE, len(self.waiting_admissions) // ADMISSION_SHARE_DIVISOR)
        )

    def _others_max(self) -> int:
        if not self.waiting_admissions:
            return UNITS_IN_GROUP_MAX
        return max(OTHERS_AT_ONCE, len(self.waiting_others) // OTHERS_SHARE_DIVISOR)


def _take_first(units: deque[UnitOfWork], count_max: int) -> list[UnitOfWork]:
    return [units.popleft() for _ in range(min(len(units), count_max, UNITS_IN_GROUP_MAX))]
