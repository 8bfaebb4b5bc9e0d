"""The chart of a client session: a lane for each call, with its callbacks and the returns of its client. A pure function."""

from collections.abc import Sequence
from datetime import datetime

from ringback.domain.call_histories import CallMarks
from ringback.domain.delivery import DeliveryState
from ringback.ui.charts.time_lanes import Drawing, Mark, TimeLane, TimeScale, draw_lanes
from ringback.ui.charts.timelines import STATE_TONES, SURFACE_NAMES, bar_of_call


def draw_session(calls: Sequence[CallMarks], *, now: datetime) -> Drawing:
    """The drawing of these calls, in their order. Open calls last until now."""
    lanes = [_draw_call(marks, now) for marks in calls]
    instants = [now] if not calls or any(not marks.call.is_final for marks in calls) else []
    for lane in lanes:
        instants += lane.instants
    return draw_lanes(lanes, TimeScale(instants))


def _draw_call(marks: CallMarks, now: datetime) -> TimeLane:
    callbacks = [
        Mark(
            at=delivery.finished_at or delivery.created_at,
            tone=STATE_TONES.get(delivery.state, "busy"),
            text=f"Callback {'delivered' if delivery.state is DeliveryState.DELIVERED else delivery.state}",
        )
        for delivery in marks.deliveries
    ]
    resumes = [
        Mark(
            at=resume.resumed_at, tone="busy", text=f"Client returned {SURFACE_NAMES[resume.surface]}", is_diamond=True
        )
        for resume in marks.resumes
    ]
    return TimeLane(
        label=f"{marks.call.upstream} / {marks.call.tool}",
        href=f"/calls/{marks.call.id}",
        bars=bar_of_call(marks.call, now),
        marks=[*callbacks, *resumes],
    )
