"""What else ADK can do with parked calls: resumable apps, sub-agents, tools of its own, a user who goes on talking."""

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import edges
from fake_ringback import UPSTREAM, FakeRingback
from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from pydantic import Field

from ringback.agents import AgentCalls, CallState, NotParkedYet, wake_up
from ringback.agents.google_adk import RingbackToolset, name_session, read_final_text, wake

APP = "reports"
USER = "ann/lee@example.com"


class Desk:
    """A fake Ringback, and runners on one file of sessions: each stands for a process."""

    def __init__(self, folder: Path) -> None:
        self.ringback = FakeRingback()
        self.client = self.ringback.client()
        self.folder = folder
        self.is_resumable = False
        self.asked: list[str] = []
        self.sessions: Callable[[], BaseSessionService] = lambda: SqliteSessionService(str(folder / "sessions.db"))

    def runner(self, agent: LlmAgent) -> Runner:
        resumability = ResumabilityConfig(is_resumable=True) if self.is_resumable else None
        app = App(name=APP, root_agent=agent, resumability_config=resumability)
        return Runner(app=app, session_service=self.sessions(), auto_create_session=True)

    def agent(self, *script: Sequence[types.Part], name: str = "analyst", **options: Any) -> LlmAgent:
        tools = [RingbackToolset(self.client, UPSTREAM), *options.pop("tools", [])]
        return LlmAgent(name=name, model=ScriptedModel(script=list(script)), tools=tools, **options)

    async def ask(self, state: CallState) -> None:
        self.asked.append(state.call_id)

    async def say(self, agent: LlmAgent, text: str) -> list[Event]:
        message = types.Content(role="user", parts=[types.Part(text=text)])
        running = self.runner(agent).run_async(user_id=USER, session_id="s", new_message=message)
        return [event async for event in running]

    async def wake(self, agent: LlmAgent, index: int, **ending: Any) -> str | None:
        """Wake the agent in another process after the end of a call."""
        self.ringback.end(self.ringback.started[index], **ending)
        return await self.call_back(agent, index)

    async def call_back(self, agent: LlmAgent, index: int) -> str | None:
        callback = self.ringback.callback(self.ringback.started[index])
        events = await wake(self.runner(agent), callback, self.client, ask=self.ask)
        return None if events is None else read_final_text(events)


class ScriptedModel(BaseLlm):
    model: str = "scripted"
    script: list[Sequence[types.Part]]
    requests: list[list[types.Content]] = Field(default_factory=list)

    async def generate_content_async(self, llm_request: LlmRequest, stream: Any = None) -> AsyncGenerator[LlmResponse]:
        del stream
        self.requests.append(list(llm_request.contents))
        yield LlmResponse(content=types.Content(role="model", parts=[*self.script.pop(0)]))

    def responses(self) -> list[dict[str, Any]]:
        """What it has read of its tools in its last call."""
        parts = [part for content in self.requests[-1] for part in content.parts or []]
        return [part.function_response.response or {} for part in parts if part.function_response]


def call(tool: str, *, function_call_id: str | None = None, **arguments: Any) -> types.Part:
    """Without an id, ADK makes one."""
    return types.Part(function_call=types.FunctionCall(id=function_call_id, name=tool, args=arguments or {"key": "k"}))


def text(said: str) -> types.Part:
    return types.Part(text=said)


def model_of(agent: LlmAgent) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


async def the_client_session_id_names_app_user_and_session(desk: Desk) -> None:
    agent = desk.agent([call("slow")])

    await desk.say(agent, "go")

    assert [each["client_session_id"] for each in desk.ringback.started] == [name_session(APP, USER, "s")]
    assert name_session(APP, USER, "s") == "reports/ann%2Flee%40example.com/s"


async def sessions_may_be_in_a_database_of_sqlalchemy(desk: Desk) -> None:
    desk.sessions = lambda: DatabaseSessionService(f"sqlite+aiosqlite:///{desk.folder / 'sessions.db'}")

    await a_run_parks_again_and_again(desk)


