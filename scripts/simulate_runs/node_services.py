"""The services of a simulated node, over its seams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from ringback.admission import AdmissionGate
from ringback.attended_calls import AttendedCalls
from ringback.domain.call import RerunPolicy
from ringback.domain.ids import IdGenerator
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import LoginFlow
from ringback.domain.upstreams import SkippedUpstream, ToolConfig, ToolInfo, UpstreamInfo
from ringback.notifier.catch_up import CatchUps
from ringback.notifier.challenge_sender import ChallengeSender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.resolver import NameNotFound, Resolution
from ringback.notifier.http.target import TargetPolicy
from ringback.notifier.recorder import Recorder
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.post_commit import CallHandoff
from ringback.protocol.mcp_events.grants import TtlPolicy
from ringback.services.access.api_keys import ApiKeys
from ringback.services.calls.call_starts import CallStarter
from ringback.services.calls.calls import Calls
from ringback.services.calls.cancellation import BulkCancellations
from ringback.services.calls.input_answers import InputAnswers
from ringback.services.calls.new_calls import NewCallWriter
from ringback.services.calls.reports import CallReports
from ringback.services.calls.resume import CallResumption
from ringback.services.deliveries.bulk_redelivery import BulkRedeliveries
from ringback.services.erasures import Erasures
from ringback.services.events.event_polls import EventPolls
from ringback.services.events.event_publishing import EventPublishing
from ringback.services.events.event_streams import EventStreams
from ringback.services.events.event_types import EventTypes
from ringback.services.events.events import Events
from ringback.services.events.log_tails import LogTails
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.logins.login_tokens import LoginRevocations
from ringback.services.logins.login_waits import LoginWaits
from ringback.services.upstreams.upstream_controls import UpstreamControls
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler
from ringback.services.webhooks.callback_proofs import CallbackProofs
from ringback.services.webhooks.event_subscriptions import EventSubscriptions
from ringback.services.webhooks.registrations import WebhookRegistrations
from ringback.services.webhooks.verification import VerificationPolicy, WebhookVerification
from ringback.services.webhooks.webhooks import Webhooks
from ringback.upstreams.catalog.payload_schemas import JsonPayloadSchemas
from ringback.upstreams.catalog.requested_schemas import RequestedSchemas
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from scripts.simulate_runs.clock import NodeClock
from scripts.simulate_runs.node_store import NodeStore
from scripts.simulate_runs.receivers import NodeSender

PUBLIC_URL: Final = "https://ringback.example"
POLICY: Final = TargetPolicy()
SUBSCRIPTION_SECONDS: Final = 20.0
"""How long a grant of events/subscribe lasts. A service grants at least five minutes."""


class NamesOfNothing:
    """Implements `notifier.http.resolver.Resolver`: there are no names, because every receiver has an address."""

    async def __call__(self, host: str, /) -> Resolution:
        raise NameNotFound(host)

    async def aclose(self) -> None:
        """Nothing is open."""


class OpenCatalog:
    """Implements `domain.upstreams.ToolCatalog`: every tool of every upstream exists."""

    def list_upstreams(self, principal: Principal | None = None) -> Sequence[UpstreamInfo]:  # noqa: ARG002 - as below
        return []

    def has_upstream(self, upstream: str) -> bool:  # noqa: ARG002 - the names of ToolCatalog
        return True

    def list_skipped(self) -> Sequence[SkippedUpstream]:
        return []

    async def list_tools(self, upstream: str, *, principal: Principal) -> Sequence[ToolInfo]:  # noqa: ARG002 - as above
        return []

    async def check_call(self, *args: Any, **kwargs: Any) -> None:
        """Every call is possible."""

    def is_repeatable(self, upstream: str, tool: str, *, principal: Principal) -> bool:  # noqa: ARG002 - as above
        return False

    def get_input_schema(self, *args: Any, **kwargs: Any) -> Mapping[str, Any] | None:  # noqa: ARG002 - as above
        return None

    def get_tool_config(self, upstream: str, tool: str) -> ToolConfig:  # noqa: ARG002 - as above
        return ToolConfig(rerun_policy=RerunPolicy.NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """What the services of one node share with its workers."""

    store: NodeStore
    clock: NodeClock
    ids: IdGenerator
    sender: NodeSender
    recorder: Recorder
    catch_ups: CatchUps
    attended_calls: AttendedCalls
    tokens: CallResumeTokens
    call_handoff: CallHandoff
    admission: AdmissionGate
    quotas: QuotaEnforcer
    lifecycle: Lifecycle
    login_waits: LoginWaits


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeServices:
    """The use cases that the clients and operators of a simulation call."""

    api_keys: ApiKeys
    calls: Calls
    input_answers: InputAnswers
    reports: CallReports
    registrations: WebhookRegistrations
    webhooks: Webhooks
    events: Events
    event_polls: EventPolls
    event_streams: EventStreams
    event_publishing: EventPublishing
    event_types: EventTypes
    event_subscriptions: EventSubscriptions
    resumption: CallResumption
    upstream_controls: UpstreamControls
    bulk_cancellations: BulkCancellations
    bulk_redeliveries: BulkRedeliveries
    erasures: Erasures
    login_waits: LoginWaits
    store: NodeStore
    """For what an authorization server would bring about."""


def build_node_services(parts: NodeParts) -> NodeServices:
    shared: dict[str, Any] = {
        "store": parts.store,
        "ids": parts.ids,
        "quotas": parts.quotas,
        "lifecycle": parts.lifecycle,
    }
    catalog = OpenCatalog()
    controls = UpstreamControls(store=parts.store, clock=parts.clock, catalog=catalog)
    attempts = AttemptScheduler(store=parts.store, clock=parts.clock, targets=POLICY)
    webhook_parts = _build_webhook_parts(parts, shared, catalog, attempts)
    registrations = WebhookRegistrations(
        **webhook_parts, clock=parts.clock, recorder=parts.recorder, catch_ups=parts.catch_ups
    )
    new_calls = NewCallWriter(ids=parts.ids, tokens=parts.tokens, registrations=registrations)
    requested_deliveries = RequestedDeliveries(ids=parts.ids)
    of_log: dict[str, Any] = {"store": parts.store, "clock": parts.clock, "lifecycle": parts.lifecycle}
    return NodeServices(
        api_keys=ApiKeys(store=parts.store, ids=parts.ids),
        calls=Calls(
            **of_log,
            recorder=parts.recorder,
            attended_calls=parts.attended_calls,
            starter=CallStarter(
                catalog=catalog,
                new_calls=new_calls,
                quotas=parts.quotas,
                attended_calls=parts.attended_calls,
                upstream_controls=controls,
            ),
            quotas=parts.quotas,
            call_handoff=parts.call_handoff,
            admission=parts.admission,
        ),
        input_answers=InputAnswers(parts.store, parts.recorder, RequestedSchemas()),
        reports=CallReports(
            store=parts.store,
            recorder=parts.recorder,
            new_calls=new_calls,
            quotas=parts.quotas,
            lifecycle=parts.lifecycle,
        ),
        registrations=registrations,
        webhooks=Webhooks(**webhook_parts, recorder=parts.recorder, requested_deliveries=requested_deliveries),
        events=Events(**of_log),
        event_polls=EventPolls(**of_log),
        event_streams=EventStreams(**of_log, quotas=parts.quotas, tails=LogTails(parts.store)),
        event_publishing=EventPublishing(
            store=parts.store,
            recorder=parts.recorder,
            quotas=parts.quotas,
            lifecycle=parts.lifecycle,
            payload_schemas=JsonPayloadSchemas(),
        ),
        event_types=webhook_parts["event_types"],
        event_subscriptions=_build_subscriptions(parts, webhook_parts),
        resumption=CallResumption(store=parts.store, clock=parts.clock, tokens=parts.tokens, lifecycle=parts.lifecycle),
        upstream_controls=controls,
        bulk_cancellations=BulkCancellations(store=parts.store, recorder=parts.recorder, quotas=parts.quotas),
        bulk_redeliveries=BulkRedeliveries(
            store=parts.store,
            requested_deliveries=requested_deliveries,
            attempts=attempts,
            quotas=parts.quotas,
            lifecycle=parts.lifecycle,
        ),
        erasures=Erasures(
            store=parts.store,
            ids=parts.ids,
            recorder=parts.recorder,
            lifecycle=parts.lifecycle,
            revocations=LoginRevocations(cast("LoginFlow", _NoLoginFlow())),
        ),
        login_waits=parts.login_waits,
        store=parts.store,
    )


def _build_webhook_parts(
    parts: NodeParts, shared: Mapping[str, Any], catalog: OpenCatalog, attempts: AttemptScheduler
) -> dict[str, Any]:
    return {
        **shared,
        "guard": TargetGuard(POLICY, resolver=NamesOfNothing()),
        "verification": WebhookVerification(
            store=parts.store,
            clock=parts.clock,
            lifecycle=parts.lifecycle,
            targets=POLICY,
            policy=VerificationPolicy(),
        ),
        "attempts": attempts,
        "catalog": catalog,
        "event_types": EventTypes(
            store=parts.store,
            clock=parts.clock,
            lifecycle=parts.lifecycle,
            catalog=UpstreamEventCatalog({}),
            payload_schemas=JsonPayloadSchemas(),
        ),
    }


def _build_subscriptions(parts: NodeParts, webhook_parts: Mapping[str, Any]) -> EventSubscriptions:
    verification = webhook_parts["verification"]
    sender = ChallengeSender(clock=parts.clock, ids=parts.ids, requester=parts.sender, policy=POLICY)
    return EventSubscriptions(
        store=parts.store,
        clock=parts.clock,
        catch_ups=parts.catch_ups,
        verification=verification,
        proofs=CallbackProofs(
            store=parts.store, ids=parts.ids, sender=sender, verification=verification, targets=POLICY
        ),
        attempts=webhook_parts["attempts"],
        quotas=parts.quotas,
        lifecycle=parts.lifecycle,
        catalog=webhook_parts["catalog"],
        event_types=webhook_parts["event_types"],
        ttl_policy=TtlPolicy(default_seconds=SUBSCRIPTION_SECONDS, shortest_seconds=SUBSCRIPTION_SECONDS),
    )


class _NoLoginFlow:
    """The authorization servers of a simulation revoke tokens without a request."""

    async def revoke_tokens(self, tokens: Any) -> None:
        """Nothing is sent."""
