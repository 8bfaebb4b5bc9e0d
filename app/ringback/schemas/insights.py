"""What happened hour by hour, what is open now, and client sessions."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.cursor import Page
from ringback.domain.delivery import DeliveryState
from ringback.domain.insights import (
    OVERVIEW_HOURS_MAX,
    ClientSession,
    InsightsOverview,
    LatencyHistogram,
)
from ringback.schemas.calls import CallView
from ringback.schemas.fields import (
    NEXT_CURSOR_DESCRIPTION,
    OWNER_DESCRIPTION,
    PAGE_SIZE_DEFAULT,
    Cursor,
    Instant,
    OmittedIfNone,
    PageSize,
    PrincipalQueryParams,
    ResponseBody,
)
from ringback.services.insights.sessions import SessionInsights


class InsightsQuery(PrincipalQueryParams):
    hours: Annotated[
        int,
        Field(
            ge=1,
            le=OVERVIEW_HOURS_MAX,
            description="How many hours the response has. The current one, which is not over, is the last.",
        ),
    ] = 24


class SessionListQuery(PrincipalQueryParams):
    limit: PageSize = PAGE_SIZE_DEFAULT
    cursor: Cursor | None = None


class LatencyView(ResponseBody):
    """Durations in milliseconds. A percentile is the upper bound of its histogram's bucket, up to 60 % above the true value.

    One above 18 days is given as 18 days.
    """

    count: int
    p50_ms: int | None = Field(description="Null without any duration.")
    p95_ms: int | None
    p99_ms: int | None

    @classmethod
    def from_histogram(cls, histogram: LatencyHistogram) -> Self:
        p50, p95, p99 = (histogram.percentile_ms(share) for share in (0.5, 0.95, 0.99))
        return cls(count=histogram.total, p50_ms=p50, p95_ms=p95, p99_ms=p99)


Latency = Annotated[LatencyView, BeforeValidator(LatencyView.from_histogram)]
"""A view that is made of a histogram."""


class HourView(ResponseBody):
    """One hour."""

    hour: Instant = Field(description="Its beginning.")
    calls_started: int
    calls_by_outcome: dict[CallOutcome, int] = Field(description="The calls that ended in this hour.")
    call_duration: Latency = Field(
        description="From the last start of a call at its upstream to its end, without the time in the queue. Calls that were "
        "never sent have none."
    )
    attempts_by_category: dict[AttemptCategory, int] = Field(description="The attempts to deliver callbacks.")
    deliveries_delivered: int
    deliveries_dead: int
    delivery_latency: Latency = Field(
        description="From the creation of a delivery to the receiver's 2xx, the time on hold included."
    )
    queued_calls_max: int = Field(
        description="The longest queue of calls that a sample saw. Operators who read all principals see it; others see 0."
    )
    pending_deliveries_max: int = Field(description="The same for deliveries that wait for an attempt.")


class UpstreamInsightsView(ResponseBody):
    """The calls to one upstream in these hours, of the last 24 at most."""

    upstream: str
    calls_started: int
    calls_by_outcome: dict[CallOutcome, int]
    call_duration: Latency


class InsightsView(ResponseBody):
    """What is open now, and what happened in the last hours."""

    since: Instant
    until: Instant = Field(description="The time of this response.")
    is_complete: bool = Field(
        description="False while the service still counts: the hours and upstreams lack some of what happened last."
    )
    open_calls: dict[CallStatus, int]
    queued_calls: int = Field(description="Calls that wait for a runner; as all counts below, counted up to 10,000.")
    scheduled_calls: int = Field(description="Calls that start later. They are working calls, too.")
    open_deliveries: dict[DeliveryState, int]
    dead_deliveries: int = Field(
        description="Those that were not sent again, among the newest 10,000 dead ones that are stored."
    )
    failing_webhooks: int = Field(description="Webhooks whose last attempt or challenge failed.")
    call_duration: LatencyView = Field(description="Of all these hours.")
    delivery_latency: LatencyView = Field(description="Of all these hours.")
    hours: list[HourView] = Field(description="Oldest first, without gaps.")
    upstreams: list[UpstreamInsightsView] = Field(
        description="The upstreams with calls, the slowest first by the 95th percentile."
    )
    paused_upstreams: list[str] = Field(description="Upstreams that an operator has paused: their calls wait.")
    leaves_out_others: bool = Field(
        description="True if a key with the scope `admin` names no principal: only its own is counted. All: `principal=*`"
    )

    @classmethod
    def from_overview(cls, overview: InsightsOverview, *, leaves_out_others: bool) -> Self:
        durations = sum((hour.call_duration for hour in overview.hours), LatencyHistogram())
        latencies = sum((hour.delivery_latency for hour in overview.hours), LatencyHistogram())
        return cls(
            since=overview.since,
            until=overview.until,
            is_complete=overview.is_complete,
            open_calls=dict(overview.open_calls),
            queued_calls=overview.queued_calls,
            scheduled_calls=overview.scheduled_calls,
            open_deliveries=dict(overview.open_deliveries),
            dead_deliveries=overview.dead_deliveries,
            failing_webhooks=overview.failing_webhooks,
            call_duration=LatencyView.from_histogram(durations),
            delivery_latency=LatencyView.from_histogram(latencies),
            hours=[HourView.model_validate(hour) for hour in overview.hours],
            upstreams=[UpstreamInsightsView.model_validate(each) for each in overview.upstreams],
            paused_upstreams=list(overview.paused_upstreams),
            leaves_out_others=leaves_out_others,
        )


class SessionView(ResponseBody):
    """A client session, as its calls show it."""

    client_session_id: str
    owner: OmittedIfNone[str] = Field(default=None, serialization_alias="principal", description=OWNER_DESCRIPTION)
    first_call_at: Instant
    last_call_at: Instant = Field(description="When its newest call was created.")
    last_call_id: str

    @classmethod
    def from_session(cls, session: ClientSession, *, shows_owner: bool) -> Self:
        view = cls.model_validate(session)
        return view.model_copy(update={"owner": session.principal}) if shows_owner else view


class SessionPageView(ResponseBody):
    sessions: list[SessionView]
    next_cursor: str | None = Field(description=NEXT_CURSOR_DESCRIPTION)

    @classmethod
    def from_sessions(
        cls, sessions: Page[ClientSession, str], next_cursor: str | None, *, shows_owner: bool = False
    ) -> Self:
        return cls(
            sessions=[SessionView.from_session(each, shows_owner=shows_owner) for each in sessions],
            next_cursor=next_cursor,
        )


class SessionInsightsView(ResponseBody):
    """One client session: its numbers, and a page of its calls."""

    client_session_id: str
    first_call_at: Instant
    last_call_at: Instant = Field(description="When its newest call was created.")
    call_count: int = Field(description="The newest 5,000 calls are counted.")
    is_complete: bool = Field(description="False if the session has more calls than are counted.")
    calls_by_status: dict[CallStatus, int]
    calls_by_outcome: dict[CallOutcome, int]
    resumed_calls: int = Field(description="Calls for which a client came back (POST /v1/resume).")
    answered_calls: int = Field(description="Other calls that ended while their client waited for them.")
    calls: list[CallView] = Field(description="Newest first.")
    next_cursor: str | None = Field(description=NEXT_CURSOR_DESCRIPTION)

    @classmethod
    def from_session(cls, session: SessionInsights, next_cursor: str | None, *, shows_owner: bool = False) -> Self:
        counts = session.counts
        return cls(
            client_session_id=session.client_session_id,
            first_call_at=counts.first_call_at,
            last_call_at=counts.last_call_at,
            call_count=counts.calls,
            is_complete=counts.is_complete,
            calls_by_status=dict(counts.calls_by_status),
            calls_by_outcome=dict(counts.calls_by_outcome),
            resumed_calls=counts.resumed_calls,
            answered_calls=counts.answered_calls,
            calls=[CallView.from_call(call, shows_owner=shows_owner) for call in session.calls],
            next_cursor=next_cursor,
        )
