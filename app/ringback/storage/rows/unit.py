"""What the row classes of one unit of work share."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from ringback.domain.encryption import Sealer
from ringback.storage.rows.statements import Statements
from ringback.storage.rows.webhook_reader import CachingWebhookReader

PAUSED: Final = object()
"""What a unit of work yields at a pause. The store's runner of units lets the event loop run others then."""


@dataclass(slots=True, eq=False)
class UnitContext:
    """No code changes one. It is not frozen because every unit of work makes one, and a frozen one takes twice as long."""

    open_statements: Callable[[str], Statements]
    """The statements of `sql/<noun>.sql`, on the connection of this unit of work."""
    sealer: Sealer
    webhook_reader: CachingWebhookReader
    now: datetime
    confirmed_now: datetime
    """`Clock.confirmed_now`. A unit that only reads needs none, and has `now`."""


class SqlRows:
    """One kind of rows within a unit of work. Its statements are in `sql/<noun>.sql` of each dialect."""

    noun: ClassVar[str]

    def __init_subclass__(cls, *, noun: str | None = None) -> None:
        if noun is not None:
            cls.noun = noun

    def __init__(self, unit: UnitContext) -> None:
        self._unit = unit
        self._sql = unit.open_statements(self.noun)


class Pause:
    """A point within a unit of work at which the event loop may run others."""

    def __await__(self) -> Generator[object, None, None]:
        yield PAUSED
