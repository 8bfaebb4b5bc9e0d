"""The port of the store. The storage package implements it and bootstrap injects it.

Each noun has its rows in a module of its own (`domain.call_rows`, `domain.webhook_rows`, …): narrow Protocols with at most
eight methods. All access is in units of work:

    await store.write(work)           work(tx) runs in one transaction; its value is returned after the commit
    await store.write_for(who, work)  the same, if it locks rows of one principal only
    await store.read(work)            the same on a read-only snapshot: a few rows, by their keys
    await store.scan(who, work)       the same as read, apart from other reads: lists and counts

`work` is an async function that awaits nothing but its transaction; a long one calls `tx.pause()`. A store raises if it waits
for anything else, so no unit of work can hold a transaction over the network. A unit may run again after a conflict with
another unit, so it changes nothing but the store, and what it registers with `on_commit` and `on_rollback`.

Units of several nodes run at the same time. Each statement sees what was committed before it, so a unit locks what it decides
about before it reads that, or a unique index decides:

    a row read by `get` of calls, webhooks, challenges, catch-ups, sessions    locked until the unit ends, if it writes
    `get_many(lock=True)`, a batch of ends, an extension of leases             locked in the order of their ids
    the log of a principal: `reserve_seqs`, `get_head(lock=True)`              locked; several in the order of principals
    queues: due calls, deliveries and challenges, expired rows                 rows that another unit has locked are skipped
    idempotency keys, names, aliases, generations of a delivery                unique: the unit that is second runs again

The order of locks is: erasures, tasks, API keys, logins to upstreams, calls, webhooks, challenges and catch-ups, logs, rates,
deliveries. Only erasures wait for API keys, and they hold no other row then. Deliveries that another unit has locked are
skipped; only recorded attempts wait, for rows of their own leases. So a unit that has locked deliveries may lock webhooks (held
deliveries that are given up): no unit that holds those waits for a delivery. Two units that still wait for each other (the
first loss of a webhook under the lock of a log; a shared callback that is extended under it; unreadable deliveries of a webhook
with a rate that is removed; two batches with the same keys) are noticed after a second, and one of them runs again.

    unit                                     what it locks, or what decides
    start, report of a call                  unique key; the usage near its quota; the log before a callback is shared
    the same, and registration of a webhook  first the caller's API key, so that it starts nothing once it is deleted
    request to erase a principal             deletes its API keys, so it waits for units that hold one
    adoption                                 the task (`find_by_task(lock=True)`), so one principal gets it
    lease, turn of an upstream               queued calls, skipping locked ones; the lease is written only to queued calls. Then
                                             turns in the order of upstreams and principals; a turn that does not count has none
    dispatch, handle, progress, input, park  the call; written only under the lease token that it names
    end of calls, cancellation               the calls, then the logs; an end is written only once. For calls that waited for a
                                             login, the resumptions of these logins after that, then the calls' own rows
    answers, revoked resume tokens           the call; the version of tokens only grows
    extension of leases                      the calls of this owner, skipping locked ones; then these, in units of their own
    recovery, overdue calls, archive         expired calls, skipping locked ones; then the logs
    registration of a webhook                the log, so an event is either before it or matches it; names and keys are unique
    subscribe, unsubscribe, end of one       its webhook, then the log; the row of the subscription is written under both. Two
                                             first subscribes with one key: the second waits for the log, and runs again
    change, removal, activation              the webhook, then the log, so an event sees it before or after as a whole
    health and losses of webhooks            the webhooks in the order of their ids; failing origins in the order of their names
    lease of deliveries                      rates in the order of webhooks, and pending ones, skipping locked ones, also where
                                             the lease is written; it is written only to pending ones
    recorded attempts                        the webhooks, then deliveries whose lease token still holds
    release, hold, give up deliveries        skipping locked ones; state and expected state are in one statement
    replay                                   the webhook, then the log; the generation is unique
    attempts now, pause of a webhook         the webhook, its deliveries (skipping locked ones), then its origin
    bulk cancellation                        the calls in the order of their ids, then the log
    park until a login                       the owner's logins (`LoginWaitRows.lock`), then the call, then the log
    login to an upstream                     the tokens, the lists, then the owner's logins, then a batch of the calls that wait
    pause, drain or resume of an upstream    its row; a unit that begins after the commit of a pause leases
                                             nothing, but a lease that began before may commit after it
    catch-up                                 the webhook, its catch-up, then the log
    portal link                              the maker's API key, then the log, so that links made at once count each other
    verification                             units that lease challenges come one after the other, so limits are exact. Those of
                                             events/subscribe too: their last lock is this one, which all principals share
    recorded resumes                         their calls, skipping locked ones: a call that is deleted gets no row
    sessions, sealed values                  the row, so no change is lost
    login to an upstream                     its start counts the principal's logins under the log; a completion takes the row
                                             before it exchanges the code, so one completion does that, and deletes it with the
                                             write of the tokens, so an erasure in between leaves none
    tokens: saved, refreshed, deleted        the row; they are written only over the version that was read
    lists of a connection                    the tokens of its owner, so none is stored that another login got; then the row.
                                             A unit that deletes old ones of several principals waits for no other lock
    retention of events                      the logs in the order of principals
    published events, declared types         the log, so an id and the number of types are counted once
    events of an upstream, and the cursor    the logs in the order of principals; one node follows (`leadership`)
    hourly counts                            the row of positions, then the hours: one unit at a time adds to them
    batch of an erasure                      the erasure, skipping locked ones; the calls, the webhooks, then the log, so that
                                             nothing inserts a delivery of what is erased

What is only approximate while units run at once: a quota of result bytes, and of MCP sessions, may be exceeded by what the
units of that moment add. A quota of open calls is exact unless more than a thousand calls of one principal start in units that
are open at the same moment (the lock is taken only near the quota); then it is exceeded by what is beyond the thousand. Quotas
of webhooks and portal links, limits of challenges, and breakers are exact.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, Protocol, TypeVar

from ringback.domain.audit import AuditRows
from ringback.domain.call_histories import CallHistoryRows
from ringback.domain.call_resumes import CallResumeRows
from ringback.domain.call_rows import CallCompletionRows, CallQueue, CallRows, ScheduledCalls, TombstoneRows
from ringback.domain.catch_up import CatchUpRows
from ringback.domain.change_subscriptions import ChangeSubscriptionRows
from ringback.domain.delivery_rows import (
    CallDeliveries,
    DeliveryMaintenance,
    DeliveryQueue,
    DeliveryRows,
    EndedDeliveries,
    WebhookDeliveries,
)
from ringback.domain.encryption import SealedRows, SealingKeyRows
from ringback.domain.erasure import ErasedDeliveries, ErasedRows, ErasureRows
from ringback.domain.event_rows import EventLogRows, EventRows
from ringback.domain.event_subscriptions import SubscriptionRows
from ringback.domain.event_types import EventDemandRows, EventFollowingRows, EventTypeRows
from ringback.domain.insight_rows import ClientSessionRows, InsightRows, OpenWorkRows
from ringback.domain.log_appends import LogAppends
from ringback.domain.login_checks import LoginCheckRows
from ringback.domain.login_waits import LoginWaitRows
from ringback.domain.mcp_sessions import McpSessionRows
from ringback.domain.node_rows import LeaderRows, WebhookRateRows
from ringback.domain.portal_links import PortalLinkRows
from ringback.domain.principal import ApiKeyRows, KeyOwnerRows, Principal
from ringback.domain.sign_ins import SignInRows
from ringback.domain.signals import Signals
from ringback.domain.unused_logins import UnusedLoginRows
from ringback.domain.upkeep import UpkeepRows
from ringback.domain.upstream_logins import OAuthClientRows, UpstreamLoginRows, UpstreamTokenRows
from ringback.domain.upstream_rows import CatalogRows, OwnedCatalogRows, ToolAliasRows, UpstreamControlRows
from ringback.domain.usage import UsageRows
from ringback.domain.verification import ChallengeRows, ProofRows, SentChallengeRows
from ringback.domain.webhook_rows import (
    CallWebhookRows,
    OriginBreakerRows,
    RegisteredWebhookRows,
    WebhookBatchRows,
    WebhookRows,
)

PROBE_BYTES: Final = 32 * 1024
"""The size of a usual call's rows, indexes and events. A smaller write may fit into space that SQLite already has."""
DISK_FREE_BYTES_MIN: Final = 16 * 1024 * 1024
"""Four of the largest requests that are accepted by default. With less free space, writes fail soon."""

