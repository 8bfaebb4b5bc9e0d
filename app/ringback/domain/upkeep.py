"""When rows need the janitor."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class Upkeep(StrEnum):
    """One kind of rows that the janitor works on. The values are the columns of `sql/upkeep.sql`."""

    CALL_LEASES = "call_leases"
    """The end of the first lease of a running call."""
    CALL_DEADLINES = "call_deadlines"
    """Of calls that are queued or parked."""
    SCHEDULED_CALLS = "scheduled_calls"
    """When the first one is to be queued."""
    LOGIN_RESUMPTIONS = "login_resumptions"
    LOGIN_CHECKS = "login_checks"
    DELIVERY_LEASES = "delivery_leases"
    LATE_DELIVERIES = "late_deliveries"
    """Deliveries that are due later than any pause of a retry schedule allows."""
    LATE_LEASES = "late_leases"
    """Leases of calls and deliveries that end later than any lease lasts."""
    HELD_DELIVERIES = "held_deliveries"
    """When the first one is given up."""
    SUBSCRIPTIONS = "subscriptions"
    """Event subscriptions that last, of API keys."""
    FAILING_WEBHOOKS = "failing_webhooks"
    WEBHOOK_EXPIRIES = "webhook_expiries"
    OPEN_ERASURES = "open_erasures"
    CALL_EXPIRIES = "call_expiries"
    ENDED_DELIVERIES = "ended_deliveries"
    EVENTS = "events"
    ORIGINS = "origins"
    TOMBSTONES = "tombstones"
    ENDED_SUBSCRIPTIONS = "ended_subscriptions"
    FINISHED_ERASURES = "finished_erasures"
    PROOFS = "proofs"
    SENT_CHALLENGES = "sent_challenges"
    MCP_SESSIONS = "mcp_sessions"
    UPSTREAM_LOGINS = "upstream_logins"
    UNUSED_LOGINS = "unused_logins"
    SIGN_INS = "sign_ins"
    PORTAL_LINKS = "portal_links"
    AUDIT_ENTRIES = "audit_entries"
    HOURS = "hours"


class UpkeepRows(Protocol):
    async def find_first(self, *, due_after: datetime, latest: datetime) -> Mapping[Upkeep, datetime]:
        """The instant of the first row of each kind: when it ends, is due, or began to age. Kinds without rows are missing.

        It is 1970 for kinds that need the janitor at any time. Deliveries due after `due_after` are late ones, and
        so are leases that end after `latest`. A login check after `latest` is due.
        """
        ...

    async def shorten_call_leases(self, *, ends_after: datetime, until: datetime, limit: int) -> int:
        """Let leases of running calls that end after `ends_after` end at `until`. Their holders stay. Return their number."""
        ...

    async def shorten_delivery_leases(self, *, ends_after: datetime, until: datetime, limit: int) -> int:
        """As `shorten_call_leases`, for leased deliveries."""
        ...
