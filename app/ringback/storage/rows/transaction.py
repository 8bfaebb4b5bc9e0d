"""What a unit of work sees of the store."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, get_type_hints

from ringback.storage.rows.api_keys import SqlApiKeys, SqlKeyOwners
from ringback.storage.rows.call_histories import SqlCallHistories, SqlCallResumes
from ringback.storage.rows.calls import SqlCallCompletions, SqlScheduledCalls, SqlTombstones
from ringback.storage.rows.dashboard_access import SqlAuditEntries, SqlPortalLinks, SqlSignIns
from ringback.storage.rows.deliveries import (
    SqlCallDeliveries,
    SqlEndedDeliveries,
    SqlWebhookDeliveries,
)
from ringback.storage.rows.delivery_queue import SqlDeliveryMaintenance
from ringback.storage.rows.encryption import SqlSealedValues
from ringback.storage.rows.erasures import SqlErasedDeliveries, SqlErasedRows, SqlErasures
from ringback.storage.rows.event_types import SqlEventDemands, SqlEventFollowings, SqlEventTypes
from ringback.storage.rows.events import SqlEventLog, SqlEvents
from ringback.storage.rows.insights import SqlClientSessions, SqlInsights, SqlOpenWork
from ringback.storage.rows.login_waits import SqlLoginChecks, SqlLoginWaits
from ringback.storage.rows.mcp_sessions import SqlMcpSessions
from ringback.storage.rows.nodes import SqlLeaders, SqlWebhookRates
from ringback.storage.rows.operations import SqlSchedulingTime, SqlUpkeep, SqlUsage
from ringback.storage.rows.sealing_keys import SqlSealingKeys
from ringback.storage.rows.subscriptions import SqlSubscriptions
from ringback.storage.rows.unit import Pause, UnitContext
from ringback.storage.rows.upstream_logins import SqlOAuthClients, SqlUnusedLogins, SqlUpstreamLogins, SqlUpstreamTokens
from ringback.storage.rows.upstreams import (
    SqlOwnedCatalog,
    SqlToolAliases,
    SqlUpstreamCatalog,
    SqlUpstreamControls,
)
from ringback.storage.rows.verification import SqlChallenges, SqlProofs, SqlSentChallenges
from ringback.storage.rows.webhooks import (
    SqlCallWebhooks,
    SqlCatchUps,
    SqlChangeSubscriptions,
    SqlOriginBreakers,
    SqlRegisteredWebhooks,
    SqlWebhooks,
)


class _RowsAtFirstUse:
    """Makes the rows of a transaction, and puts them in its own place."""

    __slots__ = ("_name", "_row_class")

    def __init__(self, name: str, row_class: Callable[[UnitContext], Any]) -> None:
        self._name = name
        self._row_class = row_class

    def __get__(self, transaction: "SqlTransaction", owner: type[Any]) -> Any:
        rows = transaction.__dict__[self._name] = self._row_class(transaction.unit)
        return rows


class SqlTransaction:
    """Implements `domain.ports.Transaction` but for the rows that each database has in its own way.

    Each annotation is one kind of rows. An object of it is made at its first use, because a unit of work uses few of them.
    """

    call_completions: SqlCallCompletions
    scheduled_calls: SqlScheduledCalls
    call_resumes: SqlCallResumes
    call_histories: SqlCallHistories
    tombstones: SqlTombstones
    events: SqlEvents
    event_log: SqlEventLog
    event_types: SqlEventTypes
    event_demands: SqlEventDemands
    event_followings: SqlEventFollowings
    webhook_batches: SqlWebhooks
    registered_webhooks: SqlRegisteredWebhooks
    call_webhooks: SqlCallWebhooks
    catch_ups: SqlCatchUps
    call_deliveries: SqlCallDeliveries
    webhook_deliveries: SqlWebhookDeliveries
    ended_deliveries: SqlEndedDeliveries
    delivery_maintenance: SqlDeliveryMaintenance
    upkeep: SqlUpkeep
    origin_breakers: SqlOriginBreakers
    insights: SqlInsights
    open_work: SqlOpenWork
    client_sessions: SqlClientSessions
    usage: SqlUsage
    api_keys: SqlApiKeys
    key_owners: SqlKeyOwners
    challenges: SqlChallenges
    sent_challenges: SqlSentChallenges
    proofs: SqlProofs
    sealed_values: SqlSealedValues
    sealing_keys: SqlSealingKeys
    catalog: SqlUpstreamCatalog
    owned_catalog: SqlOwnedCatalog
    change_subscriptions: SqlChangeSubscriptions
    subscriptions: SqlSubscriptions
    tool_aliases: SqlToolAliases
    upstream_controls: SqlUpstreamControls
    login_waits: SqlLoginWaits
    login_checks: SqlLoginChecks
    unused_logins: SqlUnusedLogins
    mcp_sessions: SqlMcpSessions
    upstream_logins: SqlUpstreamLogins
    upstream_tokens: SqlUpstreamTokens
    oauth_clients: SqlOAuthClients
    sign_ins: SqlSignIns
    portal_links: SqlPortalLinks
    audit_entries: SqlAuditEntries
    erasures: SqlErasures
    erased_rows: SqlErasedRows
    erased_deliveries: SqlErasedDeliveries
    leaders: SqlLeaders
    webhook_rates: SqlWebhookRates
    scheduling_time: SqlSchedulingTime

    def __init_subclass__(cls) -> None:
        for name, row_class in get_type_hints(cls).items():
            setattr(cls, name, _RowsAtFirstUse(name, row_class))

    def __init__(self, unit: UnitContext) -> None:
        self.unit = unit
        self.topics: list[str] = []
        self.committing_actions: list[Callable[[], None]] = []
        self.commit_actions: list[Callable[[], None]] = []
        self.rollback_actions: list[Callable[[], None]] = []

    def now(self) -> datetime:
        return self.unit.now

    def confirmed_now(self) -> datetime:
        return self.unit.confirmed_now

    async def pause(self) -> None:
        await Pause()

    def notify(self, *topics: str) -> None:
        self.topics.extend(topics)

    def on_committing(self, action: Callable[[], None]) -> None:
        self.committing_actions.append(action)

    def on_commit(self, action: Callable[[], None]) -> None:
        self.commit_actions.append(action)

    def on_rollback(self, action: Callable[[], None]) -> None:
        self.rollback_actions.append(action)