T = TypeVar("T")


class WriteProbe(Protocol):
    """By it, readiness and `ringback doctor` find out whether the store accepts writes, before a call fails."""

    async def write_probe_row(self) -> None:
        """Write `PROBE_BYTES` into one row, always the same.

        Raises `StoreUnavailable` if the disk has less than `DISK_FREE_BYTES_MIN` free. Errors of the write are raised here or
        by the commit.
        """
        ...


class SchedulingTimeRow(Protocol):
    """The last scheduling time, for the next process."""

    async def load(self) -> datetime | None:
        """None in a new store."""
        ...

    async def save(self, now: datetime) -> None:
        """Change nothing if a later time is saved, unless it is later by more than `CONTINUED_AHEAD_SECONDS_MAX`."""
        ...


class Transaction(Protocol):
    """The store within one unit of work."""

    @property
    def calls(self) -> CallRows: ...
    @property
    def call_completions(self) -> CallCompletionRows: ...
    @property
    def call_queue(self) -> CallQueue: ...
    @property
    def scheduled_calls(self) -> ScheduledCalls: ...
    @property
    def call_histories(self) -> CallHistoryRows: ...
    @property
    def call_resumes(self) -> CallResumeRows: ...
    @property
    def tombstones(self) -> TombstoneRows: ...
    @property
    def events(self) -> EventRows: ...
    @property
    def event_log(self) -> EventLogRows: ...
    @property
    def log_appends(self) -> LogAppends: ...
    @property
    def event_types(self) -> EventTypeRows: ...
    @property
    def event_demands(self) -> EventDemandRows: ...
    @property
    def event_followings(self) -> EventFollowingRows: ...
    @property
    def webhooks(self) -> WebhookRows: ...
    @property
    def webhook_batches(self) -> WebhookBatchRows: ...
    @property
    def registered_webhooks(self) -> RegisteredWebhookRows: ...
    @property
    def call_webhooks(self) -> CallWebhookRows: ...
    @property
    def catch_ups(self) -> CatchUpRows: ...
    @property
    def deliveries(self) -> DeliveryRows: ...
    @property
    def call_deliveries(self) -> CallDeliveries: ...
    @property
    def webhook_deliveries(self) -> WebhookDeliveries: ...
    @property
    def ended_deliveries(self) -> EndedDeliveries: ...
    @property
    def delivery_queue(self) -> DeliveryQueue: ...
    @property
    def delivery_maintenance(self) -> DeliveryMaintenance: ...
    @property
    def upkeep(self) -> UpkeepRows: ...
    @property
    def origin_breakers(self) -> OriginBreakerRows: ...
    @property
    def insights(self) -> InsightRows: ...
    @property
    def open_work(self) -> OpenWorkRows: ...
    @property
    def client_sessions(self) -> ClientSessionRows: ...
    @property
    def usage(self) -> UsageRows: ...
    @property
    def api_keys(self) -> ApiKeyRows: ...
    @property
    def key_owners(self) -> KeyOwnerRows: ...
    @property
    def challenges(self) -> ChallengeRows: ...
    @property
    def sent_challenges(self) -> SentChallengeRows: ...
    @property
    def proofs(self) -> ProofRows: ...
    @property
    def sealed_values(self) -> SealedRows: ...
    @property
    def sealing_keys(self) -> SealingKeyRows: ...
    @property
    def write_probe(self) -> WriteProbe: ...
    @property
    def catalog(self) -> CatalogRows: ...
    @property
    def owned_catalog(self) -> OwnedCatalogRows: ...
    @property
    def change_subscriptions(self) -> ChangeSubscriptionRows: ...
    @property
    def subscriptions(self) -> SubscriptionRows: ...
    @property
    def tool_aliases(self) -> ToolAliasRows: ...
    @property
    def upstream_controls(self) -> UpstreamControlRows: ...
    @property
    def login_waits(self) -> LoginWaitRows: ...
    @property
    def login_checks(self) -> LoginCheckRows: ...
    @property
    def unused_logins(self) -> UnusedLoginRows: ...
    @property
    def mcp_sessions(self) -> McpSessionRows: ...
    @property
    def upstream_logins(self) -> UpstreamLoginRows: ...
    @property
    def upstream_tokens(self) -> UpstreamTokenRows: ...
    @property
    def oauth_clients(self) -> OAuthClientRows: ...

    @property
    def sign_ins(self) -> SignInRows: ...
    @property
    def portal_links(self) -> PortalLinkRows: ...
    @property
    def audit_entries(self) -> AuditRows: ...

    @property
    def erasures(self) -> ErasureRows: ...
    @property
    def erased_rows(self) -> ErasedRows: ...
    @property
    def erased_deliveries(self) -> ErasedDeliveries: ...
    @property
    def leaders(self) -> LeaderRows: ...
    @property
    def webhook_rates(self) -> WebhookRateRows: ...

    @property
    def scheduling_time(self) -> SchedulingTimeRow: ...

    def now(self) -> datetime:
        """The store's clock at the start of the transaction. Leases and due dates are compared with it."""
        ...

    def confirmed_now(self) -> datetime:
        """The same for what cannot be undone: an earlier time while the clock is unconfirmed (`clock_confirmation`)."""
        ...

    async def pause(self) -> None:
        """Yield to the event loop during a long unit of work. The transaction stays open.

        Other code runs meanwhile, so state in memory may have changed afterwards. On SQLite no other unit of work runs; on
        PostgreSQL others do, and only what this one has locked stays as it is.
        """
        ...

    def notify(self, *topics: str) -> None:
        """Notify the waiters of these topics after a successful commit."""
        ...

    def on_committing(self, action: Callable[[], None]) -> None:
        """Run the action while the commit of this transaction waits for the disk, for work that can begin beside it.

        It may be run late, or not at all, and a rollback may follow it.
        """
        ...

    def on_commit(self, action: Callable[[], None]) -> None:
        """Run the action once this transaction is committed. Actions run in the order in which they were added."""
        ...

    def on_rollback(self, action: Callable[[], None]) -> None:
        """Run the action once this transaction is rolled back: it frees what memory holds for rows that now do not exist.

        A transaction that is run again after a rollback adds its actions again.
        """
        ...


class Store(Protocol):
    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run a unit of the service itself, which may concern several principals."""
        ...

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """The same as `write`, for a unit that locks rows of this principal only.

        Principals take turns, and each has a share of the connections, so that units of one that wait for each other, or for
        a row that stays locked, do not delay the others.
        """
        ...

    async def write_heartbeat(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """The same as `write`, ahead of all other units: for extensions of leases, which wait for no locked row."""
        ...

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T: ...

    async def scan(self, principal: Principal | None, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """The same as `read`, for lists and counts, which may read thousands of rows: they delay no reads of single rows.

        `work` may run in another thread, so it uses only its transaction and values. Principals (None: the service itself) take
        turns, so many lists of one principal do not delay the others.
        """
        ...

    @property
    def signals(self) -> Signals: ...

    @property
    def is_exclusive(self) -> bool:
        """Whether the store is locked against other processes.

        If so, leases of other owners are void at once; otherwise they are void when they run out.
        """
        ...
