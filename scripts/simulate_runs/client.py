"""The clients: each carries out one call or webhook of the plan, through any node, and records what it learns."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, Final

import orjson

from ringback.domain.call import Call, CallStatus, Progress
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.errors import CallEnded, Gone, NotFound, QuotaExceeded, RingbackError, Unavailable
from ringback.domain.event import EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.login_waits import awaits_login
from ringback.domain.principal import Caller
from ringback.domain.retry import RetryProfile
from ringback.domain.webhook import DEFAULT_EVENTS
from ringback.services.calls.call_starts import StartCallRequest
from ringback.services.calls.new_calls import StartedCall
from ringback.services.calls.reports import CallReport, parse_result_completion
from ringback.services.events.event_types import EventTypeDeclaration
from ringback.services.events.events import EventPage
from ringback.services.webhooks.registrations import RegisteredWebhook, WebhookRegistration
from scripts.simulate_runs.clock import STARTED_AT
from scripts.simulate_runs.cluster import ConnectionLost
from scripts.simulate_runs.history import CallObservations, History, ObservedStatus, ProducedEnd, Subject
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.node import Node
from scripts.simulate_runs.plan import PUBLISHED_EVENT, Plan, PlannedCall, PlannedWebhook, UpstreamKind
from scripts.simulate_runs.receivers import SECRET, receiver_url
from scripts.simulate_runs.requester import (
    REQUEST_TIMEOUT_SECONDS,
    RETRY_SECONDS,
    Request,
    Requester,
    Unreachable,
    make_caller,
)

POLL_SECONDS: Final = 20.0
"""How long a client lets a node hold its request for the status of a call."""
LOG_PAGE_SIZE: Final = 3
"""Small, so that a log has several pages."""
GIVE_UP_SECONDS: Final = 3000.0
"""A client that has waited for so long stops polling. The call is then lost, or its upstream never ends it."""


class Clients:
    def __init__(self, plan: Plan, *, requester: Requester, history: History, loop: SimulationLoop) -> None:
        self._plan = plan
        self._requester = requester
        self._history = history
        self._loop = loop
        self._receivers = {each.name: number for number, each in enumerate(plan.receivers)}

    # -- webhooks --

    async def keep_webhook(self, planned: PlannedWebhook) -> None:
        """Register a webhook and, if that is planned, remove it later."""
        await asyncio.sleep(planned.at_seconds)
        caller = make_caller(planned.principal)
        registration = WebhookRegistration(
            url=receiver_url(self._receivers[planned.receiver], planned.name),
            secret=SECRET,
            events=_list_events(planned),
            outcomes=None if planned.outcomes is None else frozenset(CallOutcome(each) for each in planned.outcomes),
            upstream=planned.upstream,
            retries=RetryProfile.MINUTES,
            ordered=planned.ordered,
            cursor=encode_log_position(LogPosition(0)) if planned.hears_past else None,
        )

        async def register(node: Node) -> str:
            if planned.hears_published:
                await node.services.event_types.declare_event_type(caller, EventTypeDeclaration(name=PUBLISHED_EVENT))
            if planned.is_verified:
                return (await node.services.registrations.register_once(caller, registration)).id
            registered: RegisteredWebhook = await node.services.registrations.register_named(
                caller, planned.name, registration
            )
            return registered.webhook.id

        try:
            webhook_id = await self._requester.repeat(register)
        except (Unreachable, QuotaExceeded):
            return
        self._history.webhooks[planned.name] = webhook_id, STARTED_AT + int(self._loop.time() * 1000)
        self._note(f"registered {planned.name} as {webhook_id}")
        if planned.removed_at_seconds is not None:
            await asyncio.sleep(max(0.0, planned.removed_at_seconds - self._loop.time()))
            self._history.removed_webhooks.add(webhook_id)
            try:
                await self._requester.repeat(lambda node: node.services.webhooks.remove_webhook(caller, webhook_id))
            except (Unreachable, NotFound):
                return
            self._note(f"removed {planned.name}")

    # -- calls --

    async def carry_out(self, planned: PlannedCall) -> None:
        """Start the call, repeat the start, cancel it, answer it, and follow it to its end, as planned."""
        await asyncio.sleep(planned.at_seconds)
        seen = self._history.call(planned.key)
        try:
            started = await self._start(planned, seen)
        except (Unreachable, ConnectionLost, Unavailable) as error:
            self._note(f"gave up {planned.key}: {type(error).__name__}")
            return
        except QuotaExceeded:
            seen.was_refused = True
            self._note(f"{planned.key} exceeds the quota")
            return
        except Gone as error:
            self._check_gone(planned, error)
            return
        async with asyncio.TaskGroup() as group:
            if planned.cancel_after_seconds is not None:
                group.create_task(self._cancel(planned, started.call, seen))
            if planned.repeats and not planned.forgets_key:
                group.create_task(self._repeat_start(planned, seen))
            if planned.upstream is UpstreamKind.REPORTED:
                group.create_task(self._report_end(planned, seen))
            await self._follow(planned, started.call, seen)

    async def _start(self, planned: PlannedCall, seen: CallObservations) -> StartedCall:
        request = self._make_start(planned)
        if planned.forgets_key:
            started = await self._requester.send(request, timeout_seconds=REQUEST_TIMEOUT_SECONDS, place=planned.place)
        else:
            started = await self._requester.repeat(request, place=planned.place)
        self._acknowledge(planned, started, seen)
        return started

    def _acknowledge(self, planned: PlannedCall, started: StartedCall, seen: CallObservations) -> None:
        seen.call_ids.append(started.call.id)
        if seen.acknowledged_at is None:
            seen.acknowledged_at = self._loop.time()
        seen.tokens.append(started.resume_token)
        seen.webhook_ids.update(webhook.id for webhook in started.webhooks if started.is_new)
        self._note(f"{planned.key} is acknowledged as {started.call.id}")

    def _make_start(self, planned: PlannedCall) -> Request[StartedCall]:
        caller = make_caller(planned.principal)
        if planned.upstream is UpstreamKind.REPORTED:
            report = self._make_report(planned)
            return lambda node: node.services.reports.record_report(caller, report)
        not_before = None
        if planned.start_delay_seconds:
            begins_at = self._loop.time() + planned.start_delay_seconds
            not_before = from_epoch_milliseconds(STARTED_AT + int(begins_at * 1000))
        start = StartCallRequest(
            upstream=planned.upstream,
            tool="work",
            arguments={"key": planned.key},
            client_session_id=planned.session,
            correlation_id=planned.key,
            idempotency_key=None if planned.forgets_key else planned.key,
            callback=self._make_callback(planned),
            timeout_seconds=planned.timeout_seconds,
            rerun_policy=planned.rerun_policy,
            wait_seconds=planned.wait_seconds,
            accepts_input=planned.asks,
            not_before=not_before,
        )

        async def start_and_wait(node: Node) -> StartedCall:
            started = await node.services.calls.start_call(caller, start)
            if planned.wait_seconds:
                await node.services.calls.wait_for_call(caller, started.call, wait_seconds=planned.wait_seconds)
            return started

        return start_and_wait

    def _make_callback(self, planned: PlannedCall) -> WebhookRegistration | None:
        if planned.callback is None:
            return None
        url = receiver_url(self._receivers[planned.callback], f"of-{planned.key}")
        return WebhookRegistration(url=url, secret=SECRET, retries=RetryProfile.MINUTES)

    def _make_report(self, planned: PlannedCall, *, progress: int = 0, ended: bool = False) -> CallReport:
        result = {"content": [{"type": "text", "text": reported_text(planned)}], "isError": False}
        return CallReport(
            upstream="elsewhere",
            tool="work",
            key=planned.key,
            client_session_id=planned.session,
            correlation_id=planned.key,
            callback=self._make_callback(planned),
            timeout_seconds=planned.timeout_seconds,
            progress=Progress(progress=float(progress)) if progress else None,
            completion=parse_result_completion(result) if ended else None,
        )

    async def _report_end(self, planned: PlannedCall, seen: CallObservations) -> None:
        caller = make_caller(planned.principal)
        for step in range(planned.progress_steps):
            await asyncio.sleep(planned.work_seconds / (planned.progress_steps + 1))
            progress = self._make_report(planned, progress=step + 1)
            await self._repeat_quietly(
                lambda node, report=progress: node.services.reports.record_report(caller, report)
            )
        await asyncio.sleep(planned.work_seconds / (planned.progress_steps + 1))
        seen.reported_end = True
        self._history.ends.append(ProducedEnd(planned.key, "result", reported_text(planned)))
        end = self._make_report(planned, ended=True)
        await self._repeat_quietly(lambda node: node.services.reports.record_report(caller, end))

    async def _repeat_start(self, planned: PlannedCall, seen: CallObservations) -> None:
        for _ in range(planned.repeats):
            await asyncio.sleep(RETRY_SECONDS)
            try:
                started = await self._requester.repeat(self._make_start(planned))
            except (Unreachable, CallEnded):
                continue
            except Gone as error:
                self._check_gone(planned, error)
                return
            self._acknowledge(planned, started, seen)

    async def _cancel(self, planned: PlannedCall, call: Call, seen: CallObservations) -> None:
        await asyncio.sleep(planned.cancel_after_seconds or 0.0)
        seen.requested_cancel = True
        self._note(f"cancels {planned.key}")
        caller = make_caller(planned.principal)
        cancel = planned.cancels_at_once
        await self._repeat_quietly(
            lambda node: (
                node.services.calls.cancel_immediately(caller, call.id)
                if cancel
                else node.services.calls.cancel_call(caller, call.id)
            )
        )

    async def _follow(self, planned: PlannedCall, call: Call, seen: CallObservations) -> None:
        caller = make_caller(planned.principal)
        call_id = call.id
        give_up_at = self._loop.time() + GIVE_UP_SECONDS
        while self._loop.time() < give_up_at:
            try:
                call = await self._requester.send(
                    lambda node: node.services.calls.get_call(caller, call_id, wait_seconds=POLL_SECONDS),
                    timeout_seconds=POLL_SECONDS + REQUEST_TIMEOUT_SECONDS,
                )
            except (ConnectionLost, Unavailable):
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except RingbackError as error:
                self._check_gone(planned, error)
                return
            outcome = None if call.outcome is None else str(call.outcome)
            seen.statuses.append(ObservedStatus(str(call.status), outcome, call.runs))
            if call.is_final:
                self._note(f"{planned.key} has ended: {call.outcome}")
                return
            if awaits_login(call):
                await asyncio.sleep(RETRY_SECONDS)
            elif call.status is CallStatus.INPUT_REQUIRED:
                await self._answer(planned, call, caller)

    def _check_gone(self, planned: PlannedCall, error: RingbackError) -> None:
        """A call may be gone if its erasure was requested."""
        if self._history.may_be_erased(planned):
            self._note(f"{planned.key} is erased")
        else:
            self._history.surprise(f"{planned.key} cannot be read: {error!r}")

    async def _answer(self, planned: PlannedCall, call: Call, caller: Caller) -> None:
        await asyncio.sleep(planned.answer_seconds)
        responses: dict[str, Any] = {key: {"action": "accept", "content": {}} for key in call.input_requests}
        self._note(f"answers {planned.key}: {', '.join(responses)}")
        await self._repeat_quietly(lambda node: node.services.input_answers.answer_input(caller, call.id, responses))

    # -- readers --

    async def follow_log(self, principal: str, ended: asyncio.Event) -> None:
        """Read the event log from its beginning, page by page, from any node, until everything has settled."""
        caller, cursor = make_caller(principal), None
        seqs = self._history.log_reads.setdefault(principal, [])
        while True:
            is_last = ended.is_set()
            wait_seconds = 0.0 if is_last else POLL_SECONDS
            try:
                page = await self._requester.repeat(
                    partial(_read_log_page, caller=caller, cursor=cursor, wait_seconds=wait_seconds),
                    timeout_seconds=POLL_SECONDS + REQUEST_TIMEOUT_SECONDS,
                )
            except Unreachable:
                return
            except RingbackError as error:
                if not self._history.is_principal_erased(principal):
                    self._history.surprise(f"the log of {principal} cannot be read: {error!r}")
                return
            seqs += [event.seq for event in page.events]
            cursor = page.cursor
            if is_last and not page.has_more:
                return

    async def try_tokens(self) -> None:
        """Resume one call with its token, as its owner and as another principal."""
        kept = (planned for planned in self._plan.calls if not self._history.may_be_erased(planned))
        acknowledged = ((planned, self._history.call(planned.key)) for planned in kept)
        planned, seen = next((pair for pair in acknowledged if pair[1].call_ids), (None, None))
        if planned is None or seen is None:
            return
        token = seen.tokens[-1]
        own, foreign = make_caller(planned.principal), make_caller(f"not-{planned.principal}")
        resumed = await self._requester.repeat(lambda node: node.services.call_resumption.resume_call(own, token))
        if resumed.call.id != seen.call_ids[-1] or any(each.call_id != resumed.call.id for each in resumed.events):
            self._history.wide_tokens.append(f"the token of {planned.key} opens {resumed.call.id}")
        with suppress(NotFound):
            await self._requester.repeat(lambda node: node.services.call_resumption.resume_call(foreign, token))
            self._history.wide_tokens.append(f"the token of {planned.key} works for another principal")

    # -- requests --

    async def _repeat_quietly(self, request: Request[object]) -> None:
        """As `_repeat`, for a call that may have ended meanwhile."""
        try:
            await self._requester.repeat(request)
        except (Unreachable, CallEnded):
            return
        except RingbackError as error:
            if not self._history.has_erasures:
                self._history.surprise(f"an unexpected response: {error!r}")

    def _note(self, text: str) -> None:
        self._history.note(Subject.CLIENT, text)


async def _read_log_page(node: Node, *, caller: Caller, cursor: str | None, wait_seconds: float) -> EventPage:
    return await node.services.events.poll_events(
        caller, EventFilter(), cursor=cursor, limit=LOG_PAGE_SIZE, wait_seconds=wait_seconds
    )


def _list_events(planned: PlannedWebhook) -> frozenset[str]:
    progress = {EventName.CALL_PROGRESS} if planned.hears_progress else set[str]()
    return DEFAULT_EVENTS | progress | ({PUBLISHED_EVENT} if planned.hears_published else set[str]())


def reported_text(planned: PlannedCall) -> str:
    return f"{planned.key} done elsewhere"


def result_text(result: bytes) -> str:
    """The text of a stored result of a simulated upstream."""
    return str(orjson.loads(result)["content"][0]["text"])
