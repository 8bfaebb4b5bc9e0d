"""The simulated upstreams: they run tools, crash, stall, lie, and record every start of a tool.

    driver ── SimulatedSession.send_request ──latency──▶ SimulatedUpstream.receive ──latency──▶ response, or a failure

An upstream has no code of Ringback. `sessions` has the seam, at which the real drivers end.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from mcp.shared.dispatcher import ProgressFnT

from ringback.domain.upstream_logins import UpstreamTokens
from ringback.protocol.errors import LoginRequired, RequestFailed, RequestNotSent, ResponseLost, UpstreamError
from scripts.simulate_runs.history import History, ProducedEnd, Subject, ToolStart
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.plan import PlannedCall, ToolEnd, UpstreamKind

LATENCY_SECONDS: Final = 0.02
_UNKNOWN_TASK: Final = {"code": -32602, "message": "There is no such task."}
_QUESTION: Final = {
    "method": "elicitation/create",
    "params": {"message": "Go on?", "requestedSchema": {"type": "object"}},
}
NONSENSE: Final[dict[str, Any]] = {"answer": 42}


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on its way, and its response."""

    method: str
    params: Mapping[str, Any]
    node: str
    response: asyncio.Future[dict[str, Any]]
    on_progress: ProgressFnT | None
    tokens: UpstreamTokens | None
    context: Context
    """The context of the node's request: progress is reported in it."""
    has_arrived: bool = False
    work: "_Work | None" = None


@dataclass(slots=True, eq=False)
class _Work:
    """One start of a tool."""

    planned: PlannedCall
    number: int
    is_over: bool = False
    was_answered: bool = False
    waits_for_input: bool = False
    """The answer arrived only if the tool had asked."""
    task: dict[str, Any] = field(default_factory=dict[str, Any])
    """The DetailedTask, for upstreams with tasks."""


