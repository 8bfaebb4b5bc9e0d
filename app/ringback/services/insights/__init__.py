"""Read models: what the service does now, what happened hour by hour, and the sessions of clients.

Each is a bounded number of rows, however many calls are stored. The janitor writes the hourly counts (`janitor.hour_counter`).

    insights    the one entry of dashboard, CLI and API
    readiness   checks with a real write whether the store can store a call, once for all probes
    missing_roles  roles that work waits for and that no node runs
    role_watch  logs them
    overviews   hourly counts with what has happened since they were written, and open work
    tails       what has happened since the hourly counts were written
    sessions    client sessions and their calls
"""

from ringback.services.insights.insights import (
    SIGNED_IN_OWNERS_MAX,
    Insights,
    LimitScope,
    ListedUpstream,
    ServiceChecks,
    ServiceStatus,
    UsedLimit,
)
from ringback.services.insights.overviews import UPSTREAM_HOURS_MAX
from ringback.services.insights.readiness import CHECK_TTL_SECONDS, WriteHealthCheck
from ringback.services.insights.role_watch import RoleWatch
from ringback.services.insights.sessions import SESSION_CALLS_COUNTED_MAX, SESSION_PAGE_SIZE, SessionInsights

__all__ = [
    "CHECK_TTL_SECONDS",
    "SESSION_CALLS_COUNTED_MAX",
    "SESSION_PAGE_SIZE",
    "SIGNED_IN_OWNERS_MAX",
    "UPSTREAM_HOURS_MAX",
    "Insights",
    "LimitScope",
    "ListedUpstream",
    "RoleWatch",
    "ServiceChecks",
    "ServiceStatus",
    "SessionInsights",
    "UsedLimit",
    "WriteHealthCheck",
]
