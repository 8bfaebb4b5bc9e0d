"""MCP clients that subscribe to events, over the store of an `Engine`; their receivers answer challenges as the test says.

stage = SubscriptionStage(engine)
grant = await stage.subscribe(arguments={"tool": "add"})
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import httpx

from ringback.domain.event_subscriptions import EventSubscription
from ringback.domain.ids import KeyId, WebhookId
from ringback.domain.principal import DEFAULT_SCOPES, Caller
from ringback.domain.webhook import MessageIds, Webhook
from ringback.notifier.challenge_sender import ChallengeSender
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.protocol.mcp_events.backend import SubscriptionGrant, SubscriptionKey, SubscriptionRequest
from ringback.protocol.mcp_events.errors import ErrorProfile
from ringback.protocol.mcp_events.grants import RequestedTtl, TtlPolicy, TtlRequest
from ringback.protocol.mcp_events.subscription_key import canonical_arguments
from ringback.services.events.event_types import EventTypes
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer, Quotas
from ringback.services.limits.schema_checks import SchemaCheckLimiter
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler
from ringback.services.webhooks.callback_proofs import CallbackProofs
from ringback.services.webhooks.event_subscriptions import EventSubscriptions
from ringback.services.webhooks.verification import VerificationPolicy, WebhookVerification
from ringback.upstreams.catalog.payload_schemas import JsonPayloadSchemas
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from ringback.upstreams.connection_directory import ConnectionDirectory
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from tests.support.engine import Engine
from tests.support.examples import ALICE
from tests.support.resolvers import PUBLIC_POLICY
from tests.support.verifications import Responder, answer_challenge

HOOK: Final = "https://agent.example/hook"
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET: Final = "whsec_" + "b" * 32
CLIENT: Final = Caller(principal=ALICE, scopes=DEFAULT_SCOPES)


def make_request(
    name: str = "call.finished",
    *,
    arguments: Mapping[str, Any] | None = None,
    url: str = HOOK,
    secret: str = SECRET,
    cursor: str | None = None,
    max_age_seconds: float | None = None,
    ttl: RequestedTtl = TtlRequest.SERVER_DEFAULT,
    error_profile: ErrorProfile = ErrorProfile.SKETCH,
) -> SubscriptionRequest:
    """A request that has passed the checks of the protocol."""
    return SubscriptionRequest(
        name=name,
        arguments=arguments or {},
        canonical_arguments=canonical_arguments(arguments or {}),
        url=url,
        secret=secret,
        cursor=cursor,
        max_age_seconds=max_age_seconds,
        ttl=ttl,
        error_profile=error_profile,
    )


class SubscriptionStage:
    """Notes every challenge; `answer` may be exchanged at any time."""

    def __init__(
        self,
        engine: Engine,
        answer: Responder = answer_challenge,
        *,
        subscriptions_max: int = 10_000,
        ttl_policy: TtlPolicy | None = None,
        message_ids: MessageIds = MessageIds.EVENT,
    ) -> None:
        self.engine = engine
        self.answer = answer
        self.requests: list[httpx.Request] = []
        store, clock, lifecycle = engine.store, engine.clock, Lifecycle()
        verification = WebhookVerification(
            store=store, clock=clock, lifecycle=lifecycle, targets=PUBLIC_POLICY, policy=VerificationPolicy()
        )
        self.service = EventSubscriptions(
            store=store,
            clock=clock,
            catch_ups=engine.catch_ups,
            verification=verification,
            proofs=CallbackProofs(
                store=store,
                ids=engine.ids,
                sender=ChallengeSender(
                    clock=clock,
                    ids=engine.ids,
                    requester=HttpxSender(httpx.MockTransport(self._answer), clock=clock),
                    policy=PUBLIC_POLICY,
                ),
                verification=verification,
                targets=PUBLIC_POLICY,
            ),
            attempts=AttemptScheduler(store=store, clock=clock, targets=PUBLIC_POLICY),
            quotas=QuotaEnforcer(Quotas(subscriptions=subscriptions_max), clock=clock),
            lifecycle=lifecycle,
            catalog=UpstreamToolCatalog(ConnectionDirectory()),
            event_types=EventTypes(
                store=store,
                clock=clock,
                ids=engine.ids,
                lifecycle=lifecycle,
                catalog=UpstreamEventCatalog({}),
                payload_schemas=JsonPayloadSchemas(),
                check_limiter=SchemaCheckLimiter(clock=clock),
            ),
            ttl_policy=ttl_policy or TtlPolicy(),
            message_ids=message_ids,
        )

    async def subscribe(
        self, name: str = "call.finished", *, caller: Caller = CLIENT, **request: Any
    ) -> SubscriptionGrant:
        """`request` as for `make_request`."""
        return await self.service.subscribe(caller, make_request(name, **request))

    async def unsubscribe(
        self,
        name: str = "call.finished",
        *,
        caller: Caller = CLIENT,
        arguments: Mapping[str, Any] | None = None,
        url: str = HOOK,
    ) -> None:
        key = SubscriptionKey(name=name, canonical_arguments=canonical_arguments(arguments or {}), url=url)
        await self.service.unsubscribe(caller, key)

    async def read_webhook(self, grant: SubscriptionGrant) -> Webhook | None:
        return await self.engine.store.read(lambda tx: tx.webhooks.get(WebhookId(grant.id)))

    async def read_subscription(self, grant: SubscriptionGrant) -> EventSubscription | None:
        return await self.engine.store.read(lambda tx: tx.subscriptions.get(WebhookId(grant.id)))

    async def count_live(self) -> int:
        return await self.engine.store.read(lambda tx: tx.subscriptions.count_live(ALICE))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answer(request)
        return answer if isinstance(answer, httpx.Response) else await answer


def with_key(key_id: KeyId) -> Caller:
    return replace(CLIENT, key_id=key_id)
