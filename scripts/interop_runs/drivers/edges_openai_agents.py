"""What else can happen to parked calls of the OpenAI Agents SDK: refused and expired calls, several runs, leases, restarts."""

import json
import sqlite3
from typing import Any

import edges
import openai_agents_features
from agents import Agent, RunResult, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message
from fake_ringback import UPSTREAM
from openai_agents_desk import OK, Desk, build_agent, call, find_output, outputs, read_error, wake

from ringback.agents import CallState, NotParkedYet
from ringback.agents.openai_agents import DurableRunner, ParkedRunsUnavailable, SQLiteParkedRuns
from ringback.client import Unavailable

set_tracing_disabled(True)


async def a_refused_call_is_an_error_for_the_model_at_once(desk: Desk) -> None:
    runner = desk.runner()
    refused = [call("slow", arguments="{}"), call("other", "call_b", "nonsense")]
    agent, model = await build_agent(runner, refused, OK)

    result = await runner.run(agent, "go", client_session_id="s")

    assert result.final_output == "ok", result
    first, second = outputs(model)
    assert "'key' is a required property" in str(first), first
    assert "was not called" in str(second), second
    assert desk.ringback.started == []


async def arguments_that_are_not_json_are_an_error_for_the_model(desk: Desk) -> None:
    runner = desk.runner()
    agent, model = await build_agent(runner, [call("slow", arguments='{"key": 1e999}')], OK)

    result = await runner.run(agent, "go", client_session_id="s")

    assert result.final_output == "ok", result
    assert "cannot be sent as JSON" in str(outputs(model)[0])


async def a_missing_upstream_is_an_error_for_the_model(desk: Desk) -> None:
    runner = desk.runner()
    agent, model = await build_agent(runner, [call("slow")], OK)
    desk.ringback.is_upstream_missing = True

    result = await runner.run(agent, "go", client_session_id="s")

    assert result.final_output == "ok", result
    assert "There is no upstream 'stage'" in str(outputs(model)[0])


async def a_refused_call_beside_a_parked_one_waits_with_it(desk: Desk) -> None:
    runner = desk.runner()
    agent, model = await build_agent(runner, [call("slow"), call("other", "call_b", "{}")], OK)
    await runner.run(agent, "go", client_session_id="s")

    result = await wake(desk, agent, 0)

    assert result is not None
    assert "the result" in str(outputs(model)[0])
    assert "'key' is a required property" in str(outputs(model)[1])


async def an_expired_call_wakes_its_agent_with_an_error(desk: Desk) -> None:
    runner = desk.runner()
    agent, model = await build_agent(runner, [call("slow")], OK)
    await runner.run(agent, "go", client_session_id="s")
    callback = desk.ringback.callback(desk.ringback.started[0])
    desk.ringback.expired.add(desk.ringback.started[0]["id"])

    assert find_output(await runner.wake(agent, callback)) == "ok"
    assert "has expired" in str(outputs(model))
    assert await runner.wake(agent, callback) is None


async def a_call_that_has_ended_already_does_not_park(desk: Desk) -> None:
    desk.ringback.ends_at_once = True
    runner = desk.runner()
    agent, _ = await build_agent(runner, [call("slow")], OK)

    result = await runner.run(agent, "go", client_session_id="s")

    assert result.final_output == "ok", result
    assert await runner.wake(agent, desk.ringback.callback(desk.ringback.started[0])) is None


async def a_lease_that_cannot_be_ended_does_not_hide_the_result(desk: Desk) -> None:
    class NoRoom(SQLiteParkedRuns):
        async def release(self, run_id: str, token: str) -> None:
            raise ParkedRunsUnavailable(f"No room to end the lease {token} of {run_id}.")

    runner = DurableRunner(desk.ringback.client(), NoRoom(desk.folder / "runs.db"))
    agent, _ = await build_agent(runner, [call("slow")], OK)
    desk.ringback.ends_at_once = True

    result = await runner.run(agent, "go", client_session_id="s")

    assert result.final_output == "ok"


