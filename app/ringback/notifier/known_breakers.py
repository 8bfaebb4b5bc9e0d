"""The circuit breakers of origins, and of principals at origins, that this process knows.

Without a limit, calls with a dead host each would fill the memory. At the limit, a breaker that is not known counts as closed
until the next query for it: new deliveries are attempted at once, and the end of its outage begins no recovery. So the
breakers of one principal's thousand dead hosts push out no breaker of another one:

    the breakers of a principal             one group each
    open breakers of origins                one group: only several principals together open one
    breakers of origins that still count    one group: the first failures of each principal's hosts are here

At the limit, the largest group loses the breaker that was read or written longest ago.
"""

from typing import Final

from ringback.domain.circuit_breaker import CLOSED_BREAKER, CircuitBreaker
from ringback.domain.principal import Principal
from ringback.notifier.permits import split_breaker_key

KNOWN_BREAKERS_MAX: Final = 10_000
"""Some 3 MB."""

_Group = tuple[Principal | None, bool]
"""The principal, or None and whether the origin's breaker has opened."""


class KnownBreakers:
    def __init__(self) -> None:
        self._groups: dict[_Group, dict[str, CircuitBreaker]] = {}
        self._group_by_key: dict[str, _Group] = {}
        self._groups_by_size: dict[int, dict[_Group, None]] = {}
        """The largest is found without a look at all: they may be thousands, and a batch of deliveries replaces hundreds."""
        self._largest_size = 0

    def __len__(self) -> int:
        return len(self._group_by_key)

    def __contains__(self, key: str) -> bool:
        return key in self._group_by_key

    def get(self, key: str) -> CircuitBreaker:
        """The breaker of an origin or a `ReceiverKey.breaker_key`; a closed one if none is known."""
        group = self._group_by_key.get(key)
        return CLOSED_BREAKER if group is None else self._groups[group][key]

    def replace(self, key: str, breaker: CircuitBreaker) -> CircuitBreaker:
        """Return the breaker that was known before. A closed one is not kept."""
        before = self._remove(key)
        if breaker != CLOSED_BREAKER:
            receiver = split_breaker_key(key)
            group = (None, breaker.openings > 0) if receiver is None else (receiver.principal, True)
            self._group_by_key[key] = group
            breakers = self._groups.setdefault(group, {})
            breakers[key] = breaker  # the last of its group that is dropped
            self._note_size(group, before=len(breakers) - 1, after=len(breakers))
            if len(self._group_by_key) > KNOWN_BREAKERS_MAX:
                largest = next(iter(self._groups_by_size[self._largest_size]))
                self._remove(next(iter(self._groups[largest])))
        return before

    def _remove(self, key: str) -> CircuitBreaker:
        if (group := self._group_by_key.pop(key, None)) is None:
            return CLOSED_BREAKER
        breakers = self._groups[group]
        breaker = breakers.pop(key)
        self._note_size(group, before=len(breakers) + 1, after=len(breakers))
        if not breakers:
            del self._groups[group]
        return breaker

    def _note_size(self, group: _Group, *, before: int, after: int) -> None:
        """The sizes differ by one."""
        if before:
            of_before = self._groups_by_size[before]
            del of_before[group]
            if not of_before:
                del self._groups_by_size[before]
        if after:
            self._groups_by_size.setdefault(after, {})[group] = None
        if after > self._largest_size or self._largest_size not in self._groups_by_size:
            self._largest_size = after
