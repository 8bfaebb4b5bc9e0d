"""The order in which waiting units of work run: in turns between principals, and those that start calls first."""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Final

from ringback.domain.principal import Principal
from ringback.storage.units import UnitOfWork

ADMISSIONS_IN_A_ROW: Final = 3
"""Units that start calls (`ringback.admission`) before one other unit: others end calls, so they must not starve."""


class PrincipalQueue:
    """Principals take turns, so many units of one principal do not delay the others."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Principal | None, deque[UnitOfWork]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_unit(self, unit: UnitOfWork) -> None:
        self._waiting.setdefault(unit.principal, deque()).append(unit)
        self._count += 1

    def pop_unit(self, may_run: Callable[[Principal | None], bool] = lambda _: True) -> UnitOfWork | None:
        """The oldest unit of the first principal that may run one. The principal then moves behind the others."""
        for principal in self._waiting:
            if may_run(principal):
                units = self._waiting.pop(principal)
                self._count -= 1
                unit = units.popleft()
                if units:
                    self._waiting[principal] = units
                return unit
        return None

    def release(self, unit: UnitOfWork) -> None:
        """The unit has ended. Nothing depends on it here."""


class WritingQueue:
    """Units that start calls come first; units of the service itself (no principal) and units of principals alternate.

    A unit that waits for a locked row keeps its connection meanwhile. So the units of one principal, and those of the service,
    run on a share of the connections only. If one principal's rows stay locked, at most its share and the service's wait for
    them, and the other connections remain for the other principals.
    """

    def __init__(self, *, connections: int) -> None:
        self._principal_max = max(1, connections // 2)
        self._service_max = max(1, connections // 2 - 1)
        self._running: Counter[Principal | None] = Counter()
        self._admissions = PrincipalQueue()
        self._of_principals = PrincipalQueue()
        self._of_service = PrincipalQueue()
        self._admissions_in_a_row = 0
        self._service_is_next = True

    def add_unit(self, unit: UnitOfWork) -> None:
        if unit.is_admission:
            self._admissions.add_unit(unit)
        elif unit.principal is None:
            self._of_service.add_unit(unit)
        else:
            self._of_principals.add_unit(unit)

    def pop_unit(self) -> UnitOfWork | None:
        """The next unit; None if none waits, or only units whose principals run as many as they may."""
        for queue in self._queues_in_order():
            if (unit := queue.pop_unit(self._may_run)) is not None:
                self._note_turn(queue)
                self._running[unit.principal] += 1
                return unit
        return None

    def release(self, unit: UnitOfWork) -> None:
        """A popped unit has ended, so another one of its principal may run."""
        self._running[unit.principal] -= 1
        if not self._running[unit.principal]:
            del self._running[unit.principal]

    def _may_run(self, principal: Principal | None) -> bool:
        return self._running[principal] < (self._service_max if principal is None else self._principal_max)

    def _queues_in_order(self) -> list[PrincipalQueue]:
        others = [self._of_service, self._of_principals]
        if not self._service_is_next:
            others.reverse()
        if self._admissions_in_a_row < ADMISSIONS_IN_A_ROW:
            return [self._admissions, *others]
        return [*others, self._admissions]

    def _note_turn(self, taken_from: PrincipalQueue) -> None:
        if taken_from is self._admissions:
            self._admissions_in_a_row += 1
        else:
            self._admissions_in_a_row = 0
            self._service_is_next = taken_from is self._of_principals
