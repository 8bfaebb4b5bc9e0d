"""The numbers of the first page: what is open now, and which of it needs a person."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ringback.domain.call import CallStatus
from ringback.domain.delivery import DeliveryState
from ringback.domain.insight_rows import OPEN_COUNTED_MAX
from ringback.domain.insights import InsightsOverview
from ringback.services.live.home_listing import WaitingAges
from ringback.ui.formats import format_duration

LATE_SECONDS: Final = 60.0
"""A call that waits longer for a runner, and a delivery that is overdue for longer, are shown as a warning."""

PAUSED_SHOWN_MAX: Final = 3
"""Names of paused upstreams on a card; the page of upstreams has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    label: str
    number: str
    path: str
    """Of the list, below the dashboard's path."""
    note: str
    tone: str = ""
    """`warn`, `bad`, or empty."""


def draw_cards(overview: InsightsOverview, ages: WaitingAges | None) -> Sequence[Card]:
    """`ages` for viewers that see all principals: how long the oldest call and the oldest delivery wait."""
    queued_age_seconds, due_age_seconds = (0.0, 0.0) if ages is None else (ages.queued, ages.due)
    return [*_draw_call_cards(overview, queued_age_seconds), *_draw_delivery_cards(overview, due_age_seconds)]


def _draw_call_cards(overview: InsightsOverview, queued_age_seconds: float) -> Sequence[Card]:
    working = overview.open_calls.get(CallStatus.WORKING, 0)
    waiting = overview.open_calls.get(CallStatus.INPUT_REQUIRED, 0)
    is_late = queued_age_seconds > LATE_SECONDS
    queued = f"{_count(overview.queued_calls)} {_verb(overview.queued_calls, 'wait')} for a runner"
    if is_late:
        queued = f"{queued}, the oldest for {format_duration(queued_age_seconds)}"
    if overview.paused_upstreams:
        queued = f"{queued} ({_name_paused(overview.paused_upstreams)})"
    later = overview.scheduled_calls
    scheduled = f"; {_count(later)} {_verb(later, 'start')} later" if later else ""
    return [
        Card(
            label="Calls in progress",
            number=_count(working, limit=None),
            path="/calls?status=working",
            note=f"{queued}{scheduled}",
            tone="warn" if is_late or (overview.paused_upstreams and overview.queued_calls) else "",
        ),
        Card(
            label="Calls awaiting input",
            number=_count(waiting, limit=None),
            path="/calls?status=input_required",
            note=f"{_verb(waiting, 'wait')} for an answer or a sign-in"
            if waiting
            else "no call waits for an answer or a sign-in",
            tone="warn" if waiting else "",
        ),
    ]


def _draw_delivery_cards(overview: InsightsOverview, due_age_seconds: float) -> Sequence[Card]:
    states = overview.open_deliveries
    held, dead, failing = states.get(DeliveryState.HELD, 0), overview.dead_deliveries, overview.failing_webhooks
    is_late = due_age_seconds > LATE_SECONDS
    return [
        Card(
            label="Deliveries pending",
            number=_count(states.get(DeliveryState.PENDING, 0)),
            path="/deliveries?state=pending",
            note=f"one is overdue by {format_duration(due_age_seconds)}"
            if is_late
            else _note_sent(states.get(DeliveryState.LEASED, 0)),
            tone="warn" if is_late else "",
        ),
        Card(
            label="Deliveries held",
            number=_count(held),
            path="/deliveries?state=held",
            note="until their webhook is active",
            tone="warn" if held else "",
        ),
        Card(
            label="Dead deliveries",
            number=_count(dead),
            path="/deliveries?state=dead&latest=true",
            note="given up, and not sent again since",
            tone="bad" if dead else "",
        ),
        Card(
            label="Failing webhooks",
            number=_count(failing),
            path="/webhooks?health=failing",
            note="by their last attempt",
            tone="bad" if failing else "",
        ),
    ]


def _name_paused(upstreams: Sequence[str]) -> str:
    """The first ones by name: a card has little room."""
    more = len(upstreams) - PAUSED_SHOWN_MAX
    names = ", ".join(upstreams[:PAUSED_SHOWN_MAX])
    return f"{names} and {more} more are paused" if more > 0 else f"paused: {names}"


def _note_sent(leased: int) -> str:
    """Those that are being sent are in no list of pending ones."""
    return (
        f"until their time; {_count(leased)} more {'is' if leased == 1 else 'are'} being sent"
        if leased
        else "until their time"
    )


def _count(number: int, *, limit: int | None = OPEN_COUNTED_MAX) -> str:
    """With a plus sign where the count ended at its limit."""
    return f"{limit:,}+" if limit is not None and number >= limit else f"{number:,}"


def _verb(number: int, verb: str) -> str:
    return f"{verb}s" if number == 1 else verb
