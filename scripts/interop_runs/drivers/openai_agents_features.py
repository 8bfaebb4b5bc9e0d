"""What else the OpenAI Agents SDK can do: approvals, agents as tools, handoffs, histories, streams and contexts."""

import json
from dataclasses import dataclass

from agents import Agent, ModelBehaviorError, RunContextWrapper, Runner, UserError, function_tool
from agents.testing import ScriptedModel, assistant_message
from fake_ringback import UPSTREAM
from openai_agents_desk import OK, Desk, build_agent, call, find_output, outputs, read_error, wake


async def an_approval_of_the_users_own_tool_stays_one(desk: Desk) -> None:
    ran: list[str] = []

    @function_tool(needs_approval=True)
    def delete() -> str:
        ran.append("delete")
        return "deleted"

    runner = desk.runner()
    agent, model = await build_agent(runner, [call("slow"), call("delete", "call_b", "{}")], OK, tools=[delete])
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
    agent, _ = await build_agent(runner, [call("slow"), call("delete", "call_b", "{}")], OK, tools=[delete])
    parked = await runner.run(agent, "go", client_session_id="s")

    state = parked.to_state()
    state.approve(next(item for item in parked.interruptions if item.name == "delete"))
    still = await runner.run(agent, state, client_session_id="s")
    assert [item.name for item in still.interruptions] == ["slow"]

    assert find_output(await wake(desk, agent, 0)) == "ok"
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

    assert find_output(await wake(desk, outer, 0)) == "ok"
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
    assert (result.final_output, result.last_agent) == ("expert ok", expert)


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


async def the_history_has_the_whole_conversation(desk: Desk) -> None:
    runner = desk.runner()
    agent, model = await build_agent(runner, [call("slow")], OK, [assistant_message("you are welcome")])
    await runner.run(agent, "go", client_session_id="s")
    await wake(desk, agent, 0)

    await runner.run(agent, "thanks", client_session_id="s")

    assert model.last_call is not None
    kinds = [item.get("type") or item.get("role") for item in model.last_call.input]
    assert kinds == ["user", "function_call", "function_call_output", "message", "user"], kinds


async def a_streamed_run_parks(desk: Desk) -> None:
    runner = desk.runner()
    agent, _ = await build_agent(runner, [call("slow")], OK)
    streamed = Runner.run_streamed(agent, "go")
    async for _ in streamed.stream_events():
        pass

    parked = await runner.park(agent, streamed, client_session_id="s")

    assert parked is streamed
    assert find_output(await wake(desk, agent, 0)) == "ok"


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
    agent, _ = await build_agent(runner, [call("slow")])
    await runner.run(agent, "go", client_session_id="s")

    said = await read_error(ModelBehaviorError, wake(desk, Agent(name="a", model=ScriptedModel()), 0))

    assert said == "Tool slow not found in agent a"


async def a_tool_runs_only_with_the_durable_runner(desk: Desk) -> None:
    runner = desk.runner()
    agent, _ = await build_agent(runner, [call("slow")])
    parked = await Runner.run(agent, "go")
    state = parked.to_state()
    state.approve(parked.interruptions[0])

    assert "DurableRunner.run" in await read_error(UserError, Runner.run(agent, state))
