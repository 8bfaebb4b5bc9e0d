"""A call names a registered webhook, which receives its events once, whatever it filters by."""

from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.errors import Forbidden, InvalidRequest, NotFound, WebhookNotActive
from ringback.domain.event import EventName
from ringback.domain.principal import Scope
from ringback.domain.webhook import WebhookState
from ringback.services.deliveries.replays import ReplayRequest
from tests.support.service import ServiceUnderTest
from tests.unit.services.conftest import ALICE, BOB, SECRET, list_called, register, start


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