async def a_refused_call_is_an_error_for_the_model_at_once(desk: Desk) -> None:
    agent = desk.agent([call("slow", other="k")], [text("ok")])

    events = await desk.say(agent, "go")

    assert read_final_text(events) == "ok", events
    [response] = model_of(agent).responses()
    assert "'key' is a required property" in response["error"]


async def arguments_that_are_not_json_are_an_error_for_the_model(desk: Desk) -> None:
    agent = desk.agent([call("slow", key=float("nan"))], [text("ok")])

    assert read_final_text(await desk.say(agent, "go")) == "ok"
    assert "cannot be sent as JSON" in str(model_of(agent).responses())


async def a_missing_upstream_is_an_error_for_the_model(desk: Desk) -> None:
    agent = desk.agent([call("slow")], [text("ok")])
    await agent.tools[0].get_tools()
    desk.ringback.is_upstream_missing = True

    assert read_final_text(await desk.say(agent, "go")) == "ok"
    assert "There is no upstream 'stage'" in str(model_of(agent).responses())


async def a_person_is_asked_once_although_a_call_beside_the_question_ends(desk: Desk) -> None:
    agent = desk.agent([call("slow", key="1"), call("other", key="2")], [text("ok")])
    await desk.say(agent, "go")
    question = desk.ringback.started[0]
    desk.ringback.ask(question, "r1.1")

    assert await desk.call_back(agent, 0) is None
    assert await desk.wake(agent, 1) is None

    assert desk.asked == [question["id"]]


async def results_are_read_once_all_calls_have_ended(desk: Desk) -> None:
    agent = desk.agent([call("slow", key="1"), call("other", key="2")], [text("ok")])
    await desk.say(agent, "go")

    await desk.wake(agent, 0)
    assert desk.ringback.result_reads == 0
    assert await desk.wake(agent, 1) == "ok"

    assert desk.ringback.result_reads == len(desk.ringback.started)


async def a_refused_call_in_a_resumable_app(desk: Desk) -> None:
    desk.is_resumable = True
    await a_refused_call_is_an_error_for_the_model_at_once(desk)


async def an_expired_call_wakes_its_agent_with_an_error(desk: Desk) -> None:
    agent = desk.agent([call("slow")], [text("ok")])
    await desk.say(agent, "go")
    desk.ringback.expired.add(desk.ringback.started[0]["id"])

    assert await desk.call_back(agent, 0) == "ok"

    assert "has expired" in str(model_of(agent).responses())
    assert await desk.call_back(agent, 0) is None


async def a_call_that_has_ended_already_does_not_park(desk: Desk) -> None:
    desk.ringback.ends_at_once = True
    agent = desk.agent([call("slow")], [text("ok")])

    assert read_final_text(await desk.say(agent, "go")) == "ok"
    assert await desk.wake(agent, 0) is None


async def a_call_that_has_ended_already_in_a_resumable_app(desk: Desk) -> None:
    desk.is_resumable = True
    await a_call_that_has_ended_already_does_not_park(desk)


async def a_run_parks_again_and_again(desk: Desk) -> None:
    agent = desk.agent([call("slow")], [call("other")], [text("ok")])
    await desk.say(agent, "go")

    assert await desk.wake(agent, 0) == ""
    assert await desk.wake(agent, 0) is None
    assert await desk.wake(agent, 1, text="second") == "ok"
    assert await desk.wake(agent, 1) is None
    assert "second" in str(model_of(agent).responses()[-1])


