"""The order in which waiting units of work run: admissions first, or in turns between principals."""

from collections import OrderedDict, deque
from typing import Final, Generic, TypeVar

from ringback.admission import is_in_admission
from ringback.domain.principal import Principal

T = TypeVar("T")

ADMISSIONS_IN_A_ROW: Final = 3
"""Units that start calls (`ringback.admission`) before one other unit: others extend leases, so they must not starve."""


class AdmissionQueue(Generic[T]):
    """Units that start calls come before others. The context of `put` says which unit does."""

    def __init__(self) -> None:
        self._admissions: deque[T] = deque()
        self._others: deque[T] = deque()
        self._admissions_in_a_row = 0

    def put(self, unit: T, principal: Principal | None = None) -> None:
        del principal  # every unit that writes is short
        (self._admissions if is_in_admission() else self._others).append(unit)

    def take(self) -> T | None:
        if self._admissions and (not self._others or self._admissions_in_a_row < ADMISSIONS_IN_A_ROW):
            self._admissions_in_a_row += 1
            return self._admissions.popleft()
        self._admissions_in_a_row = 0
        return self._others.popleft() if self._others else None


class PrincipalQueue(Generic[T]):
    """Principals take turns, so many units of one principal do not delay the others."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Principal | None, deque[T]] = OrderedDict()

    def put(self, unit: T, principal: Principal | None) -> None:
        self._waiting.setdefault(principal, deque()).append(unit)

    def take(self) -> T | None:
        """The oldest unit of the principal whose turn it is. The principal then moves behind the others."""
        if not self._waiting:
            return None
        principal, units = self._waiting.popitem(last=False)
        unit = units.popleft()
        if units:
            self._waiting[principal] = units
        return unit
