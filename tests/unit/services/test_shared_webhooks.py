"""Webhooks that calls share or name: registered once, delivered to once, and never another principal's."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from ringback.domain.errors import Forbidden, InvalidRequest, NotFound, QuotaExceeded, WebhookNotActive
from ringback.domain.event import EventName
from ringback.domain.ids import WebhookId
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal, Scope
from ringback.domain.retry import DAY, HOUR
from ringback.domain.webhook import Webhook, WebhookOrigin, WebhookState
from ringback.services.calls import StartCallRequest
from ringback.services.new_calls import StartedCall
from ringback.services.quotas import Quotas
from ringback.services.registrations import WebhookRegistration
from ringback.services.replays import ReplayRequest
from ringback.services.shared_webhooks import CANDIDATES_MAX
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


# -- a callback that repeats -----------------------------------------------------------------------------------------------


async def test_calls_of_a_session_that_give_the_same_callback_share_one_webhook(service: ServiceUnderTest) -> None:
    started = [await start(service, callback={"secret": SECRET}) for _ in range(3)]
    for each in started:
        await service.finish_call(each.call.id)

    (webhook,) = await list_webhooks(service)
    assert (webhook.origin, webhook.call_id, webhook.client_session_id) == (WebhookOrigin.CALL, None, "session-1")
    assert [[each.id for each in call.webhooks] for call in started] == [[webhook.id]] * 3
    assert [await list_called(service, each) for each in started] == [[webhook.id]] * 3


async def test_without_a_session_each_call_has_a_webhook_of_its_own(service: ServiceUnderTest) -> None:
    first, second = [await start(service, session=None, callback={"secret": SECRET}) for _ in range(2)]

    assert {each.call_id for each in await list_webhooks(service)} == {first.call.id, second.call.id}


async def test_a_shared_webhook_receives_only_the_calls_that_gave_the_callback(service: ServiceUnderTest) -> None:
    await start(service, callback={"secret": SECRET})
    silent = await start(service)
    await service.finish_call(silent.call.id)

    assert silent.webhooks == []
    assert await list_called(service, silent) == []


@pytest.mark.parametrize(
    "changed",
    [
        {"url": "https://agent.example/other"},
        {"include_result": True},
        {"events": frozenset({EventName.CALL_FINISHED})},
        {"client_session_id": "session-2"},
        {"secret": OTHER_SECRET},
    ],
)
async def test_another_callback_is_another_webhook(service: ServiceUnderTest, changed: dict[str, Any]) -> None:
    first = await start(service, callback={"secret": SECRET})
    session = changed.get("client_session_id", "session-1")
    second = await start(service, session=session, callback={"secret": SECRET} | changed)
    for each in (first, second):
        await service.finish_call(each.call.id)

    assert len(await list_webhooks(service)) == 2
    assert len(await list_called(service, first)) == len(await list_called(service, second)) == 1
    assert await list_called(service, first) != await list_called(service, second)


async def test_another_principals_session_of_the_same_name_has_its_own_webhook(service: ServiceUnderTest) -> None:
    for caller in (ALICE, BOB):
        await start(service, caller, callback={"secret": SECRET})

    assert len(await list_webhooks(service, ALICE)) == len(await list_webhooks(service, BOB)) == 1


async def test_two_secrets_in_turns_need_two_webhooks(service: ServiceUnderTest) -> None:
    for secret in (SECRET, OTHER_SECRET) * 3:
        await start(service, callback={"secret": secret})

    assert {each.secrets[0].value for each in await list_webhooks(service)} == {SECRET, OTHER_SECRET}


async def test_without_a_secret_one_is_generated_once_and_a_rotated_one_stays(service: ServiceUnderTest) -> None:
    first = await start(service, callback={})
    (webhook,) = await list_webhooks(service)
    rotated = await service.services.webhooks.rotate_secret(ALICE, webhook.id, secret=None, overlap_seconds=0)
    second = await start(service, callback={})

    (unchanged,) = await list_webhooks(service)
    assert first.callback_secret == webhook.secrets[0].value
    assert second.callback_secret is None
    assert unchanged.secrets[0].value == rotated.secret


async def test_after_a_rotation_a_call_with_the_former_secret_gets_a_webhook_that_signs_with_it(
    service: ServiceUnderTest,
) -> None:
    await start(service, callback={"secret": SECRET})
    (webhook,) = await list_webhooks(service)
    await service.services.webhooks.rotate_secret(ALICE, webhook.id, secret=OTHER_SECRET, overlap_seconds=60)

    again = await start(service, callback={"secret": SECRET})

    newest, _ = await list_webhooks(service)
    assert [each.id for each in again.webhooks] == [newest.id]
    assert [each.value for each in newest.secrets] == [SECRET]


async def test_a_shared_webhook_lives_as_long_as_its_last_call_needs_it(service: ServiceUnderTest) -> None:
    await start(service, callback={"secret": SECRET})
    (webhook,) = await list_webhooks(service)
    service.clock.advance(5 * DAY)
    last = await start(service, callback={"secret": SECRET})
    (extended,) = await list_webhooks(service)
    service.clock.advance(HOUR)
    await start(service, callback={"secret": SECRET})

    assert webhook.expires_at is not None
    assert extended.expires_at is not None
    assert extended.expires_at > webhook.expires_at
    assert extended.expires_at > last.call.deadline_at
    assert await list_webhooks(service) == [extended]  # written once a day


async def test_an_expired_shared_webhook_is_replaced(service: ServiceUnderTest) -> None:
    await start(service, callback={"secret": SECRET})
    (webhook,) = await list_webhooks(service)
    service.clock.advance(60 * DAY)

    started = await start(service, callback={"secret": SECRET})

    assert webhook.id not in {each.id for each in started.webhooks}
    assert len(started.webhooks) == 1


async def test_a_webhook_that_its_owner_disabled_refuses_the_callback_instead_of_dropping_it(
    service: ServiceUnderTest,
) -> None:
    await start(service, callback={"secret": SECRET})
    (webhook,) = await list_webhooks(service)
    await service.set_webhook_state(webhook.id, WebhookState.DISABLED)
    before = service.count_rows()

    with pytest.raises(WebhookNotActive, match="Enable it"):
        await start(service, callback={"secret": SECRET})

    assert service.count_rows() == before


async def test_an_owners_rate_limit_stays_with_the_shared_webhook(service: ServiceUnderTest) -> None:
    await start(service, callback={"secret": SECRET})
    (webhook,) = await list_webhooks(service)
    alice = await service.create_client("alice")
    await alice.patch(f"/v1/webhooks/{webhook.id}", json={"rate_per_second": 1.0})

    await start(service, callback={"secret": SECRET})

    assert [each.rate_per_second for each in await list_webhooks(service)] == [1.0]


async def test_a_client_with_a_new_secret_for_each_call_compares_a_bounded_number_of_webhooks(
    service: ServiceUnderTest,
) -> None:
    for number in range(CANDIDATES_MAX + 2):
        await start(service, callback={"secret": generate_secret(number.to_bytes(32))})
    started = await start(service, callback={"secret": generate_secret(bytes(32))})  # the first one again
    await service.finish_call(started.call.id)

    assert len(await list_webhooks(service)) == CANDIDATES_MAX + 3
    assert len(await list_called(service, started)) == 1


async def test_an_idempotent_repetition_registers_nothing(service: ServiceUnderTest) -> None:
    first = await start(service, callback={"secret": SECRET}, idempotency_key="once")
    before = service.count_rows()

    again = await start(service, callback={"secret": SECRET}, idempotency_key="once")

    assert again.call == first.call
    assert service.count_rows() == before


async def test_a_private_address_is_refused_also_if_its_webhook_could_be_shared(service: ServiceUnderTest) -> None:
    before = service.count_rows()

    with pytest.raises(InvalidRequest, match="address"):
        await start(service, callback={"url": "https://inside.example/hook"})

    assert service.count_rows() == before


async def test_the_links_of_an_expired_call_are_deleted_with_it(service: ServiceUnderTest) -> None:
    started = await start(service, callback={"secret": SECRET})
    await service.finish_call(started.call.id)
    assert service.count_rows()["call_webhooks"] == 1
    service.clock.advance(8 * DAY)

    await service.run_janitor()

    with closing(sqlite3.connect(service.database_path)) as connection:
        assert connection.execute("SELECT count(*) FROM calls").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM call_webhooks").fetchone() == (0,)


# -- a webhook that a call names -------------------------------------------------------------------------------------------


async def register(service: ServiceUnderTest, caller: Caller = ALICE, **registration: Any) -> str:
    registered = await service.services.registrations.register_webhook(
        caller, WebhookRegistration(**(dict[str, Any](url=CALLBACK_URL) | registration))
    )
    return registered.webhook.id


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"client_session_id": "session-1"},
        {"client_session_id": "another"},
        {"upstream": "another", "tool": "another"},
        {"correlation_id": "another", "match_correlation": True},
    ],
)
async def test_a_named_webhook_receives_the_call_once_whatever_it_filters_by(
    service: ServiceUnderTest, filters: dict[str, Any]
) -> None:
    named, other = await register(service, **filters), await register(service)
    started = await start(service, webhook_id=named)
    unnamed = await start(service, session="unnamed")
    for each in (started, unnamed):
        await service.finish_call(each.call.id)

    assert sorted(each.id for each in started.webhooks) == sorted([named, other])
    assert await list_called(service, started) == sorted([named, other])
    assert await list_called(service, unnamed) == sorted([other] if filters else [named, other])


async def test_a_named_webhook_receives_the_events_that_it_has_chosen(service: ServiceUnderTest) -> None:
    named = await register(service, client_session_id="another", events=frozenset({EventName.CALL_INPUT_REQUIRED}))
    started = await start(service, webhook_id=named)

    await service.request_input(started.call.id, "colour")
    assert await list_called(service, started) == [named]
    await service.finish_call(started.call.id)
    assert await list_called(service, started) == [named]


async def test_a_call_can_name_a_webhook_and_give_a_callback(service: ServiceUnderTest) -> None:
    named = await register(service, client_session_id="another", url="https://agent.example/named")
    started = await start(service, webhook_id=named, callback={"secret": SECRET})
    await service.finish_call(started.call.id)

    assert len(await list_called(service, started)) == 2


async def test_a_foreign_webhook_is_refused_like_an_unknown_one(service: ServiceUnderTest) -> None:
    foreign = await register(service, BOB)
    before = service.count_rows()
    details: set[str] = set()
    for webhook_id in (foreign, "wh_01JZZZZZZZZZZZZZZZZZZZZZZZ", "wh_", "nonsense"):
        with pytest.raises(NotFound) as refused:
            await start(service, webhook_id=webhook_id)
        details.add(refused.value.detail)

    assert len(details) == 1
    assert "Nothing was started" in details.pop()
    assert service.count_rows() == before


async def test_a_webhook_that_could_not_receive_the_call_is_refused(service: ServiceUnderTest) -> None:
    earlier = await start(service)
    unusable = [
        (await register(service, call_id=earlier.call.id), "only for the call"),
        (await register(service, events=frozenset({EventName.WEBHOOK_SUSPENDED})), "no events of calls"),
        (await register(service, expires_in_seconds=1.0), "has expired"),
        (await register(service), "disabled"),
    ]
    await service.set_webhook_state(unusable[-1][0], WebhookState.DISABLED)
    service.clock.advance(2.0)
    before = service.count_rows()

    for webhook_id, reason in unusable:
        with pytest.raises((InvalidRequest, WebhookNotActive), match=reason):
            await start(service, webhook_id=webhook_id)

    assert service.count_rows() == before


async def test_naming_a_webhook_needs_the_scope_of_webhooks(service: ServiceUnderTest) -> None:
    named = await register(service)
    restricted = replace(ALICE, scopes=frozenset({Scope.CALLS, Scope.READ}))

    with pytest.raises(Forbidden):
        await start(service, restricted, webhook_id=named)
    with pytest.raises(Forbidden):
        await start(service, restricted, callback={"secret": SECRET})


async def test_deliveries_of_a_named_webhook_that_waits_for_its_proof_are_held(service: ServiceUnderTest) -> None:
    named = await register(service, client_session_id="another")
    await service.set_webhook_state(named, WebhookState.PENDING_VERIFICATION)
    started = await start(service, webhook_id=named)
    await service.finish_call(started.call.id)

    assert [str(each.state) for each in await service.read_deliveries("alice")] == ["held"]


async def test_a_replay_includes_the_calls_of_other_sessions_that_named_the_webhook(service: ServiceUnderTest) -> None:
    named = await register(service, client_session_id="another")
    began = service.clock.now()
    started = await start(service, webhook_id=named)
    await service.finish_call(started.call.id)
    await service.services.webhooks.get_webhook(ALICE, named)

    replayed = await service.services.replays.replay_webhook(ALICE, named, ReplayRequest(since=began))

    assert (replayed.replayed, replayed.still_open) == (0, 1)


# -- a registration of a model ---------------------------------------------------------------------------------------------


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