async def a_model_that_names_its_calls_alike_in_every_response_parks_again_and_again(desk: Desk) -> None:
    """The answer to the first call counted as that to the second one, whose result never reached the agent."""
    parks = [[call("slow", function_call_id="call_0", key=key)] for key in ("1", "2", "3")]
    agent = desk.agent(parks[0], parks[1], [text("ok")], parks[2], [text("ok again")])
    await desk.say(agent, "go")

    assert await desk.wake(agent, 0, text="first") == ""
    assert await desk.wake(agent, 1, text="second") == "ok"
    await desk.say(agent, "once more")
    assert await desk.wake(agent, 2, text="third") == "ok again"
    assert "third" in str(model_of(agent).responses()[-1])
    assert await desk.wake(agent, 2) is None


async def a_resumable_app_of_a_model_that_names_its_calls_alike(desk: Desk) -> None:
    desk.is_resumable = True
    await a_model_that_names_its_calls_alike_in_every_response_parks_again_and_again(desk)


async def a_call_is_refused_while_another_one_of_its_id_runs(desk: Desk) -> None:
    """ADK gave the result of the first call to the second one, whose own result never reached the agent."""
    first, second = ([call("slow", function_call_id="call_0", key=key)] for key in ("1", "2"))
    agent = desk.agent(first, second, [text("it still runs")], [text("ok")], second, [text("ok again")])
    await desk.say(agent, "go")

    assert read_final_text(await desk.say(agent, "and the other one?")) == "it still runs"
    assert "was not called: another call with the same id still runs" in str(model_of(agent).responses()[-1])
    assert len(desk.ringback.started) == 1
    assert await desk.wake(agent, 0, text="first") == "ok"
    assert "first" in str(model_of(agent).responses())
    await desk.say(agent, "once more")
    assert await desk.wake(agent, 1, text="second") == "ok again"
    assert await desk.call_back(agent, 0) is None


async def the_second_of_two_calls_of_one_id_in_one_step_is_refused(desk: Desk) -> None:
    alike = [call("slow", function_call_id="call_0", key=key) for key in ("1", "2")]
    agent = desk.agent(alike, [text("ok")])
    await desk.say(agent, "go")

    assert len(desk.ringback.started) == 1
    assert await desk.wake(agent, 0, text="first") == "ok"
    assert "first" in str(model_of(agent).responses())


async def the_same_call_again_finds_its_call(desk: Desk) -> None:
    agent = desk.agent(*[[call("slow", function_call_id="call_0", key="1")] for _ in range(2)], [text("ok")])
    await desk.say(agent, "go")
    await desk.say(agent, "go on")

    assert len(desk.ringback.started) == 1
    assert await desk.wake(agent, 0) == "ok"
    assert await desk.call_back(agent, 0) is None


async def refuse_before_parking(desk: Desk, agent: LlmAgent, index: int) -> None:
    """Park a call of the same id without a session, and check that its callback is refused."""
    session = name_session(APP, USER, "s")
    await AgentCalls(desk.client, UPSTREAM).park("slow", {"key": "2"}, client_session_id=session, tool_call_id="call_0")

    try:
        await desk.wake(agent, index)
    except NotParkedYet:
        return
    raise AssertionError("the callback counts as delivered, and no other wakes the agent")


async def a_callback_that_comes_before_its_session_is_stored_is_refused_also_if_an_earlier_call_of_its_name_has_failed(
    desk: Desk,
) -> None:
    agent = desk.agent([call("slow", function_call_id="call_0", wrong="1")], [text("ok")])
    await desk.say(agent, "go")
    await refuse_before_parking(desk, agent, 0)


async def a_callback_that_comes_before_its_session_is_stored_is_refused_also_if_an_earlier_call_has_its_name(
    desk: Desk,
) -> None:
    agent = desk.agent([call("slow", function_call_id="call_0", key="1")], [text("ok")])
    await desk.say(agent, "go")
    await desk.wake(agent, 0)
    await refuse_before_parking(desk, agent, 1)


