"""The timeline of a call: its entries in the order of time, and a drawing of them. Pure functions.

Call          ░░░░▓▓▓▓▓▓▓▓▓▓●▓▓▓▓▓▓▓│          waiting for a runner, running, progress, the end
evt… → host                         ▒▒▒▒│▒▒▒│    a delivery: from its making to its end, with its attempts
Resumed                                      ◆   when the client came back
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.call_histories import CallHistory, DeliveryHistory
from ringback.domain.call_outcome import CallOutcome, describe_error
from ringback.domain.call_resumes import CallResume, ResumeSurface
from ringback.domain.call_waits import describe_wait
from ringback.domain.delivery import Attempt, DeliveryState
from ringback.domain.event import Event, EventName
from ringback.domain.upstream_pauses import waits_while_paused
from ringback.domain.wait_words import WAIT_WORDS, describe_pause
from ringback.domain.webhook import Webhook
from ringback.ui.charts.time_lanes import LABEL_CHARACTERS, Drawing, Mark, TimeBar, TimeLane, TimeScale, draw_lanes
from ringback.ui.formats import format_amount, shorten_text

DRAWN_DELIVERIES_MAX: Final = 12
"""Lanes of deliveries. The list below the drawing has all."""
ENTRIES_MAX: Final = 250
"""Entries of the list. A page with more takes a browser and the event loop too long."""
ID_END_LENGTH: Final = 6
LANE_NAME_LENGTH: Final = 14
"""Characters of a webhook's name next to its lane."""
PROGRESS_SHOWN: Final = 3
"""The last reports of progress, which are listed one by one."""
PROGRESS_FOLDED_MIN: Final = 2
PROGRESS_TEXT_MAX: Final = 500
"""Characters of an upstream's progress message."""

