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
from ringback.services.registrations import Registrations
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


def _registrations(parts: Parts, lifecycle: Lifecycle, verification: Verification) -> Registrations:
    return Registrations(
        store=parts.store,
        clock=parts.world.clock,
        ids=parts.ids,
        recorder=parts.recorder,
        guard=parts.guard,
        quotas=parts.quotas,
        lifecycle=lifecycle,
        verification=verification,
        catalog=parts.upstreams.catalog,
    )


def _webhooks(parts: Parts, lifecycle: Lifecycle, verification: Verification) -> Webhooks:
    return Webhooks(
        store=parts.store,
        ids=parts.ids,
        on_demand=OnDemand(ids=parts.ids),
        guard=parts.guard,
        quotas=parts.quotas,
        lifecycle=lifecycle,
        verification=verification,
        catalog=parts.upstreams.catalog,
    )


def all_services(parts: Parts, settings: Settings) -> Services:
    store, clock, lifecycle = parts.store, parts.world.clock, Lifecycle()
    quotas = parts.quotas
    verification = _verification(parts, settings, lifecycle)
    registrations = _registrations(parts, lifecycle, verification)
    calls = Calls(
        store=store,
        clock=clock,
        ids=parts.ids,
        catalog=parts.upstreams.catalog,
        recorder=parts.recorder,
        tokens=parts.tokens,
        registrations=registrations,
        quotas=quotas,
        lifecycle=lifecycle,
        births=parts.births,
        admission=parts.admission,
    )
    return Services(
        calls=calls,
        answers=Answers(store, parts.recorder),
        adoption=Adoption(
            store=store,
            ids=parts.ids,
            tasks=parts.upstreams.tasks,
            tokens=parts.tokens,
            registrations=registrations,
            quotas=quotas,
            lifecycle=lifecycle,
        ),
        reports=Reports(
            store=store,
            ids=parts.ids,
            recorder=parts.recorder,
            tokens=parts.tokens,
            registrations=registrations,
            quotas=quotas,
            lifecycle=lifecycle,
        ),
        registrations=registrations,
        webhooks=_webhooks(parts, lifecycle, verification),
        events=Events(store=store, clock=clock, quotas=quotas, lifecycle=lifecycle),
        deliveries=Deliveries(store=store),
        replays=Replays(store=store, on_demand=OnDemand(ids=parts.ids), quotas=quotas, lifecycle=lifecycle),
        resume=Resume(store=store, clock=clock, tokens=parts.tokens, lifecycle=lifecycle),
        keys=Keys(store=store, ids=parts.ids),
        insights=Insights(
            store=store, clock=clock, catalog=parts.upstreams.catalog, quotas=quotas, lifecycle=lifecycle
        ),
        upkeep=Upkeep(store=store, configured=parts.configured),
        lifecycle=lifecycle,
    )