async def an_expired_call_that_had_ended_at_its_start_is_not_taken_for_one_of_an_agent_that_died(desk: Desk) -> None:
    desk.ringback.ends_at_once = True
    agent = desk.agent([call("slow")], [text("ok")])
    await desk.say(agent, "go")
    desk.ringback.expired.add(desk.ringback.started[0]["id"])

    with patch.object(wake_up, "log") as log:
        assert await desk.call_back(agent, 0) is None

    assert log.warning.call_args_list == []


async def a_resumable_app_parks_again_and_again(desk: Desk) -> None:
    desk.is_resumable = True
    await a_run_parks_again_and_again(desk)


async def parallel_calls_continue_once_together(desk: Desk) -> None:
    agent = desk.agent([call("slow", key="1"), call("other", key="2")], [text("ok")])
    await desk.say(agent, "go")

    assert await desk.wake(agent, 0, text="first") is None
    assert await desk.wake(agent, 1, text="second") == "ok"
    assert [each["content"][0]["text"] for each in model_of(agent).responses()] == ["first", "second"]
    assert len(model_of(agent).requests) == len(["the calls", "the answer"])


async def parallel_calls_of_a_resumable_app_continue_once_together(desk: Desk) -> None:
    desk.is_resumable = True
    await parallel_calls_continue_once_together(desk)


async def a_refused_call_beside_a_parked_one_waits_with_it(desk: Desk) -> None:
    agent = desk.agent([call("slow"), call("other", wrong="k")], [text("ok")])
    await desk.say(agent, "go")

    assert await desk.wake(agent, 0) == "ok"
    responses = str(model_of(agent).responses())
    assert "the result" in responses, responses
    assert "'key' is a required property" in responses, responses


async def a_refused_call_beside_a_parked_one_in_a_resumable_app(desk: Desk) -> None:
    desk.is_resumable = True
    await a_refused_call_beside_a_parked_one_waits_with_it(desk)


async def a_tool_of_the_users_own_runs_beside_a_parked_call(desk: Desk) -> None:
    def add(a: int, b: int) -> dict[str, int]:
        """Add."""
        return {"sum": a + b}

    agent = desk.agent([call("slow"), call("add", a=1, b=2)], [text("ok")], tools=[add])
    await desk.say(agent, "go")

    assert await desk.wake(agent, 0) == "ok"
    responses = model_of(agent).responses()
    assert {"sum": 3} in responses, responses
    assert "the result" in str(responses)


async def a_user_who_goes_on_talking_gets_answers_and_the_result_later(desk: Desk) -> None:
    agent = desk.agent([call("slow")], [text("it still runs")], [text("ok")])
    await desk.say(agent, "go")

    assert read_final_text(await desk.say(agent, "is it ready?")) == "it still runs"
    assert model_of(agent).responses()[0]["status"] == "pending"
    assert await desk.wake(agent, 0) == "ok"
    assert "the result" in str(model_of(agent).responses())


async def a_user_of_a_resumable_app_who_goes_on_talking(desk: Desk) -> None:
    desk.is_resumable = True
    await a_user_who_goes_on_talking_gets_answers_and_the_result_later(desk)


async def an_agent_that_took_over_goes_on(desk: Desk) -> None:
    expert = desk.agent([call("slow")], [text("expert ok")], name="expert", description="knows")
    transfer = [call("transfer_to_agent", agent_name="expert")]
    first = LlmAgent(name="first", model=ScriptedModel(script=[transfer]), sub_agents=[expert])
    await desk.say(first, "go")

    assert await desk.wake(first, 0) == "expert ok"
    assert "the result" in str(model_of(expert).responses())


async def a_callback_of_another_app_wakes_nobody(desk: Desk) -> None:
    agent = desk.agent([call("slow")])
    await desk.say(agent, "go")
    started = desk.ringback.started[0]
    desk.ringback.end(started)
    started["client_session_id"] = name_session("another", USER, "s")

    assert await wake(desk.runner(agent), desk.ringback.callback(started), desk.client) is None


edges.run(globals(), Desk)
