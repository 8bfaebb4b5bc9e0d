"""Agents that park and wake: one small adapter for each agent framework.

    park   model ──tool call──▶ adapter ──start──▶ Ringback ──tools/call──▶ MCP server
                                   │ the call's id, in the framework's own state
           the run ends; the process may be killed                 │ minutes or days
                                                                   ▼
    wake   callback, or a line of `ringback listen` ──▶ adapter ◀──result── Ringback
                                                           │ the tool's result, in the history
           a new process runs on ◀─────────────────────────┘

    adapter        park                                            wake
    pydantic_ai    CallDeferred; the output is                     agent.run(conversation=…,
                   DeferredToolRequests, with the call's id            deferred_tool_results=…), once all
                   in its metadata                                     parked calls of the run have ended
    langgraph      interrupt(…) in a node with a checkpointer      graph.ainvoke(Command(resume={interrupt: …}))
    openai_agents  needs_approval; the RunState is saved in        RunState.from_string, approve, Runner.run: the tool
                   an SQLite file before the calls start               returns its call's result
    google_adk     a long-running tool responds `pending`, which   runner.run_async(new_message=FunctionResponse(id=…))
                   the session service stores

Each adapter needs its framework (`pip install "ringback[langgraph]"`). What they share needs none:

    agent_calls    AgentCalls: start a call with an idempotency key of the framework's own ids; read how it stands
    call_state     CallState: a result, a tool error, a failure in a sentence for the model, or questions for a person
    parked_runs    runs that wait, in an SQLite file, for frameworks that leave storing them to the user
    google_adk_session, langgraph_thread, openai_agents_tools   what the adapters need to know of their framework
    wake_up        the call that a callback is about; NotParkedYet if it came before the framework had stored its state

A callback is a reason to look, and nothing else of it is used: what happened is read from Ringback, with your API key. So a
repeated, late or forged callback wakes no agent that has nothing to do. Of an expired call Ringback knows only that it was
there; then the callback says whose it is, and the model reads that the result has expired.

Give an agent a callback URL of its own (`callback={"url": …}`), or listen to its sessions only. An adapter cannot distinguish
the call of another agent from one of its own whose state is not stored yet, and refuses its callback for ten minutes.
"""

from ringback.agents.agent_calls import (
    AgentCalls,
    ParkOptions,
    derive_idempotency_key,
    read_call_state,
    read_call_states,
)
from ringback.agents.call_state import CallState, CallStateKind
from ringback.agents.wake_up import (
    AskPerson,
    CallbackForm,
    NotParkedYet,
    WakeUp,
    ask_person,
    parse_wake_up,
    refuse_if_early,
)
from ringback.key_locks import KeyLocks

__all__ = [
    "AgentCalls",
    "AskPerson",
    "CallState",
    "CallStateKind",
    "CallbackForm",
    "KeyLocks",
    "NotParkedYet",
    "ParkOptions",
    "WakeUp",
    "ask_person",
    "derive_idempotency_key",
    "parse_wake_up",
    "read_call_state",
    "read_call_states",
    "refuse_if_early",
]
