"""What else the OpenAI Agents SDK can do with parked calls: approvals of its own, agents as tools, handoffs, refused calls."""

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

import edges
from agents import (
    Agent,
    ModelBehaviorError,
    RunContextWrapper,
    Runner,
    RunResult,
    UserError,
    function_tool,
    set_tracing_disabled,
)
from agents.testing import ScriptedModel, assistant_message
from fake_ringback import UPSTREAM
from openai_agents_desk import Desk, call, outputs, read_error, wake

from ringback.agents import CallState, NotParkedYet
from ringback.agents.openai_agents import DurableRunner, ParkedRunsUnavailable, SQLiteParkedRuns
from ringback.client import Unavailable

set_tracing_disabled(True)


async def a_refused_call_is_an_error_for_the_model_at_once(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel(
        [[call("slow", arguments="{}"), call("other", "call_b", "nonsense")], [assistant_message("ok")]]
    )
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])

    result = await runner.run(agent, "go", client_session_id="s")

    assert result.final_output == "ok", result
    first, second = outputs(model)
    assert "'key' is a required property" in str(first), first
    assert "was not called" in str(second), second
    assert desk.ringback.started == []


async def arguments_that_are_not_json_are_an_error_for_the_model(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow", arguments='{"key": 1e999}')], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])

    result = await runner.run(agent, "go", client_session_id="s")

    assert result.final_output == "ok", result
    assert "cannot be sent as JSON" in str(outputs(model)[0])


async def a_missing_upstream_is_an_error_for_the_model(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    desk.ringback.is_upstream_missing = True

    result = await runner.run(agent, "go", client_session_id="s")

    assert result.final_output == "ok", result
    assert "There is no upstream 'stage'" in str(outputs(model)[0])


async def a_refused_call_beside_a_parked_one_waits_with_it(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow"), call("other", "call_b", "{}")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    await runner.run(agent, "go", client_session_id="s")

    result = await wake(desk, agent, 0)

    assert result is not None
    assert "the result" in str(outputs(model)[0])
    assert "'key' is a required property" in str(outputs(model)[1])


async def an_expired_call_wakes_its_agent_with_an_error(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    await runner.run(agent, "go", client_session_id="s")
    callback = desk.ringback.callback(desk.ringback.started[0])
    desk.ringback.expired.add(desk.ringback.started[0]["id"])

    result = await runner.wake(agent, callback)

    assert result is not None
    assert result.final_output == "ok"
    assert "has expired" in str(outputs(model))
    assert await runner.wake(agent, callback) is None


async def a_call_that_has_ended_already_does_not_park(desk: Desk) -> None:
    desk.ringback.ends_at_once = True
    runner = desk.runner()
    model = ScriptedModel([[call("slow")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])

    result = await runner.run(agent, "go", client_session_id="s")

    assert result.final_output == "ok", result
    assert await runner.wake(agent, desk.ringback.callback(desk.ringback.started[0])) is None


async def a_lease_that_cannot_be_ended_does_not_hide_the_result(desk: Desk) -> None:
    class NoRoom(SQLiteParkedRuns):
        async def release(self, run_id: str, token: str) -> None:
            raise ParkedRunsUnavailable(f"No room to end the lease {token} of {run_id}.")

    runner = DurableRunner(desk.ringback.client(), NoRoom(desk.folder / "runs.db"))
    model = ScriptedModel([[call("slow")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    desk.ringback.ends_at_once = True

    result = await runner.run(agent, "go", client_session_id="s")

    assert result.final_output == "ok"


async def a_run_parks_again_and_again(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow")], [call("other", "call_b")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    await runner.run(agent, "go", client_session_id="s")

    first = await wake(desk, agent, 0)
    assert first is not None
    assert first.interruptions
    assert await wake(desk, agent, 0) is None
    last = await wake(desk, agent, 1)

    assert last is not None
    assert last.final_output == "ok"
    assert await wake(desk, agent, 0) is None


async def two_runs_whose_calls_are_named_alike_get_their_own_results(desk: Desk) -> None:
    """The second run of a session replaced the first one, which nothing woke any more."""
    agents: list[Agent[Any]] = []
    models: list[ScriptedModel] = []
    for key in ("1", "2"):
        runner = DurableRunner(desk.ringback.client(), SQLiteParkedRuns(desk.folder / "runs.db"))
        models.append(ScriptedModel([[call("slow", arguments=json.dumps({"key": key}))], [assistant_message("ok")]]))
        agents.append(Agent(name="a", model=models[-1], tools=[*await runner.load_tools(UPSTREAM)]))
        await runner.run(agents[-1], "go", client_session_id="s")
    runner = DurableRunner(desk.ringback.client(), SQLiteParkedRuns(desk.folder / "runs.db"))
    await runner.load_tools(UPSTREAM)

    for index in (1, 0):
        started = desk.ringback.started[index]
        desk.ringback.end(started, f"result {index}")
        result = await runner.wake(agents[index], desk.ringback.callback(started))
        assert result is not None
        assert f"result {index}" in str(outputs(models[index]))
        assert await runner.wake(agents[index], desk.ringback.callback(started)) is None


async def agents_that_are_tools_and_name_their_calls_alike_get_their_own_results(desk: Desk) -> None:
    """Each got the result of the same call."""
    runner = desk.runner()
    tools = [*await runner.load_tools(UPSTREAM)]
    models = [
        ScriptedModel([[call("slow", arguments=json.dumps({"key": key}))], [assistant_message(f"{key} ok")]])
        for key in ("1", "2")
    ]
    inner = [Agent(name=f"inner{number}", model=model, tools=tools) for number, model in enumerate(models)]
    asked = [call(f"ask{number}", f"call_outer{number}", '{"input": "go"}') for number in range(2)]
    outer_tools = [each.as_tool(f"ask{number}", "asks") for number, each in enumerate(inner)]
    outer = Agent(name="outer", model=ScriptedModel([asked, [assistant_message("ok")]]), tools=outer_tools)
    await runner.run(outer, "go", client_session_id="s")
    assert len(desk.ringback.started) == len(models)

    desk.ringback.end(desk.ringback.started[0], "result 0")
    assert await runner.wake(outer, desk.ringback.callback(desk.ringback.started[0])) is None
    desk.ringback.end(desk.ringback.started[1], "result 1")
    result = await runner.wake(outer, desk.ringback.callback(desk.ringback.started[1]))

    assert result is not None
    read = [str(outputs(model)) for model in models]
    assert ("result 0" in read[0], "result 1" in read[1]) == (True, True), read


async def a_person_is_asked_once_although_a_call_beside_the_question_ends(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow"), call("other", "call_b")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    await runner.run(agent, "go", client_session_id="s")
    asked: list[str] = []

    async def ask(state: CallState) -> None:
        asked.append(state.call_id)

    question = desk.ringback.started[0]
    desk.ringback.ask(question, "r1.1")
    await runner.wake(agent, desk.ringback.callback(question), ask=ask)
    await wake(desk, agent, 1, ask=ask)

    assert asked == [question["id"]]


async def a_wake_starts_no_call_and_reads_results_once_all_calls_have_ended(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow"), call("other", "call_b")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    await runner.run(agent, "go", client_session_id="s")

    assert await wake(desk, agent, 0) is None
    assert desk.ringback.result_reads == 0
    assert await wake(desk, agent, 1) is not None

    assert (desk.ringback.starts, desk.ringback.result_reads) == (2, 2)


async def a_run_whose_lease_another_process_has_taken_delivers_nothing(desk: Desk) -> None:
    @function_tool
    def sleep_until_the_lease_has_lapsed() -> str:
        with sqlite3.connect(desk.folder / "runs.db") as database:
            database.execute("UPDATE runs SET lease_token = 'of another process'")
        return "slept"

    runner = desk.runner()
    sleep = call(sleep_until_the_lease_has_lapsed.name, "call_b", "{}")
    model = ScriptedModel([[call("slow")], [sleep], [assistant_message("ok")]])
    tools = [sleep_until_the_lease_has_lapsed, *await runner.load_tools(UPSTREAM)]
    agent = Agent(name="a", model=model, tools=tools)
    await runner.run(agent, "go", client_session_id="s")
    delivered: list[Any] = []

    async def deliver(result: RunResult) -> None:
        delivered.append(result)

    await read_error(NotParkedYet, wake(desk, agent, 0, deliver=deliver))

    assert delivered == []


async def calls_that_a_dead_process_has_not_started_are_started_by_the_next(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    desk.ringback.is_down = True
    try:
        await runner.run(agent, "go", client_session_id="s")
    except Unavailable:
        desk.ringback.is_down = False
    assert desk.ringback.started == []

    await desk.runner().start_parked_calls()

    result = await wake(desk, agent, 0)
    assert result is not None
    assert result.final_output == "ok"


async def calls_of_other_runs_are_started_although_those_of_the_first_are_refused(desk: Desk) -> None:
    """The error of the first run ended the start of all others, at each start of the process."""
    runner = desk.runner()
    sessions = {"s1", "s2", "s3"}
    desk.ringback.is_down = True
    for session in sessions:
        agent = Agent(name="a", model=ScriptedModel([[call("slow")]]), tools=[*await runner.load_tools(UPSTREAM)])
        await read_error(Unavailable, runner.run(agent, "go", client_session_id=session))
    desk.ringback.is_down = False
    first, *_ = await SQLiteParkedRuns(desk.folder / "runs.db").find_waiting()
    desk.ringback.down_for.add(first.client_session_id)

    await read_error(Unavailable, desk.runner().start_parked_calls())

    assert {each["client_session_id"] for each in desk.ringback.started} == sessions - desk.ringback.down_for


async def an_approval_of_the_users_own_tool_stays_one(desk: Desk) -> None:
    ran: list[str] = []

    @function_tool(needs_approval=True)
    def delete() -> str:
        ran.append("delete")
        return "deleted"

    runner = desk.runner()
    model = ScriptedModel([[call("slow"), call("delete", "call_b", "{}")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[delete, *await runner.load_tools(UPSTREAM)])
    await runner.run(agent, "go", client_session_id="s")

    woken = await wake(desk, agent, 0)
    assert woken is not None
    assert [item.name for item in woken.interruptions] == ["delete"], woken.interruptions
    assert ran == []
    state = woken.to_state()
    state.approve(woken.interruptions[0])
    result = await runner.run(agent, state, client_session_id="s")

    assert result.final_output == "ok", result
    assert ran == ["delete"]
    assert outputs(model)[1] == "deleted"
    assert len(desk.ringback.started) == 1


async def an_approval_before_the_call_has_ended_starts_it_no_second_time(desk: Desk) -> None:
    @function_tool(needs_approval=True)
    def delete() -> str:
        return "deleted"

    runner = desk.runner()
    model = ScriptedModel([[call("slow"), call("delete", "call_b", "{}")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[delete, *await runner.load_tools(UPSTREAM)])
    parked = await runner.run(agent, "go", client_session_id="s")

    state = parked.to_state()
    state.approve(next(item for item in parked.interruptions if item.name == "delete"))
    still = await runner.run(agent, state, client_session_id="s")
    assert [item.name for item in still.interruptions] == ["slow"]
    result = await wake(desk, agent, 0)

    assert result is not None
    assert result.final_output == "ok"
    assert len(desk.ringback.started) == 1


async def an_agent_that_is_a_tool_parks_its_callers_run(desk: Desk) -> None:
    runner = desk.runner()
    tools = [*await runner.load_tools(UPSTREAM)]
    inner_model = ScriptedModel([[call("slow", "call_inner")], [assistant_message("inner ok")]])
    inner = Agent(name="inner", model=inner_model, tools=tools)
    outer_model = ScriptedModel([[call("ask_inner", "call_outer", '{"input": "go"}')], [assistant_message("ok")]])
    outer = Agent(name="outer", model=outer_model, tools=[inner.as_tool("ask_inner", "asks")])
    parked = await runner.run(outer, "go", client_session_id="s")
    assert [item.name for item in parked.interruptions] == ["slow"]

    result = await wake(desk, outer, 0)

    assert result is not None
    assert result.final_output == "ok"
    assert "the result" in json.dumps(outputs(inner_model))
    assert "inner ok" in json.dumps(outputs(outer_model))


async def an_agent_that_took_over_goes_on(desk: Desk) -> None:
    runner = desk.runner()
    expert_model = ScriptedModel([[call("slow")], [assistant_message("expert ok")]])
    expert = Agent(name="expert", model=expert_model, tools=[*await runner.load_tools(UPSTREAM)])
    first = Agent(name="first", model=ScriptedModel([[call("transfer_to_expert", "call_h", "{}")]]), handoffs=[expert])
    await runner.run(first, "go", client_session_id="s")

    result = await wake(desk, first, 0)

    assert result is not None
    assert result.final_output == "expert ok"
    assert result.last_agent is expert


async def a_result_that_was_not_delivered_is_delivered_by_the_next_callback(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow")], [assistant_message("ok")], [assistant_message("ok again")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    await runner.run(agent, "go", client_session_id="s")
    delivered: list[Any] = []

    async def fail(result: RunResult) -> None:
        del result
        raise ConnectionError("the chat is down")

    async def deliver(result: RunResult) -> None:
        delivered.append(result.final_output)

    try:
        await wake(desk, agent, 0, deliver=fail)
    except ConnectionError:
        await wake(desk, agent, 0, deliver=deliver)
    await wake(desk, agent, 0, deliver=deliver)

    assert delivered == ["ok again"]


async def the_history_has_the_whole_conversation(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow")], [assistant_message("ok")], [assistant_message("you are welcome")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    await runner.run(agent, "go", client_session_id="s")
    await wake(desk, agent, 0)

    await runner.run(agent, "thanks", client_session_id="s")

    assert model.last_call is not None
    kinds = [item.get("type") or item.get("role") for item in model.last_call.input]
    assert kinds == ["user", "function_call", "function_call_output", "message", "user"], kinds


async def a_streamed_run_parks(desk: Desk) -> None:
    runner = desk.runner()
    model = ScriptedModel([[call("slow")], [assistant_message("ok")]])
    agent = Agent(name="a", model=model, tools=[*await runner.load_tools(UPSTREAM)])
    streamed = Runner.run_streamed(agent, "go")
    async for _ in streamed.stream_events():
        pass

    parked = await runner.park(agent, streamed, client_session_id="s")

    assert parked is streamed
    result = await wake(desk, agent, 0)
    assert result is not None
    assert result.final_output == "ok"


async def the_users_context_is_the_one_of_the_process_that_wakes(desk: Desk) -> None:
    @dataclass
    class User:
        name: str

    @function_tool
    def who(context: RunContextWrapper[User]) -> str:
        return context.context.name

    runner = desk.runner()
    model = ScriptedModel([[call("slow")], [call("who", "call_b", "{}")], [assistant_message("ok")]])
    agent = Agent[User](name="a", model=model, tools=[who, *await runner.load_tools(UPSTREAM)])
    await runner.run(agent, "go", client_session_id="s", context=User("Ann"))

    result = await wake(desk, agent, 0, context=User("Ann Lee"))

    assert result is not None
    assert outputs(model)[-1] == "Ann Lee", outputs(model)


async def a_process_without_the_tools_says_so(desk: Desk) -> None:
    runner = desk.runner()
    agent = Agent(name="a", model=ScriptedModel([[call("slow")]]), tools=[*await runner.load_tools(UPSTREAM)])
    await runner.run(agent, "go", client_session_id="s")

    said = await read_error(ModelBehaviorError, wake(desk, Agent(name="a", model=ScriptedModel()), 0))

    assert said == "Tool slow not found in agent a"


async def a_tool_runs_only_with_the_durable_runner(desk: Desk) -> None:
    runner = desk.runner()
    agent = Agent(name="a", model=ScriptedModel([[call("slow")]]), tools=[*await runner.load_tools(UPSTREAM)])
    parked = await Runner.run(agent, "go")
    state = parked.to_state()
    state.approve(parked.interruptions[0])

    assert "DurableRunner.run" in await read_error(UserError, Runner.run(agent, state))


edges.run(globals(), Desk)