SURFACE_NAMES: Final = {
    ResumeSurface.REST_RESUME: "with a resume token (POST /v1/resume)",
    ResumeSurface.REST_RESULT: "for the result (GET /v1/calls/{id}/result)",
    ResumeSurface.MCP_TASK: "for the MCP task",
    ResumeSurface.MCP_RESOURCE: "for the MCP resource",
    ResumeSurface.TOOL: "with a built-in tool",
}
PAGE_TEXTS: Final = {
    CallOutcome.TOOL_ERROR: "The tool returned an error. Its text is in the result, below.",
    CallOutcome.UPSTREAM_ERROR: "The upstream returned an error, or a response that is no result.",
    CallOutcome.REJECTED: "The call did not reach its upstream, so the tool did not run.",
}
"""Where the page shows the reason itself, it does not refer to the call."""
OUTCOME_TONES: Final = {CallOutcome.RESULT: "good", CallOutcome.TOOL_ERROR: "warn", CallOutcome.CANCELLED: "quiet"}
STATE_TONES: Final = {
    DeliveryState.DELIVERED: "good",
    DeliveryState.DEAD: "bad",
    DeliveryState.HELD: "warn",
    DeliveryState.CANCELLED: "quiet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    at: datetime
    text: str
    tone: str = "quiet"
    """good, warn, bad, busy or quiet."""
    detail: str | None = None
    """What to do next, or what a client or an upstream wrote."""
    delivery_id: str | None = None
    """The delivery that the entry is about."""
    is_progress: bool = False
    folded: Sequence["TimelineEntry"] = ()
    """Reports of progress that this one line stands for, oldest first."""


def list_entries(history: CallHistory) -> Sequence[TimelineEntry]:
    """What is known to have happened, oldest first: the start of the call and the latest entries."""
    entries = [
        *_call_entries(history.call),
        *(entry for event in history.events for entry in _event_entries(event)),
        *(entry for delivery in history.deliveries for entry in _delivery_entries(delivery)),
        *(_resume_entry(resume) for resume in history.resumes),
    ]
    entries.sort(key=lambda entry: entry.at)
    latest = entries if len(entries) <= ENTRIES_MAX else [entries[0], *entries[1 - ENTRIES_MAX :]]
    return _fold_progress(latest)


def _fold_progress(entries: Sequence[TimelineEntry]) -> Sequence[TimelineEntry]:
    """One line in place of all reports of progress but the last few."""
    folded = [entry for entry in entries if entry.is_progress][:-PROGRESS_SHOWN]
    if len(folded) < PROGRESS_FOLDED_MIN:
        return entries
    line = TimelineEntry(at=folded[0].at, text=f"{len(folded)} progress reports", tone="busy", folded=folded)
    kept = set(map(id, folded[1:]))
    return [line if entry is folded[0] else entry for entry in entries if id(entry) not in kept]


def draw_timeline(history: CallHistory, *, now: datetime) -> Drawing:
    """The drawing of the call, its latest deliveries and its resumes. An open call and open deliveries last until now."""
    call = history.call
    deliveries = history.deliveries[-DRAWN_DELIVERIES_MAX:]
    is_open = not call.is_final or any(each.delivery.finished_at is None for each in deliveries)
    lanes = [_call_lane(history, now), *(_delivery_lane(each, now) for each in deliveries)]
    if history.resumes:
        marks = [
            Mark(at=resume.resumed_at, tone="busy", text=_resume_entry(resume).text, is_diamond=True)
            for resume in history.resumes
        ]
        lanes.append(TimeLane(label="Client returned", marks=marks))
    instants = [instant for lane in lanes for instant in lane.instants]
    return draw_lanes(lanes, TimeScale([*instants, now] if is_open else instants))


def bar_of_call(call: Call, now: datetime) -> Sequence[TimeBar]:
    """The bars of a call: before it was started at its upstream, and afterwards. An adopted task was started before."""
    end = call.finished_at or now
    sent = min(call.dispatched_at or end, end)
    if call.dispatched_at is None:
        wait = WAIT_WORDS.get(call.waits_for or "", "not started")
        return [TimeBar(start=call.created_at, end=end, tone="quiet", text=wait.capitalize())]
    tone = "busy" if call.outcome is None else OUTCOME_TONES.get(call.outcome, "bad")
    running = TimeBar(start=sent, end=end, tone=tone, text=call.outcome or "Running")
    if sent <= call.created_at:
        return [running]
    return [TimeBar(start=call.created_at, end=sent, tone="quiet", text="Not started"), running]


def describe_state(call: Call, *, is_paused: bool = False) -> str:
    """One sentence about what the call does now. `is_paused`: an operator has paused its upstream."""
    if call.outcome is not None:
        error = describe_error(call.outcome)
        text = "The tool returned a result." if error is None else error.message
        return PAGE_TEXTS.get(call.outcome, text)
    if call.status is CallStatus.INPUT_REQUIRED:
        return "The tool waits for input."
    if is_paused and waits_while_paused(call):
        return describe_pause(call.upstream)
    if (wait := describe_wait(call)) is not None:
        return wait
    return "The tool runs." if call.phase is not CallPhase.QUEUED else "The tool runs. The call waits for a runner."


def name_receiver(webhook: Webhook) -> str:
    """The host and port of the URL, and the webhook's name or the end of its id.

    No more of the URL: a path can hold a secret, and a portal link shows this page to others.
    """
    return f"{_host_of(webhook)} ({webhook.name or _end_of_id(webhook)})"


def _host_of(webhook: Webhook) -> str:
    return urlsplit(webhook.url).netloc.rpartition("@")[2]


def _end_of_id(webhook: Webhook) -> str:
    return f"…{webhook.id[-ID_END_LENGTH:]}"


def _lane_label(history: DeliveryHistory) -> str:
    """Short enough that the end, in which the webhooks of one host differ, is shown."""
    if history.webhook is None:
        return history.delivery.webhook_id
    name = shorten_text(history.webhook.name or _end_of_id(history.webhook), LANE_NAME_LENGTH)
    return f"{shorten_text(_host_of(history.webhook), LABEL_CHARACTERS - len(name) - 1)} {name}"


def _call_entries(call: Call) -> Iterator[TimelineEntry]:
    yield TimelineEntry(at=call.created_at, text="Call stored", detail=f"{call.upstream} / {call.tool}")
    if call.dispatched_at is not None:
        text = "Sent to the upstream" if call.runs <= 1 else f"Sent to the upstream (run {call.runs})"
        yield TimelineEntry(at=call.dispatched_at, text=text, tone="busy")
    if call.finished_at is not None and call.outcome is not None:
        tone = OUTCOME_TONES.get(call.outcome, "bad")
        text = f"Ended: {call.outcome.replace('_', ' ')}"
        yield TimelineEntry(at=call.finished_at, text=text, tone=tone)


def _event_entries(event: Event) -> Iterator[TimelineEntry]:
    match event.name:
        case EventName.CALL_PROGRESS:
            progress: Mapping[str, Any] = event.data.get("progress") or {}
            yield TimelineEntry(
                at=event.created_at,
                text=_progress_text(progress.get("progress"), progress.get("total")),
                is_progress=True,
                tone="busy",
                detail=str(progress.get("message") or "")[:PROGRESS_TEXT_MAX] or None,
            )
        case EventName.CALL_INPUT_REQUIRED:
            keys = ", ".join(map(str, event.data.get("input_keys", ())))
            yield TimelineEntry(at=event.created_at, text="Input required", tone="warn", detail=keys or None)
        case _:
            return


def _progress_text(progress: float | None, total: float | None) -> str:
    """An erased event has no numbers."""
    if progress is None:
        return "Progress"
    return f"Progress: {format_amount(progress)}" + ("" if total is None else f" of {format_amount(total)}")


def _delivery_entries(history: DeliveryHistory) -> Iterator[TimelineEntry]:
    delivery = history.delivery
    to = _receiver(history)
    repeat = "" if delivery.generation == 1 else f" (redelivery {delivery.generation - 1})"
    yield TimelineEntry(at=delivery.created_at, text=f"Callback to {to}{repeat}", delivery_id=delivery.id)
    for attempt in history.attempts:
        yield TimelineEntry(
            at=attempt.started_at,
            text=f"Attempt {attempt.number} to {to}: {_attempt_result(attempt)}",
            tone=_attempt_tone(attempt),
            detail=attempt.advice,
            delivery_id=delivery.id,
        )
    if delivery.finished_at is not None and delivery.state is not DeliveryState.DELIVERED:
        text = f"Callback to {to} ended: {delivery.state}"
        tone = STATE_TONES.get(delivery.state, "quiet")
        # An attempt has the time of the node that made it, and the end that of the database, which may be a little behind.
        at = max([delivery.finished_at, *(attempt.started_at for attempt in history.attempts)])
        yield TimelineEntry(at=at, text=text, tone=tone, delivery_id=delivery.id)


def _resume_entry(resume: CallResume) -> TimelineEntry:
    times = "" if resume.resumes == 1 else f", {resume.resumes} times from then on"
    return TimelineEntry(
        at=resume.resumed_at, text=f"Client returned {SURFACE_NAMES[resume.surface]}{times}", tone="busy"
    )


def _receiver(history: DeliveryHistory) -> str:
    return history.delivery.webhook_id if history.webhook is None else name_receiver(history.webhook)


def _attempt_result(attempt: Attempt) -> str:
    status = "" if attempt.status_code is None else f"{attempt.status_code}, "
    return f"{status}{attempt.category.replace('_', ' ')} after {attempt.duration_ms} ms"


def _attempt_tone(attempt: Attempt) -> str:
    return "good" if attempt.category is AttemptCategory.DELIVERED else "bad"


def _call_lane(history: CallHistory, now: datetime) -> TimeLane:
    marks = [
        Mark(at=entry.at, tone=entry.tone, text=entry.text)
        for event in history.events
        for entry in _event_entries(event)
    ]
    return TimeLane(label="Call", bars=bar_of_call(history.call, now), marks=marks)


def _delivery_lane(history: DeliveryHistory, now: datetime) -> TimeLane:
    delivery = history.delivery
    bar = TimeBar(
        start=delivery.created_at,
        end=delivery.finished_at or now,
        tone=STATE_TONES.get(delivery.state, "busy"),
        text=f"Callback: {delivery.state}",
        is_light=True,
    )
    marks = [
        Mark(at=attempt.started_at, tone=_attempt_tone(attempt), text=f"Attempt {attempt.number}")
        for attempt in history.attempts
    ]
    return TimeLane(label=_lane_label(history), bars=[bar], marks=marks)