async def a_run_parks_again_and_again(desk: Desk) -> None:
    runner = desk.runner()
    agent, _ = await build_agent(runner, [call("slow")], [call("other", "call_b")], OK)
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
    agents: list[tuple[Agent[Any], ScriptedModel]] = []
    for key in ("1", "2"):
        runner = DurableRunner(desk.ringback.client(), SQLiteParkedRuns(desk.folder / "runs.db"))
        agents.append(await build_agent(runner, [call("slow", arguments=json.dumps({"key": key}))], OK))
        await runner.run(agents[-1][0], "go", client_session_id="s")
    runner = DurableRunner(desk.ringback.client(), SQLiteParkedRuns(desk.folder / "runs.db"))
    await runner.load_tools(UPSTREAM)

    for index in (1, 0):
        started, (agent, model) = desk.ringback.started[index], agents[index]
        desk.ringback.end(started, f"result {index}")
        assert await runner.wake(agent, desk.ringback.callback(started)) is not None
        assert f"result {index}" in str(outputs(model))
        assert await runner.wake(agent, desk.ringback.callback(started)) is None


async def a_person_is_asked_once_although_a_call_beside_the_question_ends(desk: Desk) -> None:
    runner = desk.runner()
    agent, _ = await build_agent(runner, [call("slow"), call("other", "call_b")], OK)
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
    agent, _ = await build_agent(runner, [call("slow"), call("other", "call_b")], OK)
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
    agent, _ = await build_agent(runner, [call("slow")], [sleep], OK, tools=[sleep_until_the_lease_has_lapsed])
    await runner.run(agent, "go", client_session_id="s")
    delivered: list[Any] = []

    async def deliver(result: RunResult) -> None:
        delivered.append(result)

    await read_error(NotParkedYet, wake(desk, agent, 0, deliver=deliver))

    assert delivered == []


async def a_run_that_a_process_continues_is_refused_with_the_seconds_of_its_lease(desk: Desk) -> None:
    runner = desk.runner()
    agent, _ = await build_agent(runner, [call("slow")], OK)
    await runner.run(agent, "go", client_session_id="s")
    with sqlite3.connect(desk.folder / "runs.db") as database:
        database.execute("UPDATE runs SET lease_token = 'of another process', lease_until = 1e12")

    refusal = await read_error(NotParkedYet, wake(desk, agent, 0))

    assert "its lease ends within 60 s" in refusal


async def calls_that_a_dead_process_has_not_started_are_started_by_the_next(desk: Desk) -> None:
    runner = desk.runner()
    agent, _ = await build_agent(runner, [call("slow")], OK)
    desk.ringback.is_down = True
    try:
        await runner.run(agent, "go", client_session_id="s")
    except Unavailable:
        desk.ringback.is_down = False
    assert desk.ringback.started == []

    await desk.runner().start_parked_calls()

    assert find_output(await wake(desk, agent, 0)) == "ok"


async def calls_of_other_runs_are_started_although_those_of_the_first_are_refused(desk: Desk) -> None:
    """The error of the first run ended the start of all others, at each start of the process."""
    runner = desk.runner()
    sessions = {"s1", "s2", "s3"}
    desk.ringback.is_down = True
    for session in sessions:
        agent, _ = await build_agent(runner, [call("slow")])
        await read_error(Unavailable, runner.run(agent, "go", client_session_id=session))
    desk.ringback.is_down = False
    first, *_ = await SQLiteParkedRuns(desk.folder / "runs.db").find_waiting()
    desk.ringback.down_for.add(first.client_session_id)

    await read_error(Unavailable, desk.runner().start_parked_calls())

    assert {each["client_session_id"] for each in desk.ringback.started} == sessions - desk.ringback.down_for


async def a_result_that_was_not_delivered_is_delivered_by_the_next_callback(desk: Desk) -> None:
    runner = desk.runner()
    agent, _ = await build_agent(runner, [call("slow")], OK, [assistant_message("ok again")])
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


edges.run({**globals(), **vars(openai_agents_features)}, Desk)
