"""The plan of a seed: calls, webhooks, and what goes wrong when. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ringback.domain.call import RerunPolicy

HAPPENING_SECONDS: Final = 30.0
"""Calls start within this time."""


class UpstreamKind(StrEnum):
    """How an upstream runs its tools. Each kind uses another driver, and `REPORTED` none."""

    TASK = "task"
    ROUNDS = "rounds"
    PLAIN = "plain"
    REPORTED = "reported"


class ToolEnd(StrEnum):
    """How a tool ends, or what its upstream makes of it."""

    RESULT = "result"
    TOOL_ERROR = "tool_error"
    JSONRPC_ERROR = "upstream_error"
    NONSENSE = "nonsense"
    """The response is no CallToolResult, or no task."""
    SILENCE = "silence"
    """No response, ever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    key: str
    principal: str
    upstream: UpstreamKind
    place: int | None = None
    """The node that gets the first request; None: any."""
    at_seconds: float
    work_seconds: float
    end: ToolEnd = ToolEnd.RESULT
    asks: bool = False
    """The tool asks for input; the client answers after `answer_seconds`."""
    answer_seconds: float = 1.0
    forgets_key: bool = False
    """The client sends no idempotency key, and does not repeat a start whose response was lost."""
    repeats: int = 0
    """How often an acknowledged start is sent again with its key."""
    cancel_after_seconds: float | None = None
    cancels_at_once: bool = False
    """The cancellation does not wait for the upstream, as with the tasks of MCP 2025-11-25."""
    timeout_seconds: float = 500.0
    rerun_policy: RerunPolicy = RerunPolicy.NEVER
    wait_seconds: float = 0.0
    """How long the client holds the request that starts the call."""
    start_delay_seconds: float = 0.0
    """`not_before`, from the start on."""
    session: str | None = None
    """The client_session_id."""
    callback: str | None = None
    """The receiver of the call's own callback."""
    progress_steps: int = 0


class ReceiverTrouble(StrEnum):
    """What a receiver does with callbacks during a trouble."""

    REFUSES = "refuses"
    FAILS = "fails"
    HANGS = "hangs"
    FORGETS_TO_ANSWER = "forgets_to_answer"
    """It accepts the callback, and the response is lost."""
    BUSY = "busy"
    """503 with Retry-After."""
    GONE = "gone"
    """410."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrouble:
    trouble: ReceiverTrouble
    from_seconds: float
    until_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReceiver:
    name: str
    troubles: tuple[PlannedTrouble, ...] = ()
    latency_seconds: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWebhook:
    name: str
    principal: str
    receiver: str
    at_seconds: float = 0.0
    ordered: bool = False
    is_verified: bool = False
    """The webhook is registered as by a model, so its URL needs a proof, and deliveries are held until then."""
    upstream: UpstreamKind | None = None
    """Filters by the upstream of the call."""
    outcomes: tuple[str, ...] | None = None
    hears_progress: bool = False
    hears_past: bool = False
    """The webhook starts at the beginning of the log."""
    removed_at_seconds: float | None = None


class FaultKind(StrEnum):
    KILL = "kill"
    FREEZE = "freeze"
    STOP = "stop"
    """A graceful shutdown, and a restart."""
    PARTITION = "partition"
    """The node does not reach the database."""
    LOSE_RESPONSES = "lose_responses"
    """Units are committed, and the node gets an error."""
    SLOW_STORE = "slow_store"
    LOSE_NOTIFICATIONS = "lose_notifications"
    UPSTREAM_CRASH = "upstream_crash"
    UPSTREAM_HANG = "upstream_hang"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    kind: FaultKind
    node: int = 0
    """Which node; a partition of node -1 is one of the whole cluster."""
    upstream: UpstreamKind = UpstreamKind.TASK
    at_seconds: float
    after_callbacks: int = 1
    """A kill or a freeze hits its node after so many more callbacks: between any two awaits."""
    lasts_seconds: float = 5.0
    """Until the restart, the thaw, or the end of the fault."""
    forgets_tasks: bool = False
    """A crashed upstream has lost its tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    nodes: int = 1
    calls: tuple[PlannedCall, ...] = ()
    receivers: tuple[PlannedReceiver, ...] = ()
    webhooks: tuple[PlannedWebhook, ...] = ()
    faults: tuple[PlannedFault, ...] = ()
    followed: tuple[str, ...] = ()
    """Principals whose event log a reader follows."""
    reruns: float = 0.0
    """The fraction of units of work that the database makes run again."""
    lost_notifications: float = 0.0
    pauses: float = 0.0
    """The fraction of units of work that pause around their statements, while their node goes on."""
    capacity: int = 4
    """Calls that one node runs at one upstream at once: few, so that calls also wait."""
    open_calls_max: int = 100
    """The quota of open calls of each principal."""
    removes_old_rows: bool = True
    """The janitors also remove what has expired. Without erasures no row of a plan is that old."""
    wall_offsets: tuple[float, ...] = field(default_factory=tuple)
    """Seconds by which the wall clock of each node is wrong."""

    @property
    def step_count(self) -> int:
        return len(self.calls) + len(self.webhooks) + len(self.faults) + sum(len(r.troubles) for r in self.receivers)
