"""A service whose calls give callbacks and name webhooks."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal
from ringback.domain.webhook import Webhook
from ringback.services.calls.call_starts import StartCallRequest
from ringback.services.calls.new_calls import StartedCall
from ringback.services.webhooks.registrations import WebhookRegistration
from ringback.signing.secrets import generate_secret
from tests.support.service import CALLBACK_URL, ServiceUnderTest, running_service

ALICE: Final = Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)
BOB: Final = Caller(principal=Principal("bob"), scopes=DEFAULT_SCOPES)
SECRET, OTHER_SECRET = generate_secret(b"a" * 32), generate_secret(b"b" * 32)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_service(tmp_path) as service:
        yield service


async def start(
    service: ServiceUnderTest,
    caller: Caller = ALICE,
    *,
    session: str | None = "session-1",
    callback: dict[str, Any] | None = None,
    **request: Any,
) -> StartedCall:
    registration = None
    if callback is not None:
        registration = WebhookRegistration(**(dict[str, Any](url=CALLBACK_URL, client_session_id=session) | callback))
    return await service.services.calls.start_call(
        caller,
        StartCallRequest(
            upstream="git", tool="git_status", client_session_id=session, callback=registration, **request
        ),
    )


async def list_webhooks(service: ServiceUnderTest, caller: Caller = ALICE) -> list[Webhook]:
    """The caller's webhooks, newest first."""
    return list(await service.services.webhooks.list_webhooks(caller, position=None, limit=100))


async def list_called(service: ServiceUnderTest, started: StartedCall) -> list[str]:
    """The webhooks with a delivery for the end of this call."""
    deliveries = await service.read_deliveries(started.call.principal)
    return sorted(delivery.webhook_id for delivery in deliveries if delivery.call_id == started.call.id)


async def register(service: ServiceUnderTest, caller: Caller = ALICE, **registration: Any) -> str:
    registered = await service.services.registrations.register_webhook(
        caller, WebhookRegistration(**(dict[str, Any](url=CALLBACK_URL) | registration))
    )
    return registered.webhook.id
