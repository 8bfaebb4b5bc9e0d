"""Webhooks that models register: one for the same registration, and counted against the quota."""

from pathlib import Path
from typing import Any

import pytest

from ringback.domain.errors import QuotaExceeded
from ringback.domain.ids import WebhookId
from ringback.domain.retry import HOUR
from ringback.domain.webhook import Webhook, WebhookOrigin
from ringback.services.limits.quotas import Quotas
from ringback.services.webhooks.registrations import WebhookRegistration
from tests.support.service import CALLBACK_URL, ServiceUnderTest, running_service
from tests.unit.services.conftest import ALICE, list_called, register, start


async def register_once(service: ServiceUnderTest, **registration: Any) -> Webhook:
    return await service.services.registrations.register_once(
        ALICE, WebhookRegistration(**(dict[str, Any](url=CALLBACK_URL, expires_in_seconds=3600.0) | registration))
    )


async def test_the_same_registration_again_is_the_same_webhook_with_a_later_end(service: ServiceUnderTest) -> None:
    first = await register_once(service, client_session_id="session-1")
    service.clock.advance(HOUR / 2)
    again = await register_once(service, client_session_id="session-1")
    other = await register_once(service, client_session_id="session-2")

    assert again.id == first.id
    assert first.expires_at is not None
    assert again.expires_at is not None
    assert again.expires_at > first.expires_at
    assert other.id != first.id
    assert first.origin is WebhookOrigin.MCP


async def test_a_registration_of_a_model_never_takes_over_what_its_owner_registered(service: ServiceUnderTest) -> None:
    own = await register(service)

    assert (await register_once(service)).id != own


async def test_registrations_of_models_count_against_the_quota_of_webhooks(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(webhooks=1)) as service:
        await register_once(service)
        await register_once(service)
        with pytest.raises(QuotaExceeded):
            await register_once(service, upstream="git")


async def test_callbacks_of_sessions_count_against_the_quota_of_webhooks(tmp_path: Path) -> None:
    """They outlive their calls, unlike the callback of a call without a session."""
    async with running_service(tmp_path, quotas=Quotas(webhooks=1)) as service:
        await start(service, callback={})
        await start(service, callback={})
        await start(service, session=None, callback={})
        with pytest.raises(QuotaExceeded):
            await start(service, session="session-2", callback={})
        with pytest.raises(QuotaExceeded):
            await register_once(service)


async def test_a_registration_for_an_ended_call_receives_its_end_once(service: ServiceUnderTest) -> None:
    started = await start(service)
    await service.finish_call(started.call.id)

    webhook = await register_once(service, call_id=started.call.id)
    await register_once(service, call_id=started.call.id)

    assert await list_called(service, started) == [WebhookId(webhook.id)]
