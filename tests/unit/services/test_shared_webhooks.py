"""A callback that the calls of a session repeat is one webhook: registered once, and never another principal's."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from ringback.domain.errors import InvalidRequest, WebhookNotActive
from ringback.domain.event import EventName
from ringback.domain.retry import DAY, HOUR
from ringback.domain.webhook import WebhookOrigin, WebhookState
from ringback.services.webhooks.shared_webhooks import CANDIDATES_MAX
from ringback.signing.secrets import generate_secret
from tests.support.service import ServiceUnderTest
from tests.unit.services.conftest import ALICE, BOB, OTHER_SECRET, SECRET, list_called, list_webhooks, start


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

    with closing(sqlite3.connect(service.folder / "ringback.db")) as connection:
        assert connection.execute("SELECT count(*) FROM calls").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM call_webhooks").fetchone() == (0,)