class SimulatedUpstream:
    """One upstream. Its callbacks run in the process of the world (`context`)."""

    def __init__(
        self,
        kind: UpstreamKind,
        *,
        needs_login: bool,
        planned: Mapping[str, PlannedCall],
        history: History,
        loop: SimulationLoop,
        context: Context,
        chance: Random,
    ) -> None:
        self.kind = kind
        self.is_up = True
        self.is_hanging = False
        self.tokens: set[str] = set()
        """The access tokens that it accepts."""
        self._needs_login = needs_login
        self._planned = planned
        self._history = history
        self._loop = loop
        self._context = context
        self._draw = chance.random
        self._exchanges: dict[Exchange, None] = {}
        self._tasks: dict[str, _Work] = {}
        self._works: list[_Work] = []
        self._start_count = 0

    # -- faults --

    def crash(self, *, forgets_tasks: bool) -> None:
        """Lose all connections and all work in progress; with `forgets_tasks`, the tasks, too."""
        self.is_up = False
        for exchange in list(self._exchanges):
            self._fail(exchange, ResponseLost("The connection was lost.") if exchange.has_arrived else None)
        for work in self._works:
            if not work.task:
                work.is_over = True
        if forgets_tasks:
            for work in self._tasks.values():
                work.is_over = True
            self._tasks.clear()

    def restart(self) -> None:
        self.is_up = True

    def accepts(self, tokens: UpstreamTokens | None) -> bool:
        """Whether a request with these tokens is read."""
        return not self._needs_login or (tokens is not None and tokens.access_token in self.tokens)

    # -- requests --

    def send(self, exchange: Exchange) -> None:
        """Called by a session in the process of its node."""
        self._exchanges[exchange] = None
        self._after(self._draw() * LATENCY_SECONDS, self._receive, exchange)

    def abandon(self, exchange: Exchange) -> None:
        """The client closed the request: the upstream notices it after a while, and stops if it has not ended."""
        self._after(self._draw() * LATENCY_SECONDS, self._stop_abandoned, exchange)

    def _receive(self, exchange: Exchange) -> None:
        if exchange not in self._exchanges:
            return
        if not self.is_up:
            self._fail(exchange, RequestNotSent("The connection was refused."))
            return
        if not self.accepts(exchange.tokens):
            version = None if exchange.tokens is None else exchange.tokens.version
            self._fail(exchange, LoginRequired("Sign in.", tokens_version=version))
            return
        exchange.has_arrived = True
        if self.is_hanging and exchange.method != "tools/call":
            return  # no response until the client's deadline
        handlers = {
            "tools/call": self._call_tool,
            "tasks/get": self._get_task,
            "tasks/cancel": self._cancel_task,
            "tasks/update": self._update_task,
        }
        handlers[exchange.method](exchange)

    def _call_tool(self, exchange: Exchange) -> None:
        planned = self._planned[exchange.params["arguments"]["key"]]
        is_answered = bool(exchange.params.get("inputResponses"))
        work = self._start_tool(planned, exchange, round_number=1 if is_answered else 0)
        exchange.work, work.was_answered = work, is_answered
        if self.kind is UpstreamKind.TASK:
            self._create_task(work, exchange)
        elif planned.asks and not is_answered:
            self._end(work, "asked", None)
            state = {"resultType": "input_required", "requestState": planned.key, "inputRequests": {"q": _QUESTION}}
            self._after(planned.work_seconds / 2, self._respond, exchange, state)
        else:
            self._report_progress(work, exchange)
            self._after(planned.work_seconds, self._finish_request, work, exchange)

    def _start_tool(self, planned: PlannedCall, exchange: Exchange, *, round_number: int) -> _Work:
        self._start_count += 1
        work = _Work(planned, self._start_count)
        self._works.append(work)
        self._history.starts.append(ToolStart(self._loop.time(), planned.key, round_number, exchange.node))
        self._history.note(
            Subject.UPSTREAM,
            f"{self.kind} starts {planned.key} (start {work.number}, round {round_number}) for {exchange.node}",
        )
        return work

    def _report_progress(self, work: _Work, exchange: Exchange) -> None:
        for step in range(work.planned.progress_steps):
            delay = work.planned.work_seconds * (step + 1) / (work.planned.progress_steps + 1)
            self._after(delay, self._send_progress, work, exchange, step + 1)

    def _send_progress(self, work: _Work, exchange: Exchange, step: int) -> None:
        if not work.is_over and exchange in self._exchanges:
            self._loop.call_later(
                self._draw() * LATENCY_SECONDS, self._report_step, exchange, step, context=exchange.context
            )

    def _report_step(self, exchange: Exchange, step: int) -> None:
        """In the process of the node."""
        if exchange.on_progress is not None and not exchange.response.done():
            self._loop.create_task(_await_progress(exchange.on_progress, step))

    def _finish_request(self, work: _Work, exchange: Exchange) -> None:
        if work.is_over or work.planned.end is ToolEnd.SILENCE:
            return
        response = self._make_end(work)
        if isinstance(response, RequestFailed):
            self._fail(exchange, response)
        else:
            self._respond(exchange, response)

    def _make_end(self, work: _Work) -> dict[str, Any] | UpstreamError:
        """The end of a tool, recorded as what the upstream has made of this start."""
        end, text = work.planned.end, f"{work.planned.key} done by start {work.number}"
        if end is ToolEnd.JSONRPC_ERROR:
            self._end(work, "upstream_error", None)
            return UpstreamError({"code": -32000, "message": "The tool broke."})
        if end is ToolEnd.NONSENSE:
            self._end(work, "upstream_error", None)
            return NONSENSE
        is_error = end is ToolEnd.TOOL_ERROR
        self._end(work, "tool_error" if is_error else "result", text)
        return {"content": [{"type": "text", "text": text}], "isError": is_error}

    def _end(self, work: _Work, outcome: str, text: str | None) -> None:
        work.is_over = True
        self._history.ends.append(ProducedEnd(work.planned.key, outcome, text))
        self._history.note(Subject.UPSTREAM, f"{self.kind} ends {work.planned.key} (start {work.number}): {outcome}")

    def _stop_abandoned(self, exchange: Exchange) -> None:
        self._exchanges.pop(exchange, None)
        work = exchange.work
        if work is not None and not work.is_over and not work.task:
            self._end(work, "cancelled", None)

    # -- tasks --

    def _create_task(self, work: _Work, exchange: Exchange) -> None:
        task_id = f"task-{work.number}"
        work.task = {"taskId": task_id, "status": "working", "pollIntervalMs": 2000}
        self._tasks[task_id] = work
        self._respond(exchange, {"resultType": "task", **work.task})
        if work.planned.asks:
            self._after(work.planned.work_seconds / 2, self._ask, work)
        else:
            self._after(work.planned.work_seconds, self._finish_task, work)

    def _ask(self, work: _Work) -> None:
        if not work.is_over:
            work.waits_for_input = True
            work.task |= {"status": "input_required", "inputRequests": {"q": _QUESTION}}

    def _finish_task(self, work: _Work) -> None:
        if work.is_over or work.planned.end is ToolEnd.SILENCE:
            return
        end = self._make_end(work)
        work.task.pop("inputRequests", None)
        if isinstance(end, UpstreamError):
            work.task |= {"status": "failed", "error": end.error}
        else:
            work.task |= {"status": "completed", "result": end}

    def _get_task(self, exchange: Exchange) -> None:
        if (work := self._find_task(exchange)) is not None:
            if work.planned.progress_steps and not work.is_over:
                work.task["statusMessage"] = f"at {int(self._loop.time())}"
            self._respond(exchange, dict(work.task))

    def _cancel_task(self, exchange: Exchange) -> None:
        if (work := self._find_task(exchange)) is not None:
            if not work.is_over:
                self._end(work, "cancelled", None)
                work.task.pop("inputRequests", None)
                work.task["status"] = "cancelled"
            self._respond(exchange, {})

    def _update_task(self, exchange: Exchange) -> None:
        if (work := self._find_task(exchange)) is not None:
            if work.waits_for_input and not work.is_over:
                work.waits_for_input, work.was_answered = False, True
                work.task.pop("inputRequests", None)
                work.task["status"] = "working"
                self._after(work.planned.work_seconds / 2, self._finish_task, work)
            self._respond(exchange, {})

    def _find_task(self, exchange: Exchange) -> _Work | None:
        work = self._tasks.get(exchange.params["taskId"])
        if work is None:
            self._fail(exchange, UpstreamError(_UNKNOWN_TASK))
        return work

    # -- responses --

    def _respond(self, exchange: Exchange, response: dict[str, Any]) -> None:
        if self._exchanges.pop(exchange, exchange) is None:
            self._after(self._draw() * LATENCY_SECONDS, _set_response, exchange.response, response)

    def _fail(self, exchange: Exchange, failure: RequestFailed | None) -> None:
        if self._exchanges.pop(exchange, exchange) is None:
            failure = failure or RequestNotSent("The connection was refused.")
            self._after(self._draw() * LATENCY_SECONDS, _set_failure, exchange.response, failure)

    def _after(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        self._loop.call_later(seconds, callback, *args, context=self._context)


async def _await_progress(on_progress: ProgressFnT, step: int) -> None:
    await on_progress(float(step), None, f"step {step}")


def _set_response(response: "asyncio.Future[dict[str, Any]]", value: dict[str, Any]) -> None:
    if not response.done():
        response.set_result(value)


def _set_failure(response: "asyncio.Future[dict[str, Any]]", failure: RequestFailed) -> None:
    if not response.done():
        response.set_exception(failure)
