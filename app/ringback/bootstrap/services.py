"""The use cases."""

from ringback.api.app import Services
from ringback.bootstrap.parts import Parts
from ringback.bootstrap.policies import target_policy
from ringback.domain.errors import InvalidCallbackUrl
from ringback.notifier.on_demand import OnDemand
from ringback.services.adoption import Adoption
from ringback.services.answers import Answers
from ringback.services.calls import Calls
from ringback.services.deliveries import Deliveries
from ringback.services.events import Events
from ringback.services.insights import Insights
from ringback.services.keys import Keys
from ringback.services.lifecycle import Lifecycle
from ringback.services.replays import Replays
from ringback.services.reports import Reports
from ringback.services.resume import Resume
from ringback.services.upkeep import Upkeep
from ringback.services.verification import Verification, VerificationPolicy
from ringback.services.webhooks import Webhooks
from ringback.settings import Settings, SettingsError


def _verification(parts: Parts, settings: Settings, lifecycle: Lifecycle) -> Verification:
    try:
        return Verification(
            store=parts.store,
            clock=parts.world.clock,
            lifecycle=lifecycle,
            targets=target_policy(settings),
            policy=VerificationPolicy(mode=settings.verify_callbacks, allowlist=settings.callback_allowlist),
        )
    except InvalidCallbackUrl as problem:
        raise SettingsError(f"RINGBACK_CALLBACK_ALLOWLIST: {problem}") from None


def all_services(parts: Parts, settings: Settings) -> Services:
    store, clock, lifecycle = parts.store, parts.world.clock, Lifecycle()
    quotas, on_demand = parts.quotas, OnDemand(ids=parts.ids)
    webhooks = Webhooks(
        store=store,
        clock=clock,
        ids=parts.ids,
        recorder=parts.recorder,
        on_demand=on_demand,
        guard=parts.guard,
        quotas=quotas,
        lifecycle=lifecycle,
        verification=_verification(parts, settings, lifecycle),
        catalog=parts.upstreams.catalog,
    )
    calls = Calls(
        store=store,
        clock=clock,
        ids=parts.ids,
        catalog=parts.upstreams.catalog,
        recorder=parts.recorder,
        tokens=parts.tokens,
        webhooks=webhooks,
        quotas=quotas,
        lifecycle=lifecycle,
    )
    return Services(
        calls=calls,
        answers=Answers(store, parts.recorder),
        adoption=Adoption(
            store=store,
            ids=parts.ids,
            tasks=parts.upstreams.tasks,
            tokens=parts.tokens,
            webhooks=webhooks,
            quotas=quotas,
            lifecycle=lifecycle,
        ),
        reports=Reports(
            store=store,
            ids=parts.ids,
            recorder=parts.recorder,
            tokens=parts.tokens,
            webhooks=webhooks,
            quotas=quotas,
            lifecycle=lifecycle,
        ),
        webhooks=webhooks,
        events=Events(store=store, clock=clock, quotas=quotas, lifecycle=lifecycle),
        deliveries=Deliveries(store=store),
        replays=Replays(store=store, on_demand=on_demand, quotas=quotas, lifecycle=lifecycle),
        resume=Resume(store=store, clock=clock, tokens=parts.tokens, lifecycle=lifecycle),
        keys=Keys(store=store, ids=parts.ids),
        insights=Insights(store=store, catalog=parts.upstreams.catalog, quotas=quotas, lifecycle=lifecycle),
        upkeep=Upkeep(store=store, configured=parts.configured),
        lifecycle=lifecycle,
    )
