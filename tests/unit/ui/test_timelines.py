"""The timeline of a call and its drawing."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import CallPhase, CallStatus
from ringback.domain.call_histories import CallHistory, CallMarks, DeliveryHistory
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.call_resumes import CallResume, ResumeSurface
from ringback.domain.call_waits import UNSENT_REASON
from ringback.domain.delivery import DeliveryState
from ringback.domain.event import EventName
from ringback.ui.charts.session_charts import draw_session
from ringback.ui.charts.time_lanes import (
    NARROW_TICK_DISTANCE,
    WIDTH,
    Drawing,
    Mark,
    TimeBar,
    TimeLane,
    TimeScale,
    draw_lanes,
)
from ringback.ui.charts.timelines import ENTRIES_MAX, bar_of_call, describe_state, draw_timeline, list_entries
from tests.support.builders import make_attempt, make_call, make_delivery, make_event, make_webhook
from tests.support.clock import START


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def xs(drawing: Drawing) -> list[float]:
    marks = [mark.x for lane in drawing.lanes for mark in lane.marks]
    return [*marks, *(bar.x for lane in drawing.lanes for bar in lane.bars), *(tick.x for tick in drawing.ticks)]


def make_history(**over: Any) -> CallHistory:
    """A call that ran from the first to the fifth second, whose second attempt of a callback succeeded after an hour."""
    call = make_call(
        created_at=START,
        dispatched_at=after(1),
        finished_at=after(5),
        runs=1,
        status=CallStatus.COMPLETED,
        phase=CallPhase.ENDED,
        outcome=CallOutcome.RESULT,
    )
    webhook = make_webhook(url="https://user.example:8443/secret-path", name="bell")
    delivery = make_delivery(
        call_id=call.id, state=DeliveryState.DELIVERED, created_at=after(5), finished_at=after(3600)
    )
    attempts = [
        make_attempt(delivery, number=1, started_at=after(6)),
        make_attempt(delivery, number=2, started_at=after(3599), category=AttemptCategory.DELIVERED, status_code=204),
    ]
    history = CallHistory(
        call=call,
        events=[
            make_event(
                name=EventName.CALL_PROGRESS, created_at=after(3), data={"progress": {"progress": 1, "total": 2}}
            )
        ],
        deliveries=[DeliveryHistory(delivery=delivery, webhook=webhook, message_id="evt_1", attempts=attempts)],
        resumes=[CallResume(call_id=call.id, resumed_at=after(3700), surface=ResumeSurface.REST_RESUME, resumes=3)],
    )
    return replace(history, **over)


def test_entries_say_in_the_order_of_time_what_happened() -> None:
    entries = list_entries(make_history())

    assert [(entry.text, entry.tone) for entry in entries] == [
        ("Call stored", "quiet"),
        ("Sent to the upstream", "busy"),
        ("Progress: 1 of 2", "busy"),
        ("Ended: result", "good"),
        ("Callback to user.example:8443 (bell)", "quiet"),
        ("Attempt 1 to user.example:8443 (bell): 503, http 5xx after 12 ms", "bad"),
        ("Attempt 2 to user.example:8443 (bell): 204, delivered after 12 ms", "good"),
        ("Client returned with a resume token (POST /v1/resume), 3 times from then on", "busy"),
    ]


@pytest.mark.parametrize(
    ("phase", "dispatched_at", "says"),
    [
        (CallPhase.SCHEDULED, None, "The call has not started: it starts at 2026-11-20T17:00:00.000Z."),
        (CallPhase.QUEUED, None, "The call waits in the queue for its turn."),
        (CallPhase.QUEUED, START, "The tool runs. The call waits for a runner."),
        (CallPhase.RUNNING, None, f"The call has not started. {UNSENT_REASON}"),
        (CallPhase.RUNNING, START, "The tool runs."),
    ],
)
def test_the_state_says_what_a_call_waits_for(phase: CallPhase, dispatched_at: datetime | None, says: str) -> None:
    call = make_call(phase=phase, dispatched_at=dispatched_at, not_before=START)

    assert describe_state(call) == says


@pytest.mark.parametrize(
    ("phase", "dispatched_at", "words"),
    [
        (CallPhase.SCHEDULED, None, ["Starts later"]),
        (CallPhase.QUEUED, None, ["Queued"]),
        (CallPhase.RUNNING, None, ["Waits for its upstream"]),
        (CallPhase.RUNNING, after(1), ["Not started", "Running"]),
        (CallPhase.QUEUED, START, ["Running"]),
        (CallPhase.ENDED, None, ["Not started"]),
    ],
)
def test_the_bars_of_a_call_say_what_it_waits_for(
    phase: CallPhase, dispatched_at: datetime | None, words: list[str]
) -> None:
    """A task that was adopted, and had no runner yet, was drawn as scheduled or queued."""
    call = make_call(phase=phase, dispatched_at=dispatched_at, created_at=START)

    assert [bar.text for bar in bar_of_call(call, after(9))] == words


def test_the_end_of_a_delivery_comes_after_its_last_attempt_although_two_clocks_wrote_them() -> None:
    history = make_history()
    (shown,) = history.deliveries
    dead = replace(shown.delivery, state=DeliveryState.DEAD, finished_at=after(3598.9))

    texts = [entry.text for entry in list_entries(replace(history, deliveries=[replace(shown, delivery=dead)]))]

    attempt, end, _ = texts[-3:]
    assert (attempt.split(" to ")[0], end.split(" ended: ")[1]) == ("Attempt 2", "dead")


def test_a_drawing_shows_seconds_and_hours_and_nothing_outside_its_frame() -> None:
    drawing = draw_timeline(make_history(), now=after(9999))

    (waiting, running), (callback,) = drawing.lanes[0].bars, drawing.lanes[1].bars
    assert [lane.label for lane in drawing.lanes] == ["Call", "user.example:8443 bell", "Client returned"]
    assert (waiting.tone, running.tone, callback.tone) == ("quiet", "good", "good")
    assert all(bar.width > WIDTH / 20 for bar in (waiting, running, callback))
    assert all(0 <= x <= WIDTH for x in xs(drawing))
    assert drawing.ticks[-1].since_start == timedelta(seconds=3700)


def test_an_open_call_lasts_until_now_and_a_removed_webhook_or_an_erased_event_is_no_obstacle() -> None:
    full = make_history()
    removed = [replace(each, webhook=None) for each in full.deliveries]
    erased = make_event(name=EventName.CALL_PROGRESS, created_at=after(2), data={})
    call = make_call(created_at=START, phase=CallPhase.QUEUED)
    history = make_history(call=call, events=[erased], deliveries=removed, resumes=[])

    drawing = draw_timeline(history, now=after(4000))

    assert drawing.lanes[0].bars[0].x + drawing.lanes[0].bars[0].width == WIDTH
    assert removed[0].delivery.webhook_id in list_entries(history)[-1].text
    assert "Progress" in [entry.text for entry in list_entries(history)]


def test_a_long_history_has_the_start_and_the_latest_entries() -> None:
    events = [
        make_event(name=EventName.CALL_PROGRESS, created_at=after(number), data={"progress": {"progress": number}})
        for number in range(2 * ENTRIES_MAX)
    ]

    entries = list_entries(make_history(events=events))

    assert len(entries) + len(entries[1].folded) - 1 == ENTRIES_MAX
    assert entries[0].text == "Call stored"
    assert entries[-1].text.startswith("Client returned")


def test_a_session_without_calls_and_one_with_a_single_instant_are_drawn() -> None:
    call = make_call(created_at=START, finished_at=START, outcome=CallOutcome.REJECTED, status=CallStatus.FAILED)

    assert draw_session([], now=START).lanes == []
    assert all(0 <= x <= WIDTH for x in xs(draw_session([CallMarks(call=call, deliveries=(), resumes=())], now=START)))


INSTANTS = st.integers(0, 10**9).map(lambda milliseconds: START + timedelta(milliseconds=milliseconds))


@given(st.lists(INSTANTS, min_size=1, max_size=30), st.integers(0, 29), st.integers(0, 29))
def test_a_scale_keeps_the_order_of_instants_and_its_labels_do_not_overlap(
    instants: list[datetime], first: int, second: int
) -> None:
    scale = TimeScale(instants)
    earlier, later = sorted((instants[first % len(instants)], instants[second % len(instants)]))
    lane = TimeLane(label="x" * 99, bars=[TimeBar(start=earlier, end=later, tone="busy", text="")])

    drawing = draw_lanes([lane, TimeLane(label="", marks=[Mark(at=later, tone="busy", text="")])], scale)

    assert 0 <= scale.place(earlier) <= scale.place(later) <= 1
    assert (scale.place(earlier) == scale.place(later)) == (earlier == later)
    assert all(0 <= x <= WIDTH for x in xs(drawing))
    assert drawing.ticks[-1].anchor == ("end" if len(set(instants)) > 1 else "start")
    places = [tick.x for tick in drawing.ticks]
    assert all(after - before > WIDTH / 10 for before, after in pairwise(places))
    narrow = [tick.x for tick in drawing.ticks if tick.is_narrow]
    assert (narrow[0], narrow[-1]) == (places[0], places[-1])
    # Places are rounded to hundredths of a percent.
    assert all(after - before > NARROW_TICK_DISTANCE * WIDTH - 0.02 for before, after in pairwise(narrow))


@pytest.mark.parametrize(
    ("reports", "texts"),
    [
        (4, [f"Progress: {number}" for number in range(4)]),
        (20, ["17 progress reports", "Progress: 17", "Progress: 18", "Progress: 19"]),
    ],
)
def test_all_but_the_last_reports_of_progress_are_one_line(reports: int, texts: list[str]) -> None:
    events = [
        make_event(name=EventName.CALL_PROGRESS, created_at=after(number), data={"progress": {"progress": number}})
        for number in range(reports)
    ]

    shown = [entry for entry in list_entries(make_history(events=events)) if "rogress" in entry.text]

    assert [entry.text for entry in shown] == texts
    assert [entry.text for entry in shown[0].folded] == [f"Progress: {number}" for number in range(reports - 3)][
        : 17 if reports > 4 else 0
    ]
