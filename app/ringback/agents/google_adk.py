"""Google ADK agents that park and wake.

    agent = LlmAgent(name="analyst", model="gemini-3.5-flash", tools=[RingbackToolset(client, "reports")])
    runner = Runner(app_name="analyst", agent=agent, session_service=SqliteSessionService("sessions.db"))

    async for event in runner.run_async(…): …              # park: the tool responds `pending`, and the session stores it

    events = await wake(runner, callback, client)          # wake: in any process
    if events is not None:
        print(read_final_text(events))

    park   a long-running tool starts the call and responds with its id; ADK stores both in the session
    wake   run_async(new_message=FunctionResponse(id=…, response=the call's result))

The session service is the only state, so it must be persistent: SqliteSessionService, or DatabaseSessionService, which
`google-adk[db]` installs.

Give these tools to an agent or to its `sub_agents`. An agent that is a tool (`AgentTool`) has a session of its own in memory,
which ends with its call, so nothing could wake it.

ADK gives a response to the last function call of its id. So if a model names its calls alike, a call is refused while another
one of its id runs.

A call's correlation_id is the id of ADK's function call. Its client_session_id is `app/user/session` (`name_session`), because
ADK's session ids are unique among the sessions of one user of one app only.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, Unpack

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.agents.run_config import RunConfig
from google.adk.errors import StaleSessionError
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.adk.tools import BaseTool, ToolContext
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from ringback.agents.agent_calls import REFUSALS, AgentCalls, ParkOptions, read_call_state, read_call_states
from ringback.agents.call_state import CallState
from ringback.agents.google_adk_session import (
    CALL_ID,
    PENDING,
    find_answer,
    find_parking,
    has_answered,
    has_response,
    name_session,
    parse_session_name,
    waits_for_namesake,
)
from ringback.agents.wake_up import (
    AskPerson,
    CallbackForm,
    NotParkedYet,
    ask_person,
    current_time,
    find_tool_call,
    parse_wake_up,
    refuse_if_early,
    refuse_while_running,
)
from ringback.client import RingbackClient, Tool
from ringback.key_locks import KeyLocks

__all__ = ["AskPerson", "RingbackToolset", "name_session", "read_final_text", "wake"]

LONG_RUNNING_NOTE: Final = (
    "NOTE: This is a long-running operation. Do not call it again while its response is pending; the result follows."
)
NAMESAKE_WAITS: Final = (
    "another call with the same id still runs, and its result would be taken for that of this call. Call the tool again once "
    "that result is there."
)
_locks: Final = KeyLocks()
"""Held by `wake`: two callbacks of one session that arrive at once would both continue it."""


class RingbackToolset(BaseToolset):
    """The tools of one upstream, each a long-running tool of ADK.

    `tools` are the names of the tools to offer; the default is all. `options` are `ParkOptions`.
    """

    def __init__(
        self,
        client: RingbackClient,
        upstream: str,
        *,
        tools: Sequence[str] | None = None,
        **options: Unpack[ParkOptions],
    ) -> None:
        super().__init__()
        self._calls = AgentCalls(client, upstream, options)
        self._names = tools
        self._tools: list[BaseTool] | None = None

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        """The upstream's tools, read once."""
        del readonly_context
        if self._tools is None:
            self._tools = [_AdkTool(self._calls, tool) for tool in await self._calls.list_tools(self._names)]
        return self._tools


