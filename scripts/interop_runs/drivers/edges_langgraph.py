"""What else LangGraph can do with parked calls: interrupts of its own, breakpoints, questions, files in results."""

import asyncio
import logging
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import edges
from fake_ringback import UPSTREAM, FakeRingback
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import Field

from ringback.agents.call_state import CallState
from ringback.agents.langgraph import load_tools, wake
from ringback.agents.wake_up import NotParkedYet, current_time

CONFIG: Any = {"configurable": {"thread_id": "session-7"}}


class ScriptedModel(BaseChatModel):
    script: list[AIMessage]
    requests: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_arguments: Any, **_options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_arguments: Any, **_options: Any) -> ChatResult:
        self.requests.append(messages)
        return ChatResult(generations=[ChatGeneration(message=self.script[len(self.requests) - 1])])


class HangingModel(ScriptedModel):
    """Does not respond, as for a process that is killed in the model's turn."""

    script: list[AIMessage] = Field(default_factory=list)
    is_asked: asyncio.Event = Field(default_factory=asyncio.Event)

    async def _agenerate(self, *_arguments: Any, **_options: Any) -> ChatResult:
        self.is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError


class Desk:
    """A fake Ringback, a checkpointer, and graphs with scripted models."""

    def __init__(self, folder: Path) -> None:
        del folder
        self.ringback = FakeRingback()
        self.client = self.ringback.client()
        self.checkpointer = InMemorySaver()
        self.model = ScriptedModel(script=[])

    async def graph(self, *script: AIMessage, tools: Sequence[Any] = (), **options: Any) -> Any:
        self.model = ScriptedModel(script=list(script))
        loaded = await load_tools(self.client, UPSTREAM, accepts_input=True)
        return create_agent(self.model, [*loaded, *tools], checkpointer=self.checkpointer, **options)

    async def ask(self, graph: Any) -> Any:
        return await graph.ainvoke({"messages": [{"role": "user", "content": "go"}]}, CONFIG)

    async def wake(self, graph: Any, index: int, **ending: Any) -> Any:
        started = self.ringback.started[index]
        if started["status"] == "working":
            self.ringback.end(started, **ending)
        return await self.call_back(graph, index)

    async def call_back(self, graph: Any, index: int) -> Any:
        return await wake(graph, self.ringback.callback(self.ringback.started[index]), self.client)

    @property
    def results(self) -> list[ToolMessage]:
        """The tools' results in the model's last request."""
        return [message for message in self.model.requests[-1] if isinstance(message, ToolMessage)]


def calls(*tools: str, **arguments: Any) -> AIMessage:
    args = arguments or {"key": "k"}
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"{name}-{i}"} for i, name in enumerate(tools)])


DONE = AIMessage("done")


@contextmanager
def recorded_warnings() -> Generator[list[str]]:
    """The warnings of the adapter."""
    texts: list[str] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    recorder = Recorder(logging.WARNING)
    logger = logging.getLogger("ringback.agents")
    logger.addHandler(recorder)
    try:
        yield texts
    finally:
        logger.removeHandler(recorder)


async def refused_arguments_go_back_to_the_model(desk: Desk) -> None:
    graph = await desk.graph(calls("slow", wrong="x"), DONE)

    state = await desk.ask(graph)

    assert state["messages"][-1].text == "done"
    assert desk.results[0].status == "error"
    assert "'key' is a required property" in desk.results[0].text
    assert desk.ringback.started == []


async def arguments_that_are_not_json_go_back_to_the_model(desk: Desk) -> None:
    graph = await desk.graph(calls("slow", key="\ud800"), DONE)

    state = await desk.ask(graph)

    assert state["messages"][-1].text == "done"
    assert "contains half a character" in desk.results[0].text


async def a_missing_upstream_is_an_error_for_the_model(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE)
    desk.ringback.is_upstream_missing = True

    state = await desk.ask(graph)

    assert state["messages"][-1].text == "done"
    assert desk.results[0].status == "error"
    assert "There is no upstream 'stage'" in desk.results[0].text


async def a_result_is_read_once(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE)
    await desk.ask(graph)

    await desk.wake(graph, 0)

    assert desk.ringback.result_reads == 1


async def an_expired_call_wakes_its_agent_with_an_error(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE)
    await desk.ask(graph)
    desk.ringback.expired.add(desk.ringback.started[0]["id"])

    state = await desk.call_back(graph, 0)

    assert state["messages"][-1].text == "done"
    assert "has expired" in desk.results[0].text
    assert await desk.call_back(graph, 0) is None


