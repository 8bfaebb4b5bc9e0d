"""What the first page of the dashboard shows: what is open now, the last hours, and the newest rows of each kind."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from ringback.domain.call import Call, CallStatus
from ringback.domain.call_histories import CallMarks
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_rows import CallFilter
from ringback.domain.cursor import Page
from ringback.domain.insights import InsightsOverview
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookHealth
from ringback.services.calls.call_histories import read_marks
from ringback.services.insights.insights import Insights
from ringback.services.scans import Scan

FAILED_OUTCOMES: Final = frozenset(CallOutcome) - {CallOutcome.RESULT, CallOutcome.CANCELLED}
"""Of calls that ended without a result, or with an error of their tool, and were not cancelled."""
LISTED_ROWS: Final = 5
"""Of each of the short lists."""
NEWEST_CALLS: Final = 8
AGE_STEP_SECONDS: Final = 15.0
"""Ages grow all the time. A content differs from the one before only when an age has reached the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortLists:
    """The newest rows of each kind."""

    newest_calls: Sequence[CallMarks]
    """With their callbacks, and whether a client came back for them."""
    waiting_calls: Sequence[Call]
    has_more_waiting: bool
    """Whether older calls were not looked at: of all principals, the list has those among the newest calls."""
    failed_calls: Sequence[Call]
    failing_webhooks: Sequence[Webhook]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingAges:
    """How long the oldest waiting work waits, in seconds; 0 without any."""

    queued: float
    due: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeContent:
    """Two contents are equal if a viewer would see no change but the time."""

    overview: InsightsOverview
    """`until` is the beginning of its hours: `as_of` has the time."""
    as_of: datetime = field(compare=False)
    ages: WaitingAges | None = field(compare=False)
    """Of the queues of all principals; None for the rows of one."""
    age_steps: tuple[int, int] = (0, 0)
    lists: ShortLists


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeListing:
    insights: Insights
    hours: int
    upstreams: tuple[str, ...]
    """Those that the viewer may use."""

    async def read(self, scan: Scan, principal: Principal | None) -> HomeContent:
        overview = await self.insights.scan_overview(scan, principal, hours=self.hours, upstreams=self.upstreams)
        ages = await scan(_read_ages) if principal is None else None
        return HomeContent(
            overview=replace(overview, until=overview.since),
            as_of=overview.until,
            ages=ages,
            age_steps=(0, 0) if ages is None else (_count_steps(ages.queued), _count_steps(ages.due)),
            lists=await scan(lambda tx: _read_lists(tx, principal)),
        )


async def _read_ages(tx: Transaction) -> WaitingAges:
    due, queued = await tx.delivery_queue.next_due_at(), await tx.usage.oldest_queued_since()
    return WaitingAges(queued=_age(queued, tx.now()), due=_age(due, tx.now()))


async def _read_lists(tx: Transaction, principal: Principal | None) -> ShortLists:
    async def list_calls(where: CallFilter, limit: int = LISTED_ROWS) -> Page[Call, str]:
        return await tx.calls.list_page(principal, where, position=None, limit=limit)

    waiting = await list_calls(CallFilter(status=CallStatus.INPUT_REQUIRED))
    failing = await tx.webhooks.list_page(
        principal, WebhookHealth.FAILING, state=None, position=None, limit=LISTED_ROWS
    )
    return ShortLists(
        newest_calls=await read_marks(tx, list(await list_calls(CallFilter(), NEWEST_CALLS))),
        waiting_calls=list(waiting),
        has_more_waiting=waiting.next_position is not None,
        failed_calls=list(await list_calls(CallFilter(outcomes=FAILED_OUTCOMES))),
        failing_webhooks=list(failing),
    )


def _age(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


def _count_steps(age: float) -> int:
    return int(age // AGE_STEP_SECONDS)
