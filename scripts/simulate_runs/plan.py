"""The plan of a seed: calls, webhooks, and what goes wrong when. Pure."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ringback.domain.call import RerunPolicy

HAPPENING_SECONDS: Final = 30.0
"""Calls start within this time."""


PUBLISHED_EVENT: Final = "order.shipped"
"""The name of all events that publishers publish."""


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
    hears_published: bool = False
    """The webhook also receives the events that publishers publish."""
    hears_past: bool = False
    """The webhook starts at the beginning of the log."""
    removed_at_seconds: float | None = None
    refresh_seconds: float | None = None
    """The webhook is a subscription of an MCP client, which subscribes again after so long: in time, or too late."""


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
    LOSE_LISTENER = "lose_listener"
    """The node gets no notifications of other nodes until it listens again, and knows that it has lost some."""
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


class ActionKind(StrEnum):
    """What operators and owners do while calls run."""

    PAUSE = "pause"
    DRAIN = "drain"
    CANCEL_SESSION = "cancel_session"
    REDELIVER = "redeliver"
    ROTATE_SECRET = "rotate_secret"  # noqa: S105 - no secret
    ERASE_CALL = "erase_call"
    ERASE_SESSION = "erase_session"
    ERASE_PRINCIPAL = "erase_principal"


ERASURES: Final = frozenset({ActionKind.ERASE_CALL, ActionKind.ERASE_SESSION, ActionKind.ERASE_PRINCIPAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAction:
    kind: ActionKind
    principal: str
    at_seconds: float
    upstream: UpstreamKind = UpstreamKind.TASK
    lasts_seconds: float = 10.0
    """Until a paused or drained upstream is resumed."""
    session: str = "session-1"
    key: str | None = None
    """The call that is erased."""
    webhook: str | None = None
    """The webhook whose secret is rotated."""

    def erases(self, call: PlannedCall) -> bool:
        if self.kind not in ERASURES or call.principal != self.principal:
            return False
        if self.kind is ActionKind.ERASE_CALL:
            return call.key == self.key
        return self.kind is ActionKind.ERASE_PRINCIPAL or call.session == self.session


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLogin:
    """An upstream that refuses calls until a user signs in. The tokens are shared, or each principal has its own."""

    upstream: UpstreamKind
    at_seconds: float
    """When every owner signs in for the first time."""
    is_shared: bool = True
    revoked_at_seconds: float | None = None
    """The upstream refuses the first tokens from then on, also in the middle of a call; a second login follows."""
    login_seconds: float = 10.0
    """Between the revocation and the second login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPublisher:
    """A client with an API key of its own, which publishes events one after the other, and rotates its key in between."""

    name: str
    principal: str
    at_seconds: float
    events: int = 3
    pause_seconds: float = 1.0
    """Between two events."""
    repeats: bool = False
    """Each acknowledged event is published again with its id."""
    rotates_after: int | None = None
    """The key is rotated after so many events."""


class ReaderKind(StrEnum):
    POLL = "poll"
    """events/poll for the events that publishers publish."""
    STREAM = "stream"
    """A stream of the whole log, as over SSE. Its client connects again with its cursor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReader:
    kind: ReaderKind
    principal: str
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    nodes: int = 1
    calls: tuple[PlannedCall, ...] = ()
    receivers: tuple[PlannedReceiver, ...] = ()
    webhooks: tuple[PlannedWebhook, ...] = ()
    faults: tuple[PlannedFault, ...] = ()
    actions: tuple[PlannedAction, ...] = ()
    logins: tuple[PlannedLogin, ...] = ()
    """At most one for an upstream."""
    followed: tuple[str, ...] = ()
    """Principals whose event log a reader follows."""
    publishers: tuple[PlannedPublisher, ...] = ()
    readers: tuple[PlannedReader, ...] = ()
    resealed_at_seconds: float | None = None
    """From then on processes seal with another key. The nodes restart one after the other, and reseal what is stored."""
    reruns: float = 0.0
    """The fraction of units of work that the database makes run again."""
    lost_notifications: float = 0.0
    pauses: float = 0.0
    """The fraction of units of work that pause around their statements, while their node goes on."""
    capacity: int = 4
    """Calls that one node runs at one upstream at once: few, so that calls also wait."""
    open_calls_max: int = 100
    """The quota of open calls of each principal."""
    wall_offsets: tuple[float, ...] = field(default_factory=tuple)
    """Seconds by which the wall clock of each node is wrong."""

    @property
    def step_count(self) -> int:
        parts = (self.calls, self.webhooks, self.faults, self.actions, self.logins, self.publishers, self.readers)
        return sum(map(len, parts)) + sum(len(each.troubles) for each in self.receivers)
