"""Public keys are fetched when they are needed, seldom, and kept while the service does not answer."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from ringback.receiver import NotReady, PublishedKeys, ReceiverApp
from ringback.signing.ed25519 import generate_signing_key, parse_signing_key
from ringback.signing.standard_webhooks import sign_message
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import NOW, SECRET, make_event_body, post_signed

OLD = parse_signing_key(generate_signing_key(b"o" * 32))
NEW = parse_signing_key(generate_signing_key(b"n" * 32))


class Service:
    """Publishes keys, at a time that the test sets, or fails."""

    def __init__(self, *keys: Any) -> None:
        self.document: bytes | None = None
        self.fetches = 0
        self.is_waiting = asyncio.Event()
        self.is_answering = asyncio.Event()
        self.is_answering.set()
        self.now = NOW
        self.publish(*keys)
        self.keys = PublishedKeys(self.fetch, clock=lambda: self.now)

    def publish(self, *keys: Any) -> None:
        self.document = json.dumps({"keys": [dict(key.jwk) for key in keys]}).encode()

    async def fetch(self) -> bytes:
        self.fetches += 1
        await asyncio.sleep(0)
        self.is_waiting.set()
        await self.is_answering.wait()
        if self.document is None:
            raise ConnectionError("no answer")
        return self.document


async def test_keys_are_fetched_once_for_many_requests_and_again_after_five_minutes() -> None:
    service = Service(OLD)

    for found in await asyncio.gather(*(service.keys("wh_1") for _ in range(5))):
        assert found == [OLD.public_key]
    service.publish(OLD, NEW)
    service.now += timedelta(minutes=4, seconds=59)
    assert await service.keys() == [OLD.public_key]
    service.now += timedelta(seconds=1)
    assert await service.keys() == [OLD.public_key, NEW.public_key]

    assert service.fetches == 2


async def test_old_keys_are_used_for_a_day_while_the_service_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(OLD)
    await service.keys()
    service.document = None

    service.now += timedelta(hours=23)
    assert await service.keys() == [OLD.public_key]
    assert "could not be fetched" in caplog.text
    service.now += timedelta(hours=1)
    with pytest.raises(NotReady):
        await service.keys()


async def test_a_fetch_that_hangs_holds_up_no_callback_that_old_keys_verify() -> None:
    service = Service(OLD)
    await service.keys()
    service.now += timedelta(minutes=6)
    service.is_answering.clear()
    service.is_waiting.clear()
    fetching = asyncio.create_task(service.keys())
    await service.is_waiting.wait()

    async with asyncio.timeout(WAIT_SECONDS):
        assert await service.keys() == [OLD.public_key]
        service.publish(NEW)
        service.is_answering.set()
        assert await fetching == [NEW.public_key]


async def test_a_fetch_that_hangs_for_ever_fails_and_the_next_one_finds_the_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringback.receiver.published_keys.FETCH_SECONDS_MAX", 0.01)
    service = Service(OLD)
    service.is_answering.clear()

    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(NotReady):
            await service.keys()
    service.is_answering.set()
    service.now += timedelta(seconds=10)

    assert await service.keys() == [OLD.public_key]


async def test_a_clock_that_was_ahead_does_not_keep_old_keys_for_ever() -> None:
    service = Service(OLD)
    service.now += timedelta(days=365)
    await service.keys()
    service.now -= timedelta(days=365)
    service.publish(NEW)

    assert [await service.keys() for _ in range(2)] == [[NEW.public_key]] * 2
    assert service.fetches == 2


async def test_requests_without_keys_cause_one_fetch_in_ten_seconds() -> None:
    service = Service()
    service.document = b"not keys"

    for _ in range(3):
        with pytest.raises(NotReady):
            await service.keys()
    assert service.fetches == 1
    service.now += timedelta(seconds=10)
    service.publish(NEW)
    assert await service.keys() == [NEW.public_key]


@pytest.mark.requirement("R23")
async def test_a_receiver_with_published_keys_needs_no_secret() -> None:
    service = Service(NEW)
    app = ReceiverApp(service.keys, clock=lambda: NOW)
    body = json.dumps(make_event_body()).encode()

    def sign(key: Any) -> dict[str, str]:
        signatures = sign_message([SECRET], message_id="evt_1", timestamp=int(NOW.timestamp()), body=body, keys=[key])
        return {"webhook-signature": signatures}

    assert (await post_signed(app, body, message_id="evt_1", changed=sign(NEW))).status_code == 204
    assert (await post_signed(app, body, message_id="evt_1", changed=sign(OLD))).status_code == 400
    service.document = None
    service.now += timedelta(days=2)
    assert (await post_signed(app, body, message_id="evt_1", changed=sign(NEW))).status_code == 503
