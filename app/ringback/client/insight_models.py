"""Responses about insights, client sessions and the history of a call, as frozen values."""

from collections.abc import Mapping
from datetime import datetime

from pydantic import Field

from ringback.client.models import Call, ClientModel, Event, ListPage, OwnerName
from ringback.client.webhook_models import DeliveryDetail


class Latency(ClientModel):
    """Durations in milliseconds. A percentile is up to 60 % above the true value; None without any duration.

    One above 18 days is given as 18 days.
    """

    count: int = 0
    p50_ms: int | None = None
    p95_ms: int | None = None
    p99_ms: int | None = None


class HourInsights(ClientModel):
    """One hour."""

    hour: datetime
    """Its beginning."""
    calls_started: int = 0
    calls_by_outcome: Mapping[str, int] = Field(default_factory=dict)
    """The calls that ended in this hour."""
    call_duration: Latency = Latency()
    """From the last start of a call at its upstream to its end. Calls that were never sent have none."""
    attempts_by_category: Mapping[str, int] = Field(default_factory=dict)
    deliveries_delivered: int = 0
    deliveries_dead: int = 0
    delivery_latency: Latency = Latency()
    """From the creation of a delivery to the receiver's 2xx, the time on hold included."""
    queued_calls_max: int = 0
    """The longest queue of calls that a sample saw, for operators who read all principals."""
    pending_deliveries_max: int = 0


class UpstreamInsights(ClientModel):
    """The calls to one upstream in these hours, of the last 24 at most."""

    upstream: str
    calls_started: int = 0
    calls_by_outcome: Mapping[str, int] = Field(default_factory=dict)
    call_duration: Latency = Latency()


class Insights(ClientModel):
    """What is open now, and what happened in the last hours. Counts of open work end at 10,000."""

    since: datetime
    until: datetime
    is_complete: bool = True
    """False while the service still counts: the hours and upstreams lack some of what happened last."""
    open_calls: Mapping[str, int] = Field(default_factory=dict)
    """By status."""
    queued_calls: int = 0
    """Calls that wait for a runner."""
    scheduled_calls: int = 0
    """Calls that start later. They are working calls, too."""
    open_deliveries: Mapping[str, int] = Field(default_factory=dict)
    """By state."""
    dead_deliveries: int = 0
    """Those that were not sent again, among the newest 10,000 that are stored."""
    failing_webhooks: int = 0
    call_duration: Latency = Latency()
    """Of all these hours."""
    delivery_latency: Latency = Latency()
    hours: tuple[HourInsights, ...] = ()
    """Oldest first, without gaps."""
    upstreams: tuple[UpstreamInsights, ...] = ()
    """Those with calls, the slowest first."""
    paused_upstreams: tuple[str, ...] = ()
    """Those that an operator has paused: their calls wait."""
    leaves_out_others: bool = False
    """Whether your key could read all principals (scope `admin`), and the numbers are those of its own one."""


class ClientSession(ClientModel):
    """A client session, as its calls show it."""

    client_session_id: str
    principal: OwnerName = None
    """The owner, for operators."""
    first_call_at: datetime
    last_call_at: datetime
    last_call_id: str


class SessionInsights(ListPage):
    """A client session: how its calls ended, and a page of them."""

    client_session_id: str
    first_call_at: datetime
    last_call_at: datetime
    call_count: int
    """The newest 5,000 calls are counted."""
    is_complete: bool = True
    """False if the session has more calls than are counted."""
    calls_by_status: Mapping[str, int] = Field(default_factory=dict)
    calls_by_outcome: Mapping[str, int] = Field(default_factory=dict)
    resumed_calls: int = 0
    """Calls for which a client came back."""
    answered_calls: int = 0
    """Other calls that ended while their client waited for them."""
    calls: tuple[Call, ...] = ()
    """Newest first. `RingbackClient.calls(client_session_id=…)` returns all of them."""


class ClientSessionPage(ListPage):
    sessions: tuple[ClientSession, ...]


class CallResume(ClientModel):
    """When the client of a call came back for it."""

    resumed_at: datetime
    surface: str
    """rest_resume | rest_result | mcp_task | mcp_resource | tool"""
    resumes: int = 1
    """How many there were within about a second. The last of 20 also counts all later ones."""


class CallHistory(ClientModel):
    """What happened to a call, from its start to the return of its client."""

    call: Call
    events: tuple[Event, ...] = ()
    """The latest ones, oldest first."""
    deliveries: tuple[DeliveryDetail, ...] = ()
    """The latest ones, oldest first."""
    resumes: tuple[CallResume, ...] = ()
    """Oldest first."""
    resume_count: int = 0
    truncated: bool = False
    """Whether the call has more events or deliveries than these."""
