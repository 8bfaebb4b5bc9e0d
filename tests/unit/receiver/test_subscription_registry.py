"""Secrets of several subscriptions, also before the server has named their ids."""

from pathlib import Path

import pytest

from ringback.receiver import Callback, Gap, ReceiverApp, SQLiteInbox, SubscriptionRegistry, Terminated
from ringback.receiver.subscription_registry import SECRETS_OF_ONE_MAX, UNBOUND_SECRETS_MAX
from ringback.signing.secrets import InvalidSecret, generate_secret
from tests.support import inbox_receivers
from tests.support.signed_posts import NOW, make_event_body, post_signed

FIRST, SECOND, THIRD = (generate_secret(bytes([number]) * 32) for number in (1, 2, 3))
CHALLENGE = {"type": "verification", "challenge": "nonce"}


@pytest.fixture
def registry() -> SubscriptionRegistry:
    return SubscriptionRegistry()


class Handler:
    def __init__(self) -> None:
        self.handled: list[str | None] = []

    async def handle(self, message: Callback | Gap | Terminated) -> None:
        self.handled.append(message.subscription_id)


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
def app(registry: SubscriptionRegistry, handler: Handler) -> ReceiverApp:
    return ReceiverApp(registry, on_callback=handler.handle, on_notice=handler.handle, clock=lambda: NOW)


async def test_a_verification_before_the_id_is_known_is_echoed_and_binds_the_secret_that_signed_it(
    app: ReceiverApp, registry: SubscriptionRegistry
) -> None:
    registry.add(FIRST)
    registry.add(SECOND)

    answer = await post_signed(app, CHALLENGE, secret=SECOND, subscription_id="sub_2")

    assert (answer.status_code, answer.json()) == (200, {"challenge": "nonce"})
    assert registry("sub_2") == [SECOND, FIRST]
    assert registry("sub_1") == [FIRST], "the other secret still has no id"


async def test_a_verification_that_no_secret_has_signed_is_refused(
    app: ReceiverApp, registry: SubscriptionRegistry
) -> None:
    registry.add(FIRST)

    answer = await post_signed(app, CHALLENGE, secret=SECOND, subscription_id="sub_2")

    assert answer.status_code == 400
    assert not registry.is_bound("sub_2")


async def test_a_known_subscription_that_is_subscribed_to_again_is_verified_with_its_new_secret(
    app: ReceiverApp, registry: SubscriptionRegistry, handler: Handler
) -> None:
    """The server answers with the same id, and its challenge comes before that."""
    registry.bind("sub_1", FIRST)
    registry.add(SECOND)

    challenged = await post_signed(app, CHALLENGE, secret=SECOND, subscription_id="sub_1")
    early = await post_signed(app, make_event_body("evt_1"), secret=SECOND, subscription_id="sub_1")
    older = await post_signed(app, make_event_body("evt_2"), secret=FIRST, subscription_id="sub_1")
    registry.bind("sub_1", SECOND)
    again = await post_signed(app, make_event_body("evt_1"), secret=SECOND, subscription_id="sub_1")

    assert (challenged.status_code, challenged.json()) == (200, {"challenge": "nonce"})
    assert (early.status_code, older.status_code, again.status_code) == (503, 204, 204)
    assert handler.handled == ["sub_1", "sub_1"]


async def test_an_event_before_the_subscribe_response_comes_again(
    app: ReceiverApp, registry: SubscriptionRegistry, handler: Handler
) -> None:
    registry.add(FIRST)

    early = await post_signed(app, make_event_body(), secret=FIRST, subscription_id="sub_1")
    registry.bind("sub_1", FIRST)
    again = await post_signed(app, make_event_body(), secret=FIRST, subscription_id="sub_1")

    assert (early.status_code, early.headers["retry-after"]) == (503, "2")
    assert again.status_code == 204
    assert handler.handled == ["sub_1"]


async def test_a_message_of_one_subscription_is_no_message_of_another(
    app: ReceiverApp, registry: SubscriptionRegistry, handler: Handler
) -> None:
    registry.bind("sub_1", FIRST)
    registry.bind("sub_2", SECOND)
    terminated = {"type": "terminated", "error": {"code": -32012, "message": "Forbidden: revoked"}}

    answer = await post_signed(app, terminated, secret=FIRST, subscription_id="sub_2")

    assert answer.status_code == 400
    assert handler.handled == []


async def test_a_copy_that_is_signed_with_the_next_secret_of_its_subscription_is_handled_once(
    registry: SubscriptionRegistry, tmp_path: Path
) -> None:
    """A subscriber has a new secret at each start of its process, and its inbox outlives both."""
    handler = inbox_receivers.Handler()
    for number, secret in enumerate([FIRST, SECOND], start=1):
        registry.bind("sub_1", secret)
        inbox = SQLiteInbox(tmp_path / "inbox.db")
        async with ReceiverApp(registry, on_callback=handler.handle, inbox=inbox, clock=lambda: NOW) as app:
            for event_id in ("evt_1", f"evt_of_start_{number}"):
                answer = await post_signed(app, make_event_body(event_id), secret=secret, subscription_id="sub_1")
                assert answer.status_code == 204
            await handler.wait_until_handled(1 + number)

    assert handler.handled == ["evt_1", "evt_of_start_1", "evt_of_start_2"]


async def test_the_notices_of_a_subscription_reach_the_application(
    app: ReceiverApp, registry: SubscriptionRegistry, handler: Handler
) -> None:
    registry.bind("sub_1", FIRST)
    error = {"code": -32011, "message": "NotFound: gone", "data": {"kind": "event"}}

    for number, body in enumerate([{"type": "gap", "cursor": "c"}, {"type": "terminated", "error": error}]):
        posted = await post_signed(app, body, secret=FIRST, subscription_id="sub_1", message_id=f"msg_{number}")
        assert posted.status_code == 204

    assert handler.handled == ["sub_1", "sub_1"]


async def test_the_cursor_of_a_handled_event_is_recorded(app: ReceiverApp, registry: SubscriptionRegistry) -> None:
    registry.bind("sub_1", FIRST)

    await post_signed(app, make_event_body(), secret=FIRST, subscription_id="sub_1")

    assert registry.read_cursor("sub_1") == "place-7"


def test_the_subscribe_response_decides_about_the_id(registry: SubscriptionRegistry) -> None:
    registry.bind("sub_wrong", FIRST)

    registry.bind("sub_right", FIRST)

    assert registry("sub_right") == [FIRST]
    assert not registry.is_bound("sub_wrong")


def test_a_new_secret_comes_beside_the_earlier_ones_within_bounds(registry: SubscriptionRegistry) -> None:
    secrets = [generate_secret(bytes([number]) * 32) for number in range(SECRETS_OF_ONE_MAX + 2)]
    for secret in secrets:
        registry.bind("sub_1", secret)

    assert registry("sub_1") == secrets[: -SECRETS_OF_ONE_MAX - 1 : -1]


def test_a_failed_request_leaves_no_secret(registry: SubscriptionRegistry) -> None:
    registry.add(FIRST)
    registry.bind("sub_2", SECOND)

    registry.discard(FIRST)
    registry.discard(SECOND)

    assert registry(None) == []
    assert not registry.is_bound("sub_2")


def test_secrets_without_an_id_are_bounded_and_valid(registry: SubscriptionRegistry) -> None:
    with pytest.raises(InvalidSecret):
        registry.add("whsec_short")
    for _ in range(UNBOUND_SECRETS_MAX):
        registry.add(THIRD)

    with pytest.raises(ValueError, match="Wait for their subscribe responses"):
        registry.add(FIRST)
