"""What else Pydantic AI can do with parked calls: approvals, tools of its own, several servers, files in results."""

import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import edges
from fake_ringback import UPSTREAM, FakeRingback
from pydantic_ai import Agent, AgentRunResult, BinaryContent, DeferredToolRequests, Tool
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import InMemoryConversationStore
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ringback.agents import AgentCalls, CallState, NotParkedYet
from ringback.agents.pydantic_ai import RingbackToolset, collect_results, wake

SESSION = "session-7"
PIXEL = base64.b64encode(b"\x89PNG").decode()


class Desk:
    """A fake Ringback, a store of Pydantic AI, and agents with scripted models."""

    def __init__(self, folder: Path) -> None:
        del folder
        self.ringback = FakeRingback()
        self.client = self.ringback.client()
        self.store = InMemoryConversationStore()
        self.asked: list[str] = []
        self.read: list[Any] = []
        """The contents of the tools' results that the model was given, and of its retry prompts."""

    def agent(self, *script: Sequence[Any], tools: Sequence[Any] = (), upstreams: Sequence[str] = (UPSTREAM,)) -> Any:
        toolsets = [RingbackToolset(self.client, upstream).prefixed(upstream) for upstream in upstreams]
        model = FunctionModel(self._build_model(script))
        return Agent(model, toolsets=toolsets, tools=tools, output_type=[str, DeferredToolRequests])

    def _build_model(self, script: Sequence[Sequence[Any]]) -> Callable[[list[ModelMessage], AgentInfo], ModelResponse]:
        responses = iter(script)

        def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            del info
            last = messages[-1]
            assert isinstance(last, ModelRequest)
            results = [part for part in last.parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
            self.read += [part.content for part in results]
            return ModelResponse(parts=list(next(responses)))

        return respond

    async def ask(self, agent: Any) -> AgentRunResult[Any]:
        result = await agent.run("go", conversation=Conversation(conversation_id=SESSION))
        await self.store.save(result)
        return result

    async def wake(self, agent: Any, index: int, **ending: Any) -> AgentRunResult[Any] | None:
        started = self.ringback.started[index]
        if started["status"] == "working":
            self.ringback.end(started, **ending)
        return await wake(agent, self.store, self.ringback.callback(started), self.client, ask=self.show_question)

    async def show_question(self, state: CallState) -> None:
        self.asked.append(state.call_id)


def call(tool: str = "slow", upstream: str = UPSTREAM, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(f"{upstream}_{tool}", arguments or {"key": "k"}, tool_call_id=f"{tool}-{upstream}")


async def refused_arguments_go_back_to_the_model(desk: Desk) -> None:
    agent = desk.agent([call("slow", wrong="x")], [call("slow", key="k")])

    result = await desk.ask(agent)

    assert isinstance(result.output, DeferredToolRequests)
    assert "'key' is a required property" in str(desk.read)
    assert len(desk.ringback.started) == 1


async def arguments_that_are_not_json_go_back_to_the_model(desk: Desk) -> None:
    agent = desk.agent([call("slow", key=float("nan"))], [call("slow", key="k")])

    result = await desk.ask(agent)

    assert isinstance(result.output, DeferredToolRequests)
    assert "cannot be sent as JSON" in str(desk.read)


async def a_missing_upstream_is_an_error_for_the_model(desk: Desk) -> None:
    agent = desk.agent([call("slow")], [TextPart("done")])
    desk.ringback.is_upstream_missing = True

    result = await desk.ask(agent)

    assert result.output == "done"
    assert "There is no upstream 'stage'" in str(desk.read)


async def a_person_is_asked_once_although_a_call_beside_the_question_ends(desk: Desk) -> None:
    agent = desk.agent([call(), call("other")], [TextPart("done")])
    await desk.ask(agent)
    question = desk.ringback.started[0]
    desk.ringback.ask(question, "r1.1")

    assert await desk.wake(agent, 0) is None
    assert await desk.wake(agent, 1) is None

    assert desk.asked == [question["id"]]


async def results_are_read_once_all_calls_have_ended(desk: Desk) -> None:
    agent = desk.agent([call(), call("other")], [TextPart("done")])
    await desk.ask(agent)

    await desk.wake(agent, 0)
    assert desk.ringback.result_reads == 0
    assert await desk.wake(agent, 1) is not None

    assert desk.ringback.result_reads == len(desk.ringback.started)


async def an_expired_call_wakes_its_agent_with_an_error(desk: Desk) -> None:
    agent = desk.agent([call()], [TextPart("done")])
    await desk.ask(agent)
    callback = desk.ringback.callback(desk.ringback.started[0])
    desk.ringback.expired.add(desk.ringback.started[0]["id"])

    result = await wake(agent, desk.store, callback, desk.client)

    assert result is not None
    assert result.output == "done"
    assert "has expired" in str(desk.read)
    assert await wake(agent, desk.store, callback, desk.client) is None


async def a_call_that_has_ended_already_does_not_park(desk: Desk) -> None:
    desk.ringback.ends_at_once = True
    agent = desk.agent([call()], [TextPart("done")])

    result = await desk.ask(agent)

    assert (result.output, desk.read) == ("done", ["the result"])
    assert await desk.wake(agent, 0) is None


async def a_conversation_parks_again_and_again(desk: Desk) -> None:
    agent = desk.agent([call()], [call("other")], [TextPart("done")])
    await desk.ask(agent)

    first = await desk.wake(agent, 0)
    assert first is not None
    assert isinstance(first.output, DeferredToolRequests)
    last = await desk.wake(agent, 1)

    assert last is not None
    assert last.output == "done"
    assert await desk.wake(agent, 0) is None
    assert await desk.wake(agent, 1) is None


async def a_callback_that_comes_before_its_conversation_is_saved_is_refused_also_if_an_earlier_call_has_its_name(
    desk: Desk,
) -> None:
    """Some models name the first call of every response alike. The result of the earlier one counted as that of this call."""
    agent = desk.agent([call(key="1")], [TextPart("done")])
    await desk.ask(agent)
    await desk.wake(agent, 0)
    await AgentCalls(desk.client, UPSTREAM).park(
        "slow", {"key": "2"}, client_session_id=SESSION, tool_call_id=call().tool_call_id
    )

    try:
        await desk.wake(agent, 1)
    except NotParkedYet:
        return
    raise AssertionError("the callback counts as delivered, and no other wakes the agent")


async def a_callback_that_comes_before_its_conversation_is_saved_is_refused_also_if_an_earlier_call_of_its_name_has_failed(
    desk: Desk,
) -> None:
    """The error of the earlier call counted as the result of this one: nothing said of which call it was."""
    agent = desk.agent([call(key="1")], [TextPart("done")])
    await desk.ask(agent)
    await desk.wake(agent, 0, text="it failed", is_error=True)
    await AgentCalls(desk.client, UPSTREAM).park(
        "slow", {"key": "2"}, client_session_id=SESSION, tool_call_id=call().tool_call_id
    )

    assert await desk.wake(agent, 0) is None
    try:
        await desk.wake(agent, 1)
    except NotParkedYet:
        return
    raise AssertionError("the callback counts as delivered, and no other wakes the agent")


async def calls_to_several_servers_wait_for_each_other(desk: Desk) -> None:
    agent = desk.agent([call(), call(upstream="second")], [TextPart("done")], upstreams=[UPSTREAM, "second"])
    await desk.ask(agent)

    assert await desk.wake(agent, 1) is None
    last = await desk.wake(agent, 0)

    assert last is not None
    assert desk.read == ["the result", "the result"]


async def a_tool_of_the_agent_beside_a_parked_call_runs_once(desk: Desk) -> None:
    ran: list[str] = []

    def note() -> str:
        ran.append("note")
        return "noted"

    agent = desk.agent([call(), ToolCallPart("note", {})], [TextPart("done")], tools=[note])
    await desk.ask(agent)
    result = await desk.wake(agent, 0)

    assert result is not None
    assert ran == ["note"]
    assert sorted(desk.read) == ["noted", "the result"]


async def an_approval_beside_a_parked_call_stays_one(desk: Desk) -> None:
    agent = desk.agent(
        [call(), ToolCallPart("delete", {}, tool_call_id="delete")],
        [TextPart("done")],
        tools=[Tool(lambda: "deleted", name="delete", requires_approval=True)],
    )
    await desk.ask(agent)
    assert await desk.wake(agent, 0) is None

    conversation = await desk.store.load(SESSION)
    assert conversation is not None
    assert conversation.deferred_tool_requests is not None
    results = await collect_results(conversation.deferred_tool_requests, desk.client)
    assert results is not None
    results.approvals["delete"] = True
    result = await agent.run(conversation=conversation, deferred_tool_results=results)

    assert result.output == "done"
    assert sorted(desk.read) == ["deleted", "the result"]


async def results_are_values_as_mcp_toolset_makes_them(desk: Desk) -> None:
    agent = desk.agent([call()], [TextPart("done")])
    await desk.ask(agent)
    started = desk.ringback.started[0]
    desk.ringback.end(started)
    desk.ringback.results[started["id"]]["content"] = [
        {"type": "text", "text": json.dumps({"primes": 3})},
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        {"type": "audio", "data": "not base64!", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "embedded"}},
        {"type": "resource_link", "uri": "file:///b", "name": "b"},
        {"type": "of a later version"},
    ]

    await wake(agent, desk.store, desk.ringback.callback(started), desk.client)

    value, image, broken, embedded, link, unknown = desk.read[0]
    assert value == {"primes": 3}
    assert isinstance(image, BinaryContent)
    assert image.is_image
    assert "not base64" in broken
    assert (embedded, link, unknown) == ("embedded", "file:///b", {"type": "of a later version"})


async def structured_content_is_unwrapped(desk: Desk) -> None:
    agent = desk.agent([call()], [TextPart("done")])
    await desk.ask(agent)
    started = desk.ringback.started[0]
    desk.ringback.end(started)
    desk.ringback.results[started["id"]]["structuredContent"] = {"result": [2, 3, 5]}

    await wake(agent, desk.store, desk.ringback.callback(started), desk.client)

    assert desk.read == [[2, 3, 5]]


edges.run(globals(), Desk)
