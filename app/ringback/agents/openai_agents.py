"""OpenAI Agents that park and wake.

    runner = DurableRunner(client, SQLiteParkedRuns("runs.db"))
    agent = Agent(name="analyst", tools=await runner.load_tools("reports"))

    result = await runner.run(agent, "Build the report.", client_session_id="thread-7")     # park: it has interruptions

    result = await runner.wake(agent, callback)                                             # wake: in any process
    if result is not None and not result.interruptions:
        print(result.final_output)

    park   the tools need an approval, so the SDK interrupts the run; its RunState is saved, then the calls start
    wake   once all calls of the run have ended: RunState.from_string, approve, Runner.run; each tool returns its call's result

A call's correlation_id is the tool_call_id. The run is saved before its calls start, so no callback comes too early. A process
that is killed in between leaves calls that have not started: `DurableRunner.start_parked_calls` starts them.

An approval of a tool of your own stays what it is: find it in `result.interruptions`, approve it in `result.to_state()`, and
give that state to `DurableRunner.run` as its input.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final, TypeVar, Unpack

from agents import (
    Agent,
    FunctionTool,
    Runner,
    RunResult,
    RunResultStreaming,
    RunState,
    Session,
    ToolApprovalItem,
    TResponseInputItem,
)
from agents.run_config import RunOptions

from ringback.agents.agent_calls import REFUSALS, AgentCalls, ParkOptions, read_call_state, read_call_states
from ringback.agents.call_state import CallState, CallStateKind
from ringback.agents.openai_agents_tools import (
    NO_ARGUMENTS,
    ToolCallKey,
    build_tool,
    build_tool_name,
    parse_arguments,
    returning_results,
)
from ringback.agents.parked_runs import (
    ParkedRun,
    ParkedRuns,
    ParkedRunsUnavailable,
    RequestKey,
    SQLiteParkedRuns,
    ToolRequest,
)
from ringback.agents.wake_up import AskPerson, CallbackForm, NotParkedYet, ask_person, find_tool_call, parse_wake_up
from ringback.client import ClientError, RingbackClient, Tool
from ringback.key_locks import KeyLocks

__all__ = ["AskPerson", "DurableRunner", "ParkedRunsUnavailable", "SQLiteParkedRuns"]

LEASE_SECONDS: Final = 60.0
"""How long after the death of a process another one may continue its run."""
TOKEN_BYTES: Final = 16

log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT", RunResult, RunResultStreaming)

DeliverResult = Callable[[RunResult], Awaitable[None]]
"""Takes the result of a run that waits for no calls any more. If it raises, the next callback continues the run again."""


class DurableRunner:
    """Runs agents whose tools run on Ringback, and continues their runs.

    Every process that runs or wakes an agent loads the same tools. `open_session` returns the SDK's session (its conversation
    history) for a client_session_id; without it a run has no history but its own. `options` are `ParkOptions`, for all calls.
    """

    def __init__(
        self,
        client: RingbackClient,
        runs: ParkedRuns,
        *,
        open_session: Callable[[str], Session] | None = None,
        **options: Unpack[ParkOptions],
    ) -> None:
        self._client = client
        self._runs = runs
        self._open_session = open_session
        self._options = options
        self._tools: dict[str, tuple[str, str]] = {}
        self._locks = KeyLocks()

    async def load_tools(
        self, upstream: str, names: Sequence[str] | None = None, *, prefix: str = ""
    ) -> list[FunctionTool]:
        """The upstream's tools, or those with these names. Give a prefix if two upstreams have tools of one name."""
        return [self._build_tool(upstream, tool, prefix) for tool in await self._calls(upstream).list_tools(names)]

    async def run(
        self,
        agent: Agent[Any],
        input: str | list[TResponseInputItem] | RunState[Any],  # noqa: A002 - as Runner.run calls it
        *,
        client_session_id: str,
        **options: Unpack[RunOptions[Any]],
    ) -> RunResult:
        """Run the agent as `Runner.run` does, until its final output or until it waits for calls.

        Raises errors of the client. If the model has called tools by then, the run is saved, and `start_parked_calls` starts
        what has not started.
        """
        options = self._add_session(client_session_id, options)
        result = await Runner.run(agent, input, **options)
        return await self.park(agent, result, client_session_id=client_session_id, **options)

    async def park(
        self, agent: Agent[Any], result: ResultT, *, client_session_id: str, **options: Unpack[RunOptions[Any]]
    ) -> ResultT | RunResult:
        """The second half of `run`, for a result of `Runner.run_streamed` whose events you have read to the end."""
        options = self._add_session(client_session_id, options)
        if not self._find_requests(result):
            return result
        run = ParkedRun(id=secrets.token_hex(TOKEN_BYTES), client_session_id=client_session_id)
        async with self._leasing(run) as token:
            return await self._settle(agent, run, result, token, options)

    async def wake(
        self,
        agent: Agent[Any],
        callback: CallbackForm,
        *,
        ask: AskPerson | None = None,
        deliver: DeliverResult | None = None,
        **options: Unpack[RunOptions[Any]],
    ) -> RunResult | None:
        """Continue the run that waits for the callback's call, or return None if there is nothing to run.

        None means that another call of the same run is still working, that the run was continued before, that no run of this
        store has the call, or that the tool asks: then `ask` was awaited. Give the `options` of the first run again.

        `deliver` is awaited with the result, once it waits for no calls any more, before the run counts as continued. Without
        it, a process that dies right after `wake` has returned leaves its output only in the SDK's session.

        Raises `NotParkedYet` while another process continues the run: refuse the callback, and it comes again. If that process
        has died, its lease ends within a minute, and the first callback after that continues the run. Raises `MalformedBody`
        for what is not a callback, and errors of the client.
        """
        wake_up = parse_wake_up(callback)
        if wake_up is None:
            return None
        state = await read_call_state(self._client, wake_up.call_id, with_result=False)
        client_session_id, tool_call_id = find_tool_call(wake_up, state)
        if client_session_id is None or tool_call_id is None:
            return None
        for found in await self._runs.find(client_session_id, tool_call_id, wake_up.call_id):
            result = await self._wake_run(agent, found, wake_up.call_id, ask, deliver, options)
            if result is not None:
                return result
        return None

    async def _wake_run(
        self,
        agent: Agent[Any],
        found: ParkedRun,
        call_id: str,
        ask: AskPerson | None,
        deliver: DeliverResult | None,
        options: RunOptions[Any],
    ) -> RunResult | None:
        """Continue the run if all calls have ended that it waits for. `call_id` is the callback's."""
        if found.is_final:
            return None
        async with self._leasing(found) as token:
            if not await self._runs.lease(found.id, token, seconds=LEASE_SECONDS):
                raise _continues_elsewhere(found)
            run = await self._runs.read(found.id)
            if run is None or run.is_final:
                return None
            states = await self._read_states(run)
            for state in states.values():
                if state.call_id == call_id:  # not in those of an earlier turn, whose callback is repeated
                    await ask_person(state, ask)
            options = self._add_session(run.client_session_id, options)
            return await self._continue(agent, run, states, token, options, deliver) if _are_final(states) else None

    async def _continue(
        self,
        agent: Agent[Any],
        run: ParkedRun,
        states: Mapping[RequestKey, CallState],
        token: str,
        options: RunOptions[Any],
        deliver: DeliverResult | None,
    ) -> RunResult:
        result = await self._resume(agent, run, states, options)
        return await self._settle(agent, run, result, token, options, deliver=deliver)

    async def start_parked_calls(self) -> None:
        """Start the calls of waiting runs that have not started.

        For the start of a process: one that was killed after it had saved a run may have left such calls. Raises the first of
        the client's errors, once it has tried all runs.
        """
        errors: list[ClientError] = []
        for run in await self._runs.find_waiting():
            try:
                await self._start_calls(run)
            except ClientError as error:
                log.warning("Calls of the run %s have not started: %s", run.id, error)
                errors.append(error)
        if errors:
            raise errors[0]

    async def _settle(
        self,
        agent: Agent[Any],
        run: ParkedRun,
        result: ResultT,
        token: str,
        options: RunOptions[Any],
        *,
        deliver: DeliverResult | None = None,
    ) -> ResultT | RunResult:
        """Save the run, start its calls and resume it, until a call is still working or the run has finished."""
        settled: ResultT | RunResult = result
        while requests := self._find_requests(settled):
            run = replace(run, state=settled.to_state().to_string(), requests=requests)
            await self._save(run, token)
            states = await self._read_states(run)
            if not _are_final(states):
                return settled
            settled = await self._resume(agent, run, states, options)
        if deliver is not None and isinstance(settled, RunResult):
            await self._require_lease(run, token)
            await deliver(settled)
        await self._save(replace(run, state=None, requests=()), token)
        return settled

    async def _require_lease(self, run: ParkedRun, token: str) -> None:
        if not await self._runs.renew(run.id, token, seconds=LEASE_SECONDS):
            raise _continued_elsewhere(run)

    async def _save(self, run: ParkedRun, token: str) -> None:
        if not await self._runs.save(run, token, lease_seconds=LEASE_SECONDS):
            raise _continued_elsewhere(run)

    def _find_requests(self, result: RunResult | RunResultStreaming) -> list[ToolRequest]:
        """The interruptions that are calls of our tools. Others wait for a person's approval."""
        requests = [request for item in result.interruptions if (request := self._to_request(item)) is not None]
        return list({request.key: request for request in requests}.values())

    def _to_request(self, item: ToolApprovalItem) -> ToolRequest | None:
        named = self._tools.get(item.name or "")
        if named is None or item.call_id is None:
            return None
        upstream, tool = named
        return ToolRequest(
            tool_call_id=item.call_id, upstream=upstream, tool=tool, arguments=item.arguments or NO_ARGUMENTS
        )

    async def _read_states(self, run: ParkedRun) -> dict[RequestKey, CallState]:
        """How the run's calls stand. Calls that are not known to have started are started, or found."""
        started = await self._start_calls(run)
        known = {request.key: request.call_id for request in run.requests if request.call_id is not None}
        states = await read_call_states(self._client, list(known.values()))
        return started | {key: states[call_id] for key, call_id in known.items()}

    async def _start_calls(self, run: ParkedRun) -> dict[RequestKey, CallState]:
        """Start those of the run's calls that are not known to have started, and store their ids.

        A repeated start finds its call for 30 days only; later it would run the tool again.
        """
        missing = [request for request in run.requests if request.call_id is None]
        states = {request.key: await self._park(run.client_session_id, request) for request in missing}
        named = [replace(request, call_id=states[request.key].call_id or None) for request in missing]
        if started := [request for request in named if request.call_id is not None]:
            await self._runs.record_calls(run.id, started)
        return states

    async def _park(self, client_session_id: str, request: ToolRequest) -> CallState:
        try:
            arguments = parse_arguments(request.arguments)
        except ValueError as error:
            return _build_refused_state(request, error)
        try:
            return await self._calls(request.upstream).park(
                request.tool, arguments, client_session_id=client_session_id, tool_call_id=request.tool_call_id
            )
        except REFUSALS as refusal:
            return _build_refused_state(request, refusal)

    async def _resume(
        self, agent: Agent[Any], run: ParkedRun, states: Mapping[RequestKey, CallState], options: RunOptions[Any]
    ) -> RunResult:
        """Run on from the saved state. Each ended call is approved, and its tool returns what the call has."""
        state = await RunState.from_string(agent, run.state or "")
        ended: dict[ToolCallKey, CallState] = {}
        for item in state.get_interruptions():
            if (call_state := self._find_state(item, states)) is not None:
                state.approve(item)
                ended[item.call_id or "", item.name or "", item.arguments or NO_ARGUMENTS] = call_state
        with returning_results(ended):
            return await Runner.run(agent, state, **options)

    def _find_state(self, item: ToolApprovalItem, states: Mapping[RequestKey, CallState]) -> CallState | None:
        """The state of this tool call. Its tool matters only if a call of another one has its name and its arguments."""
        arguments = item.arguments or NO_ARGUMENTS
        found = {key[1:3]: state for key, state in states.items() if (key[0], key[3]) == (item.call_id, arguments)}
        return found.get(self._tools.get(item.name or "", ("", "")), next(iter(found.values()), None))

    def _add_session(self, client_session_id: str, options: RunOptions[Any]) -> RunOptions[Any]:
        return options if self._open_session is None else {"session": self._open_session(client_session_id), **options}

    def _calls(self, upstream: str) -> AgentCalls:
        return AgentCalls(self._client, upstream, self._options)

    @asynccontextmanager
    async def _leasing(self, run: ParkedRun) -> AsyncGenerator[str]:
        """A token, whose lease of the run is renewed, and ends with the context. Tasks of this process wait for each other."""
        token = secrets.token_hex(TOKEN_BYTES)
        async with self._locks.hold(run.id):
            ended = asyncio.Event()
            renewal = asyncio.create_task(self._renew_lease(run.id, token, ended))
            try:
                yield token
            finally:
                ended.set()  # not cancelled: a renewal that has begun would end after the lease
                await renewal
                await self._release_lease(run.id, token)

    async def _release_lease(self, run_id: str, token: str) -> None:
        try:
            await self._runs.release(run_id, token)
        except Exception:  # the boundary to the user's store: the run is saved by now, and its result must not be lost
            log.exception("The lease of the run %s could not be ended; it lapses after %g s", run_id, LEASE_SECONDS)

    async def _renew_lease(self, run_id: str, token: str, ended: asyncio.Event) -> None:
        while not await _is_set_within(ended, LEASE_SECONDS / 3):
            try:
                if not await self._runs.renew(run_id, token, seconds=LEASE_SECONDS):
                    log.warning("The lease of the run %s is another process's now; its result is not delivered", run_id)
                    return
            except Exception:  # the boundary to the user's store: the next renewal may succeed before the lease lapses
                log.exception("The lease of the run %s could not be renewed", run_id)

    def _build_tool(self, upstream: str, tool: Tool, prefix: str) -> FunctionTool:
        name = build_tool_name(prefix + tool.name)
        if self._tools.setdefault(name, (upstream, tool.name)) != (upstream, tool.name):
            raise ValueError(
                f"There is a tool '{name}' of the upstream '{self._tools[name][0]}' already. Give a prefix."
            )
        return build_tool(name, tool)


def _build_refused_state(request: ToolRequest, reason: Exception) -> CallState:
    text = f"The tool '{request.tool}' was not called: {reason}"
    return CallState(kind=CallStateKind.FAILED, call_id="", text=text)


def _are_final(states: Mapping[RequestKey, CallState]) -> bool:
    return all(state.is_final for state in states.values())


def _continues_elsewhere(run: ParkedRun) -> NotParkedYet:
    return NotParkedYet(
        f"Another process continues the run of '{run.client_session_id}' now. If it has died, its lease ends within "
        f"{LEASE_SECONDS:g} s, and the first callback after that continues the run. Refuse the callback; it comes again."
    )


def _continued_elsewhere(run: ParkedRun) -> NotParkedYet:
    return NotParkedYet(f"Another process has continued the run of '{run.client_session_id}'.")


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
