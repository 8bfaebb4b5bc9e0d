"""Where the receiver finds the secrets that it verifies signatures with."""

import asyncio
from collections.abc import Sequence

import pytest

from ringback.receiver import ReceiverApp
from ringback.signing.secrets import InvalidSecret, generate_secret
from tests.support.recording_handler import RecordingHandler, make_app
from tests.support.signed_posts import SECRET, make_event_body, post_signed

OTHER_SECRET = generate_secret(b"o" * 32)


async def test_secrets_may_be_found_by_subscription() -> None:
    inbox = RecordingHandler()
    asked: list[str | None] = []

    def secrets_of(subscription_id: str | None) -> Sequence[str]:
        asked.append(subscription_id)
        return {"wh_1": [SECRET], "wh_2": [OTHER_SECRET]}.get(subscription_id or "", [])

    app = make_app(inbox, secrets_of)
    statuses = [
        (await post_signed(app, make_event_body(), secret=secret, subscription_id=subscription_id)).status_code
        for secret, subscription_id in [(SECRET, "wh_1"), (SECRET, "wh_2"), (OTHER_SECRET, "wh_2"), (SECRET, None)]
    ]

    assert statuses == [204, 400, 204, 400]
    assert asked == ["wh_1", "wh_2", "wh_2", None]


async def test_secrets_may_be_read_from_a_database() -> None:
    async def read_secrets(subscription_id: str | None) -> Sequence[str]:
        await asyncio.sleep(0)
        return [SECRET] if subscription_id == "wh_1" else []

    app = make_app(RecordingHandler(), read_secrets)

    assert (await post_signed(app, make_event_body())).status_code == 204
    assert (await post_signed(app, make_event_body(), subscription_id="wh_2")).status_code == 400


def test_invalid_secrets_are_rejected_at_the_start() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ReceiverApp([])
    with pytest.raises(InvalidSecret):
        ReceiverApp([SECRET, "secret"])


async def test_a_single_secret_needs_no_list() -> None:
    inbox = RecordingHandler()

    answer = await post_signed(make_app(inbox, SECRET), make_event_body())

    assert answer.status_code == 204
    with pytest.raises(InvalidSecret):
        ReceiverApp("secret")
