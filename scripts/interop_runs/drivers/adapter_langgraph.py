"""The LangGraph agent of scripts/examples/agents, with a scripted model.

AGENT_GRAPH replaces it: `tool node` is a graph whose ToolNode runs all calls of a response in one task; `own nodes` has no
model, and its nodes call the tools.
"""

import json
import operator
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, TypedDict

import adapter_kit as kit
import langgraph_agent as example
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from ringback.agents.langgraph import call_tool, load_tools, wake
from ringback.agents.wake_up import current_time


class ScriptedModel(BaseChatModel):
    """Calls the tools of the prompt. With their results, says what the model reads of them."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_arguments: Any, **_options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_arguments: Any, **_options: Any) -> ChatResult:
        kit.count_model_run()
        return ChatResult(generations=[ChatGeneration(message=respond(messages))])


def respond(messages: Sequence[BaseMessage]) -> AIMessage:
    results = [message for message in messages if isinstance(message, ToolMessage)]
    if results:
        return AIMessage(kit.describe_results([(str(each.text), each.status == "error") for each in results]))
    prompt = next(message for message in messages if isinstance(message, HumanMessage))
    calls = enumerate(json.loads(str(prompt.text)))
    return AIMessage(
        "", tool_calls=[{"name": call["tool"], "args": call["arguments"], "id": f"tool-{i}"} for i, call in calls]
    )


class LangGraphAgent:
    async def ask(self, session: str, prompt: str) -> str:
        return await example.ask(session, prompt) or ""

    async def wake(self, callback: Mapping[str, Any]) -> str:
        return await example.wake_up(callback) or ""

    async def questions(self) -> Sequence[Mapping[str, Any]]:
        """The interrupts of the thread: what an application shows to a person."""
        session = kit.read_lines(kit.SESSION)[0]
        async with example.open_graph() as graph:
            snapshot = await graph.aget_state({"configurable": {"thread_id": session}})
            return [{"id": each.id, **each.value} for each in snapshot.interrupts if "input_requests" in each.value]

    async def answer(self, question: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        session = kit.read_lines(kit.SESSION)[0]
        answers = dict.fromkeys(question["input_requests"], answer)
        return await example.answer_question(session, question["id"], answers) or ""


def build_graph_with_tool_node(tools: Sequence[Any]) -> StateGraph:
    def answer(state: MessagesState) -> Any:
        return {"messages": [ScriptedModel().invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", answer)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder


class Steps(TypedDict):
    messages: list[Any]
    results: Annotated[list[tuple[str, bool]], operator.add]


def build_graph_with_own_nodes() -> StateGraph:
    """Two nodes that call a tool each, at the same time, and one that says what they have read."""

    async def call(state: Steps, config: RunnableConfig, *, index: int) -> Any:
        called = json.loads(state["messages"][0]["content"])[index]
        upstream = os.environ["UPSTREAM"]
        ended = await call_tool(
            example.ringback, upstream, called["tool"], called["arguments"], key=f"step-{index}", config=config
        )
        return {"results": [(json.dumps(ended.result), ended.result is None)]}

    def begin(_: Steps) -> Any:
        kit.count_model_run()
        return {}

    def answer(state: Steps) -> Any:
        kit.count_model_run()
        return {"messages": [AIMessage(kit.describe_results(state["results"]))]}

    builder = StateGraph(Steps)
    builder.add_node("begin", begin)
    builder.add_node("first", partial(call, index=0))
    builder.add_node("second", partial(call, index=1))
    builder.add_node("answer", answer)
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "first")
    builder.add_edge("begin", "second")
    builder.add_edge(["first", "second"], "answer")
    builder.add_edge("answer", END)
    return builder


@asynccontextmanager
async def open_other_graph() -> AsyncGenerator[Any]:
    async with AsyncSqliteSaver.from_conn_string("checkpoints.db") as checkpointer:
        if os.environ["AGENT_GRAPH"] == "own nodes":
            builder = build_graph_with_own_nodes()
        else:
            builder = build_graph_with_tool_node(await load_tools(example.ringback, os.environ["UPSTREAM"]))
        yield builder.compile(checkpointer=checkpointer)


example.model = ScriptedModel()
if os.environ.get("AGENT_GRAPH"):
    example.open_graph = open_other_graph
if os.environ.get("AGENT_LATER"):
    example.wake = partial(wake, clock=lambda: current_time() + timedelta(hours=1))
kit.run(LangGraphAgent())