async def a_call_that_has_ended_already_does_not_park(desk: Desk) -> None:
    desk.ringback.ends_at_once = True
    graph = await desk.graph(calls("slow"), DONE)

    state = await desk.ask(graph)

    assert state["messages"][-1].text == "done"
    assert await desk.call_back(graph, 0) is None


async def an_expired_call_that_had_ended_at_its_start_is_not_taken_for_one_of_an_agent_that_died(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE)
    desk.ringback.ends_at_once = True
    await desk.ask(graph)
    desk.ringback.expired.add(desk.ringback.started[0]["id"])

    with recorded_warnings() as warnings:
        assert await desk.call_back(graph, 0) is None

    assert warnings == []


async def a_thread_parks_again_and_again(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), AIMessage("", tool_calls=calls("other", "other").tool_calls[1:]), DONE)
    await desk.ask(graph)

    first = await desk.wake(graph, 0)
    assert first["__interrupt__"]
    last = await desk.wake(graph, 1)

    assert last["messages"][-1].text == "done"
    assert await desk.call_back(graph, 0) is None
    assert await desk.call_back(graph, 1) is None
    assert len(desk.model.requests) == len(desk.model.script)


async def a_persons_interrupt_beside_a_parked_call_stays_one(desk: Desk) -> None:
    @tool
    def approve() -> str:
        """Asks a person."""
        return f"approved: {interrupt('may I?')}"

    graph = await desk.graph(calls("slow", "approve"), DONE, tools=[approve])
    await desk.ask(graph)

    waiting = await desk.wake(graph, 0)
    assert [each.value for each in waiting["__interrupt__"]] == ["may I?"]
    assert await desk.call_back(graph, 0) is None
    resume = {waiting["__interrupt__"][0].id: "yes"}
    state = await graph.ainvoke(Command(resume=resume), CONFIG)

    assert state["messages"][-1].text == "done"
    assert [message.text for message in desk.results] == ["the result", "approved: yes"]


async def a_breakpoint_of_the_graph_stays_one(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE, interrupt_before=["model"])
    await desk.ask(graph)
    await graph.ainvoke(None, CONFIG)

    await desk.wake(graph, 0)
    assert len(desk.model.requests) == 1
    assert await desk.call_back(graph, 0) is None

    assert len(desk.model.requests) == 1
    state = await graph.ainvoke(None, CONFIG)
    assert state["messages"][-1].text == "done"


async def an_answer_that_ringback_refuses_is_asked_for_again(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE)
    await desk.ask(graph)
    desk.ringback.ask(desk.ringback.started[0], "r1.1")

    asked = (await desk.call_back(graph, 0))["__interrupt__"][0]
    assert asked.value["input_requests"]["r1.1"]["params"]["message"] == "Which branch?"
    assert await desk.call_back(graph, 0) is None
    again = await graph.ainvoke(Command(resume={asked.id: {"r1.1": {"content": {}}}}), CONFIG)
    problem = again["__interrupt__"][0]
    assert "'action' is a required property" in problem.value["problem"]
    answer = {"action": "accept", "content": {"branch": "main"}}
    waiting = await graph.ainvoke(Command(resume={problem.id: {"r1.1": answer}}), CONFIG)

    assert "input_requests" not in waiting["__interrupt__"][0].value
    assert desk.ringback.answers == {"r1.1": answer}
    state = await desk.wake(graph, 0)
    assert state["messages"][-1].text == "done"


async def a_tool_that_asks_twice_is_answered_twice(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE)
    await desk.ask(graph)
    answer = {"action": "accept", "content": {}}

    for key in ("r1.1", "r2.1"):
        desk.ringback.ask(desk.ringback.started[0], key)
        asked = (await desk.call_back(graph, 0))["__interrupt__"][0]
        assert list(asked.value["input_requests"]) == [key]
        await graph.ainvoke(Command(resume={asked.id: {key: answer}}), CONFIG)

    assert desk.ringback.answers == {"r1.1": answer, "r2.1": answer}
    state = await desk.wake(graph, 0)
    assert state["messages"][-1].text == "done"
    assert desk.results[0].text == "the result"


async def a_question_whose_call_ends_meanwhile_is_no_longer_asked(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE)
    await desk.ask(graph)
    started = desk.ringback.started[0]
    desk.ringback.ask(started, "r1.1")
    await desk.call_back(graph, 0)

    started.update(status="failed", outcome="timed_out", input_requests={})
    state = await desk.call_back(graph, 0)

    assert state["messages"][-1].text == "done"
    assert desk.results[0].status == "error"
    assert "time limit" in desk.results[0].text


