"""The one entry to the read models: upstreams, tools, status and readiness, overviews and sessions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from ringback.domain.clock import Clock
from ringback.domain.cursor import Page
from ringback.domain.errors import Unavailable
from ringback.domain.insights import ClientSession, InsightsOverview
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.roles import Role
from ringback.domain.upstream_logins import CredentialsScope
from ringback.domain.upstream_rows import UpstreamIntake
from ringback.domain.upstreams import SkippedUpstream, ToolCatalog, ToolInfo, UpstreamInfo
from ringback.domain.usage import LogUsage, StoreTotals, Usage
from ringback.measurements import Measurements
from ringback.protocol.upstream_logins import login_command
from ringback.services.insights.missing_roles import find_missing_roles
from ringback.services.insights.overviews import OverviewReader
from ringback.services.insights.readiness import SharedCheck, WriteHealthCheck
from ringback.services.insights.sessions import SESSION_PAGE_SIZE, SessionInsights, SessionReader
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.logins.login_states import NO_LOGIN, LoginState, read_login_states
from ringback.services.scans import Scan, scan_for
from ringback.services.unserved_upstreams import make_not_found
from ringback.services.upstreams.upstream_controls import UpstreamControls

SIGNED_IN_OWNERS_MAX: Final = 10_000
"""How many principals are counted. The count reads a row of an index for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedUpstream:
    """An upstream as the answering node sees it, and what an operator decided for all nodes."""

    info: UpstreamInfo
    intake: UpstreamIntake
    login: LoginState
    """The login of the caller, or of the service if all principals share one."""
    queued_calls: int = 0
    """Calls that wait for a runner: of the caller, or of all principals for operators; at most `TOTALS_COUNTED_MAX`."""
    signed_in_owners: int | None = None
    """For operators: how many principals have tokens for it, at most `SIGNED_IN_OWNERS_MAX`. None for other callers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    totals: StoreTotals
    oldest_due_age_seconds: float
    """How long the oldest due delivery is overdue; 0 without one."""
    oldest_queued_age_seconds: float
    """How long the call that waits longest for a runner is queued; 0 without one."""
    queued_calls: Mapping[str, int]
    """Calls that wait for a runner, by upstream (`UsageRows.count_queued`)."""
    measurements: Measurements
    """Of this process."""
    upstreams: Sequence[UpstreamInfo]
    intakes: Mapping[str, UpstreamIntake]
    """The upstreams that are not open."""
    open_streams: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceChecks:
    """The checks of one node, for an operator."""

    time: datetime
    """By the clock that signs callbacks."""
    problem: str | None
    """Why the node stores no work; None while it does."""
    lacks_keys: bool
    totals: StoreTotals
    oldest_due_age_seconds: float
    upstreams: Sequence[ListedUpstream]


class LimitScope(StrEnum):
    """Where a quota is counted."""

    SERVICE = "service"
    NODE = "node"


class UsedLimit(NamedTuple):
    """One quota, and how much of it is used."""

    name: str
    limit: int
    used: int
    scope: LimitScope


class Insights:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        catalog: ToolCatalog,
        upstream_controls: UpstreamControls,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
        measurements: Measurements,
        public_url: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._measurements = measurements
        self._public_url = public_url
        self._catalog = catalog
        self._upstream_controls = upstream_controls
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._write_check = WriteHealthCheck(store=store, clock=clock)
        self._keys_check = SharedCheck(self._read_lacking_keys, clock=clock)
        self._roles_check = SharedCheck(partial(find_missing_roles, store), clock=clock)
        self._overviews = OverviewReader(store=store, clock=clock)
        self._sessions = SessionReader(store=store)

    async def list_upstreams(self, caller: Caller) -> Sequence[ListedUpstream]:
        caller.require_scope(Scope.READ)
        visible = self._visible_upstreams(caller)
        intakes = await self._upstream_controls.read_intakes()
        logins = await self._store.read(
            lambda tx: read_login_states(tx, visible, caller.principal, public_url=self._public_url)
        )
        is_operator = Scope.ADMIN in caller.scopes
        owners = await self._count_signed_in(visible if is_operator else ())
        skipped = self._visible_skipped(caller)
        queued = await self._count_queued(caller, [each.name for each in (*visible, *skipped)])
        return [
            *(
                ListedUpstream(
                    info=_with_login_advice(
                        info if is_operator else replace(info, error_output=None), logins[info.name]
                    ),
                    intake=intakes.get(info.name, UpstreamIntake.OPEN),
                    login=logins[info.name],
                    queued_calls=queued.get(info.name, 0),
                    signed_in_owners=owners.get(info.name),
                )
                for info in visible
            ),
            *(
                ListedUpstream(
                    info=_describe_skipped(each),
                    intake=intakes.get(each.name, UpstreamIntake.OPEN),
                    login=NO_LOGIN,
                    queued_calls=queued.get(each.name, 0),
                )
                for each in skipped
            ),
        ]

    async def list_tools(self, caller: Caller, upstream: str) -> Sequence[ToolInfo]:
        caller.require_scope(Scope.READ)
        if upstream not in {info.name for info in self._visible_upstreams(caller)}:
            raise make_not_found(self._catalog, caller, upstream)
        return await self._catalog.list_tools(upstream, principal=caller.principal)

    async def _count_signed_in(self, upstreams: Sequence[UpstreamInfo]) -> Mapping[str, int]:
        names = [info.name for info in upstreams if info.credentials is CredentialsScope.PRINCIPAL]

        async def count_owners(tx: Transaction) -> Mapping[str, int]:
            return {name: await tx.upstream_tokens.count_owners(name, limit=SIGNED_IN_OWNERS_MAX) for name in names}

        return await self._store.scan(None, count_owners) if names else dict[str, int]()

    async def _count_queued(self, caller: Caller, upstreams: Sequence[str]) -> Mapping[str, int]:
        """Other principals' calls are counted for operators only."""
        if Scope.ADMIN in caller.scopes:
            return await self._store.scan(None, lambda tx: tx.usage.count_queued())
        owner = caller.principal
        return await self._store.scan(owner, lambda tx: tx.usage.count_own_queued(owner, upstreams))

    def _visible_upstreams(self, caller: Caller) -> Sequence[UpstreamInfo]:
        """With the state of the caller's own connections. Operators see how many connections there are in all."""
        infos = self._catalog.list_upstreams(caller.principal)
        if Scope.ADMIN in caller.scopes:
            infos = [_with_totals(*each) for each in zip(infos, self._catalog.list_upstreams(), strict=True)]
        return [info for info in infos if caller.may_use_upstream(info.name)]

    def list_upstream_names(self, caller: Caller) -> Sequence[str]:
        """The upstreams that the caller may use, also those whose entry is skipped."""
        listed = (*self._catalog.list_upstreams(), *self._catalog.list_skipped())
        return [each.name for each in listed if caller.may_use_upstream(each.name)]

    def _visible_skipped(self, caller: Caller) -> Sequence[SkippedUpstream]:
        return [each for each in self._catalog.list_skipped() if caller.may_use_upstream(each.name)]

    async def get_status(self, caller: Caller) -> ServiceStatus:
        """Return the status of the service. It covers all principals, so the caller needs the scope `metrics`."""
        caller.require_scope(Scope.METRICS)

        async def read_totals(tx: Transaction) -> tuple[StoreTotals, float, float, Mapping[str, int]]:
            due, queued_since = await tx.delivery_queue.next_due_at(), await tx.usage.oldest_queued_since()
            ages = _age(due, tx.now()), _age(queued_since, tx.now())
            return await tx.usage.count_totals(), *ages, await tx.usage.count_queued()

        totals, oldest_due, oldest_queued, queued = await self._store.scan(caller.principal, read_totals)
        return ServiceStatus(
            totals=totals,
            oldest_due_age_seconds=oldest_due,
            oldest_queued_age_seconds=oldest_queued,
            queued_calls=queued,
            measurements=self._measurements,
            upstreams=self._catalog.list_upstreams(),
            intakes=await self._upstream_controls.read_intakes(),
            open_streams=self._quotas.open_stream_count,
        )

    async def check_service(self, caller: Caller) -> ServiceChecks:
        """Check this node. The caller needs the scope `admin`. Raises `StoreUnavailable` only if the store cannot be read."""
        caller.require_scope(Scope.ADMIN)
        try:
            await self.require_ready()
            problem = None
        except Unavailable as unready:
            problem = unready.detail

        async def read_totals(tx: Transaction) -> tuple[StoreTotals, float]:
            return await tx.usage.count_totals(), _age(await tx.delivery_queue.next_due_at(), tx.now())

        totals, oldest_due = await self._store.scan(caller.principal, read_totals)
        return ServiceChecks(
            time=self._clock.wall_time(),
            problem=problem,
            lacks_keys=await self.lacks_keys(),
            totals=totals,
            oldest_due_age_seconds=oldest_due,
            upstreams=await self.list_upstreams(caller),
        )

    async def list_limits(self, caller: Caller) -> Sequence[UsedLimit]:
        """The quotas of the caller's principal, with what is used; also those of its key, unless an operator asks."""
        caller.require_scope(Scope.READ)
        owner = caller.principal
        quotas = self._quotas.get_quotas(owner)

        async def count(tx: Transaction) -> tuple[Usage, LogUsage, int, int]:
            webhooks = await tx.usage.count_webhooks(owner, limit=quotas.webhooks)
            subscriptions = await tx.subscriptions.count_live(owner)
            return await tx.usage.get_usage(owner), await tx.usage.get_log_usage(owner), webhooks, subscriptions

        usage, log_usage, webhooks, subscriptions = await self._store.scan(caller.principal, count)
        starts = quotas.starts_per_minute
        limits = [
            UsedLimit("open_calls", quotas.open_calls, usage.open_calls, LimitScope.SERVICE),
            UsedLimit("stored_calls", quotas.stored_calls, usage.stored_calls, LimitScope.SERVICE),
            UsedLimit("result_bytes", quotas.result_bytes, usage.result_bytes, LimitScope.SERVICE),
            UsedLimit("argument_bytes", quotas.argument_bytes, usage.argument_bytes, LimitScope.SERVICE),
            UsedLimit("event_bytes", quotas.event_bytes, log_usage.event_bytes, LimitScope.SERVICE),
            UsedLimit("delivery_bytes", quotas.delivery_bytes, log_usage.delivery_bytes, LimitScope.SERVICE),
            UsedLimit("webhooks", quotas.webhooks, webhooks, LimitScope.SERVICE),
            UsedLimit("subscriptions", quotas.subscriptions, subscriptions, LimitScope.SERVICE),
            UsedLimit("streams", quotas.streams, self._quotas.count_streams(owner), LimitScope.NODE),
            UsedLimit("starts_per_minute", starts, starts - self._quotas.count_free_starts(owner), LimitScope.NODE),
        ]
        return limits if caller.is_operator else [*limits, *self._list_key_limits(caller)]

    def _list_key_limits(self, caller: Caller) -> Sequence[UsedLimit]:
        key_id, limits = caller.key_id, self._quotas.get_key_limits(caller.key_id)
        used: list[UsedLimit] = []
        if key_id is not None and limits.streams is not None:
            streams = self._quotas.count_key_streams(key_id)
            used.append(UsedLimit("key_streams", limits.streams, streams, LimitScope.NODE))
        if key_id is not None and (most := limits.starts_per_minute) is not None:
            started = most - self._quotas.count_free_key_starts(key_id, most)
            used.append(UsedLimit("key_starts_per_minute", most, started, LimitScope.NODE))
        return used

    async def read_overview(self, caller: Caller, *, hours: int) -> InsightsOverview:
        """What happened in the last hours, and what is open: of the caller's principal, or of all for an operator.

        `hours` counts the current one, which is not over. Raises `InvalidRequest` unless it is between 1 and
        `OVERVIEW_HOURS_MAX`. The upstreams are those that the caller may use.
        """
        caller.require_scope(Scope.READ)
        scan = scan_for(self._store, caller.principal)
        upstreams = self.list_usable_upstreams(caller)
        return await self.scan_overview(scan, caller.listed_principal, hours=hours, upstreams=upstreams)

    def list_usable_upstreams(self, caller: Caller) -> Sequence[str]:
        return [info.name for info in self._catalog.list_upstreams() if caller.may_use_upstream(info.name)]

    async def scan_overview(
        self, scan: Scan, principal: Principal | None, *, hours: int, upstreams: Sequence[str]
    ) -> InsightsOverview:
        """The same for a caller that was checked, on its scans. None: of all principals."""
        overview = await self._overviews.scan_overview(scan, principal, hours=hours, upstreams=upstreams)
        intakes = await self._upstream_controls.read_intakes()
        paused = sorted(name for name in upstreams if intakes.get(name) is UpstreamIntake.PAUSED)
        return replace(overview, paused_upstreams=paused)

    async def list_sessions(self, caller: Caller, *, position: str | None, limit: int) -> Page[ClientSession, str]:
        """The caller's client sessions, that of the newest call first; those of all principals for an operator."""
        return await self._sessions.list_sessions(caller, position=position, limit=limit)

    async def read_session(
        self, caller: Caller, client_session_id: str, *, position: str | None = None, limit: int = SESSION_PAGE_SIZE
    ) -> SessionInsights:
        """One client session of the caller's principal: its numbers and a page of its calls, newest first.

        Raises `NotFound` if none of its calls is stored any more, and `InvalidRequest` if an operator names no principal.
        """
        return await self._sessions.read_session(caller, client_session_id, position=position, limit=limit)

    async def require_ready(self) -> None:
        """Raise if the service cannot accept work: it is shutting down, or the store cannot store a call."""
        self._lifecycle.require_running()
        await self._write_check.require_writable()

    async def lacks_keys(self) -> bool:
        """Whether other nodes seal with a key that this node does not have, as read at most a second ago."""
        return await self._keys_check.get_result()

    async def _read_lacking_keys(self) -> bool:
        return await self._store.read(lambda tx: tx.sealing_keys.lacks_any())

    async def find_missing_roles(self) -> Sequence[Role]:
        """The roles that work of the service waits for and that no node runs, as read at most a second ago."""
        return await self._roles_check.get_result()


def _with_totals(own: UpstreamInfo, total: UpstreamInfo) -> UpstreamInfo:
    return replace(
        own,
        connections=total.connections,
        calls_in_flight=total.calls_in_flight,
        calls_waiting=total.calls_waiting,
    )


def _with_login_advice(info: UpstreamInfo, login: LoginState) -> UpstreamInfo:
    """A connection may be open although its tokens do not suffice any more; then it has no advice of its own."""
    if info.advice is not None or not login.is_missing:
        return info
    return replace(info, advice=f"Its login is {login.state.replace('_', ' ')}: {login_command(info.name)}.")


def _describe_skipped(skipped: SkippedUpstream) -> UpstreamInfo:
    return UpstreamInfo(
        name=skipped.name,
        configured_name=skipped.configured_name if skipped.configured_name != skipped.name else "",
        transport="unknown",
        state="skipped",
        last_error=str(skipped.reason),
        advice=skipped.advice,
        connections=0,
    )


def _age(since: datetime | None, now: datetime) -> float:
    """Seconds since then; 0 for None, and for a time that is still to come."""
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())
