"""Tool calls that outlive the process that requested them: request, forget, join from anywhere.

    caller ──▶ call_runner ──▶ target ──▶ ringback_target    a Ringback service, over REST
       │            │             └─────▶ mcp_target         an MCP server, over the SDK (`direct`)
       │            └──▶ local_call ──▶ journal ──▶ state    memory, SQLite (`sqlite_state`), Redis (`redis_state`), yours
       └──▶ joins, handle, outcomes, errors

    handle        names a call: plain data to keep anywhere
    record        what the state holds of a call: from this any process continues it
    local_call    a call in this process: its joins, and its writes to the state
    call_runner   the task that follows a call while a join waits
    runner_registry   the runners of one caller
    joins         the waits for the end of one call or of several
    clock         the clock that tests replace, and pauses between attempts
    conformance   checks a state manager of your own

A record is written before anything is sent, and again when the target has said what finds the call again; only then does the
request return its handle. Each write is a compare-and-set. What the state holds is the truth; handles are snapshots.
"""

from ringback.client.durable.caller import DurableCaller
from ringback.client.durable.clock import DurableClock
from ringback.client.durable.direct.server import AnswerInput
from ringback.client.durable.errors import (
    CallCancelled,
    CallFailed,
    CallNotStarted,
    DurableCallError,
    IdempotencyConflict,
    InputRequired,
    NotRejoinable,
    StartUnknown,
    StateConflict,
    StateUnavailable,
    UnknownHandle,
)
from ringback.client.durable.handle import CallHandle, CallKind
from ringback.client.durable.joins import OnProgress
from ringback.client.durable.mcp_target import McpCommandTarget, McpTarget
from ringback.client.durable.outcomes import CallSnapshot, JoinedCall
from ringback.client.durable.redis_state import RedisRequestState
from ringback.client.durable.ringback_target import RingbackTarget
from ringback.client.durable.sqlite_state import SQLiteRequestState
from ringback.client.durable.state import MemoryRequestState, RequestStateManager, StoredState

__all__ = [
    "AnswerInput",
    "CallCancelled",
    "CallFailed",
    "CallHandle",
    "CallKind",
    "CallNotStarted",
    "CallSnapshot",
    "DurableCallError",
    "DurableCaller",
    "DurableClock",
    "IdempotencyConflict",
    "InputRequired",
    "JoinedCall",
    "McpCommandTarget",
    "McpTarget",
    "MemoryRequestState",
    "NotRejoinable",
    "OnProgress",
    "RedisRequestState",
    "RequestStateManager",
    "RingbackTarget",
    "SQLiteRequestState",
    "StartUnknown",
    "StateConflict",
    "StateUnavailable",
    "StoredState",
    "UnknownHandle",
]