async def results_are_content_blocks_and_an_artifact(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE)
    await desk.ask(graph)
    started = desk.ringback.started[0]
    desk.ringback.end(started)
    result = desk.ringback.results[started["id"]]
    result["structuredContent"] = {"primes": 3}
    result["content"] = [
        {"type": "text", "text": "three"},
        {"type": "image", "data": "aaaa", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a", "blob": "bbbb", "mimeType": "application/pdf"}},
        {"type": "resource_link", "uri": "file:///b", "name": "b"},
    ]

    await desk.call_back(graph, 0)

    assert desk.results[0].content == [
        {"type": "text", "text": "three"},
        {"type": "image", "base64": "aaaa", "mime_type": "image/png"},
        {"type": "file", "base64": "bbbb", "mime_type": "application/pdf"},
        {"type": "text", "text": "file:///b"},
    ]
    assert desk.results[0].artifact == {"structured_content": {"primes": 3}}


async def a_message_while_a_call_is_parked_drops_the_call_and_wake_says_so(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), AIMessage("hello"))
    await desk.ask(graph)
    await graph.ainvoke({"messages": [{"role": "user", "content": "are you there?"}]}, CONFIG)
    with recorded_warnings() as warnings:
        assert await desk.wake(graph, 0) is None

    (warning,) = warnings
    assert desk.ringback.started[0]["id"] in warning
    assert "on_dropped" in warning
    assert len(desk.model.requests) == len(desk.model.script)


async def a_dropped_call_reaches_on_dropped_with_its_result(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), AIMessage("hello"), DONE)
    await desk.ask(graph)
    await graph.ainvoke({"messages": [{"role": "user", "content": "are you there?"}]}, CONFIG)
    started = desk.ringback.started[0]
    desk.ringback.end(started)

    async def send_as_message(state: CallState) -> Any:
        assert state.result is not None
        text = state.result["content"][0]["text"]
        return await graph.ainvoke({"messages": [{"role": "user", "content": f"{state.tool}: {text}"}]}, CONFIG)

    state = await wake(graph, desk.ringback.callback(started), desk.client, on_dropped=send_as_message)

    assert state["messages"][-1].text == "done"
    assert desk.model.requests[-1][-1].text == "slow: the result"


async def a_dropped_call_is_found_beside_one_that_was_parked_later(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), AIMessage("", tool_calls=calls("slow", "other").tool_calls[1:]), DONE)
    await desk.ask(graph)
    await desk.ask(graph)
    with recorded_warnings() as warnings:
        assert await desk.wake(graph, 0) is None
        state = await desk.wake(graph, 1)

    assert len(warnings) == 1
    assert state["messages"][-1].text == "done"


async def a_call_whose_result_was_used_is_not_dropped_by_a_later_message(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE, AIMessage("hello"))
    await desk.ask(graph)
    await desk.wake(graph, 0)
    await desk.ask(graph)
    with recorded_warnings() as warnings:
        assert await desk.call_back(graph, 0) is None

    assert warnings == []


async def a_thread_that_a_process_runs_is_refused_until_a_stated_time(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"))
    await desk.ask(graph)
    desk.ringback.end(desk.ringback.started[0])
    hanging = HangingModel()
    other = create_agent(hanging, await load_tools(desk.client, UPSTREAM), checkpointer=desk.checkpointer)
    running = asyncio.create_task(other.ainvoke(Command(resume="look"), CONFIG))
    await hanging.is_asked.wait()
    graph = await desk.graph(DONE)

    problem = ""
    try:
        await desk.call_back(graph, 0)
    except NotParkedYet as refused:
        problem = str(refused)
    until = datetime.fromisoformat(re.findall(r"the first callback after (\S+) continues it", problem)[0])
    assert timedelta(minutes=9) < until - current_time() <= timedelta(minutes=10)

    callback = desk.ringback.callback(desk.ringback.started[0])
    state = await wake(graph, callback, desk.client, clock=lambda: until + timedelta(seconds=1))
    assert state["messages"][-1].text == "done"
    running.cancel()


async def a_graph_without_a_thread_says_what_to_do(desk: Desk) -> None:
    graph = await desk.graph(calls("slow"), DONE)
    graph.checkpointer = None

    problem = ""
    try:
        await graph.ainvoke({"messages": [{"role": "user", "content": "go"}]})
    except ValueError as raised:
        problem = str(raised)

    assert "checkpointer" in problem


edges.run(globals(), Desk)
