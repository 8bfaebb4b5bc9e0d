"""Ports of the store for the read models: hourly counts, what they are counted from, what is open now, and client sessions."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from ringback.domain import jsontext
from ringback.domain.clock import epoch_milliseconds
from ringback.domain.cursor import Page
from ringback.domain.ids import first_id_at
from ringback.domain.insights import ClientSession, CountedLabel, OpenWork, SessionCounts, hour_of
from ringback.domain.principal import ALL_PRINCIPALS, Principal

ALL_UPSTREAMS: Final = ""
"""The upstream of the rows that count everything of a principal."""
OPEN_COUNTED_MAX: Final = 10_000
"""Rows counted for one number of open work: some milliseconds."""


class FactStream(StrEnum):
    """What hourly rows are counted from. Each stream has an index in the order of time."""

    STARTS = "starts"
    """Calls, in the order of their ids."""
    ENDS = "ends"
    """Events `call.finished`, in the order of their times."""
    DELIVERIES = "deliveries"
    """Deliveries that have ended."""
    ATTEMPTS = "attempts"
    """Attempts, in the order of their ids."""


class Fact(NamedTuple):
    """Something that happened once, and what it is counted as."""

    principal: Principal
    upstream: str
    """Empty if it is not counted for an upstream."""
    instant: datetime
    labels: tuple[CountedLabel, ...]


PositionOrder = tuple[int | str, ...]
"""Positions of one stream sort as these do."""


def order_of_position(position: str | None) -> PositionOrder:
    """A position is an id or a JSON list of what orders the stream. None is before all."""
    if position is None:
        return ()
    return tuple(jsontext.loads(position)) if position.startswith("[") else (position,)


_ID_PREFIXES: Final = {FactStream.STARTS: "call", FactStream.ATTEMPTS: "att"}


def position_at(stream: FactStream, instant: datetime) -> str:
    """The position before the first row of this instant."""
    if (prefix := _ID_PREFIXES.get(stream)) is not None:
        return first_id_at(prefix, instant)
    places = ["", 0] if stream is FactStream.ENDS else [""]
    return jsontext.dumps([epoch_milliseconds(instant), *places]).decode()


class FactBatch(NamedTuple):
    facts: Sequence[Fact]
    positions: Sequence[str]
    """Of each fact."""
    position: str | None
    """After the last row that was visited; None if there was none."""
    is_full: bool
    """Whether the batch ended at its limit."""


class HourKey(NamedTuple):
    """What one hourly row is about."""

    principal: str
    """`ALL_PRINCIPALS` in the rows that operators read."""
    upstream: str
    hour: datetime


HourCounts = Mapping[HourKey, Counter[CountedLabel]]


def count_facts(facts: Sequence[Fact]) -> dict[HourKey, Counter[CountedLabel]]:
    """Each fact counts for its principal and for all, and for its upstream and for all."""
    alike = Counter((fact.principal, fact.upstream, hour_of(fact.instant), fact.labels) for fact in facts)
    counts: dict[HourKey, Counter[CountedLabel]] = {}
    for (own, at_upstream, hour, labels), number in alike.items():
        for key in {HourKey(who, up, hour) for who in (own, ALL_PRINCIPALS) for up in (ALL_UPSTREAMS, at_upstream)}:
            counted = counts.setdefault(key, Counter())
            for label in labels:
                counted[label] += number
    return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class HourRange:
    since: datetime
    """The beginning of the first hour."""
    until: datetime
    """Hours that begin at this time or later are left out."""

    def __contains__(self, hour: datetime) -> bool:
        return self.since <= hour < self.until


class InsightRows(Protocol):
    async def get_positions(self, *, lock: bool = False) -> Mapping[str, str]:
        """Up to where each stream is counted, by `FactStream`.

        With `lock`, other units that lock the positions wait until the transaction ends.
        """
        ...

    async def save_positions(self, positions: Mapping[str, str]) -> None: ...

    async def list_facts(
        self, stream: FactStream, position: str | None, *, until: datetime | None, limit: int
    ) -> FactBatch:
        """Facts after the position (None: from the first), oldest first. Visits `limit` rows at most.

        Those of `until` or later are left out; None leaves out none.
        """
        ...

    async def add_counts(self, counts: HourCounts) -> None:
        """Add to the hourly rows. The unit has locked the positions before, so it is the only one that adds."""
        ...

    async def list_erased(self, principals: Collection[Principal], *, since: datetime) -> Collection[Principal]:
        """Those of these principals that are being erased, and all whose erasure finished at `since` or later."""
        ...

    async def list_hours(
        self, principal: Principal | None, hours: HourRange
    ) -> Mapping[datetime, Mapping[CountedLabel, int]]:
        """The counts of each hour that has any; None: of all principals."""
        ...

    async def list_upstream_hours(
        self, principal: Principal | None, upstreams: Sequence[str], hours: HourRange
    ) -> Mapping[str, Mapping[CountedLabel, int]]:
        """The sums of these hours for each of these upstreams that has any."""
        ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        """Remove the rows of hours that began before `cutoff`."""
        ...


class OpenWorkRows(Protocol):
    async def count_open(self, principal: Principal | None) -> OpenWork:
        """What is open now; None: of all principals.

        The queued calls of one principal are counted at `QUEUES_VISITED_MAX` upstreams at most, also at those that are not
        configured.
        """
        ...


class ClientSessionRows(Protocol):
    async def list_page(
        self, principal: Principal | None, *, position: str | None, limit: int
    ) -> Page[ClientSession, str]:
        """The sessions that have calls, that of the newest call first. `position`: `next_position` of the previous page."""
        ...

    async def count_calls(self, principal: Principal, client_session_id: str, *, limit: int) -> SessionCounts | None:
        """What the session's newest calls are, counted up to `limit`; None without any call."""
        ...