class _AdkTool(BaseTool):
    def __init__(self, calls: AgentCalls, tool: Tool) -> None:
        super().__init__(name=tool.name, description=tool.description or "", is_long_running=True)
        self._calls = calls
        self._input_schema = dict(tool.input_schema)

    def _get_declaration(self) -> types.FunctionDeclaration:
        description = f"{self.description}\n\n{LONG_RUNNING_NOTE}".lstrip()
        return types.FunctionDeclaration(
            name=self.name, description=description, parameters_json_schema=self._input_schema
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> dict[str, Any]:
        """Park the call. A call that has already ended responds at once."""
        session = tool_context.session
        if tool_context.function_call_id is None:
            raise ValueError("A tool of Ringback runs only as a function call of an agent.")
        if waits_for_namesake(session, types.FunctionCall(id=tool_context.function_call_id, name=self.name, args=args)):
            return {"error": f"The tool '{self.name}' was not called: {NAMESAKE_WAITS}"}
        try:
            state = await self._calls.park(
                self.name,
                args,
                client_session_id=name_session(session.app_name, session.user_id, session.id),
                tool_call_id=tool_context.function_call_id,
            )
        except REFUSALS as refusal:
            return {"error": f"The tool '{self.name}' was not called: {refusal}"}
        if not state.is_final:
            tool_context.actions.skip_summarization = True  # the run ends here: the model has nothing to say yet
        return to_response(state)


async def wake(
    runner: Runner,
    callback: CallbackForm,
    client: RingbackClient,
    *,
    ask: AskPerson | None = None,
    clock: Callable[[], datetime] = current_time,
    run_config: RunConfig | None = None,
) -> list[Event] | None:
    """Continue the session that waits for the callback's call, and return the events of the run, or None if nothing ran.

    None means that another call of the same step is still working, that the session was continued before, that it belongs to
    another app, that the event wakes no agent, or that the tool asks: then `ask` was awaited. If the process that continued the
    session has died, the run goes on from the last event, ten minutes after it; if the run raised, it goes on at once.

    Raises `NotParkedYet` if the session does not have the call yet, or if another process may be at work on the session: refuse
    the callback, and it comes again. Raises `MalformedBody` for what is not a callback, and errors of the client.
    """
    wake_up = parse_wake_up(callback)
    if wake_up is None:
        return None
    state = await read_call_state(client, wake_up.call_id, with_result=False)
    session_name, function_call_id = find_tool_call(wake_up, state)
    place, state = parse_session_name(session_name), replace(state, tool_call_id=function_call_id)
    if place is None or place[0] != runner.app_name:
        return None
    async with _locks.hold(name_session(*place)):
        return await _wake(runner, place, state, client, ask=ask, clock=clock, run_config=run_config)


async def _wake(
    runner: Runner,
    place: tuple[str, str, str],
    state: CallState,
    client: RingbackClient,
    *,
    ask: AskPerson | None,
    clock: Callable[[], datetime],
    run_config: RunConfig | None,
) -> list[Event] | None:
    app_name, user_id, session_id = place
    session = await runner.session_service.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
    parking = None if session is None else find_parking(session, state.call_id)
    if session is None or parking is None:
        if session is None or not has_response(session, state.call_id):
            refuse_if_early(state, clock())
        return None
    states = await read_call_states(client, list(parking.pending))
    await ask_person(states[state.call_id], ask)
    if not all(each.is_final for each in states.values()):
        return None
    responses = [_answer_call(parking.pending[call_id], each) for call_id, each in states.items()]
    return await _continue(runner, session, responses, parked_at=parking.index, now=clock(), run_config=run_config)


def _answer_call(pending: types.FunctionResponse, state: CallState) -> types.Part:
    response = types.FunctionResponse(id=pending.id, name=pending.name, response=to_response(state))
    return types.Part(function_response=response)


async def _continue(
    runner: Runner,
    session: Session,
    responses: list[types.Part],
    *,
    parked_at: int,
    now: datetime,
    run_config: RunConfig | None,
) -> list[Event] | None:
    """Give the responses to the agent, or continue its run if it has them: its process died then."""
    answers = [part.function_response for part in responses if part.function_response is not None]
    index = find_answer(session, answers, after=parked_at)
    named: dict[str, Any] = {"new_message": types.Content(role="user", parts=responses)}
    if index is not None:
        if any(has_answered(event) for event in session.events[index + 1 :]):
            return None
        last = session.events[-1]
        if last.error_code is None:
            acted_at = datetime.fromtimestamp(last.timestamp, UTC)
            refuse_while_running(f"Another process may continue the session '{session.id}' now.", [acted_at], now)
        named = {"invocation_id": session.events[index].invocation_id}
    running = runner.run_async(user_id=session.user_id, session_id=session.id, run_config=run_config, **named)
    try:
        return [event async for event in running]
    except StaleSessionError as stale:
        raise NotParkedYet(f"Another process has changed the session '{session.id}'. Refuse the callback.") from stale


def to_response(state: CallState) -> dict[str, Any]:
    """What the model reads of a call: a CallToolResult as ADK's McpToolset gives it, `pending`, or an error.

    The call's id in it says which call has got its response, because some models name their calls alike.
    """
    named = {CALL_ID: state.call_id} if state.call_id else {}
    if not state.is_final:
        return {"status": PENDING, **named}
    if state.result is None:
        return {"error": state.text, **named}
    read = {name: value for name, value in state.result.items() if name in {"content", "structuredContent", "isError"}}
    return read | named


def read_final_text(events: Sequence[Event]) -> str:
    """The text of the last final response."""
    final = [event for event in events if has_answered(event) and event.content is not None]
    parts = (final[-1].content.parts or []) if final and final[-1].content is not None else []
    return "".join(part.text for part in parts if part.text and not part.thought)
