"""What a run observes of deliveries: several callbacks subscribe, one event happens, each answers in its own way."""

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from ringback.cli.server_checks.callbacks import (
    CallbackRecorder,
    CallbackResponse,
    ReceivedPost,
    Respond,
    acknowledge,
    answer_challenges,
    generate_secret,
    refuse_events,
)
from ringback.cli.server_checks.cases import Untestable, Violation
from ringback.cli.server_checks.message_stream import Json, Reply
from ringback.cli.server_checks.polling import occurrences_in, poll, require_occurrence
from ringback.cli.server_checks.subject import ServerUnderTest, list_modes, make_key
from ringback.cli.server_checks.subscribing import QUERY, TTL_MILLISECONDS, Subscription, subscription

ATTEMPTS_MAX: Final = 6
"""Of one delivery: a few within a quarter of an hour. The official scenarios warn of more."""
MARKER: Final = "ringback-check-marker-7f3a"
"""A word in the bodies of refused challenges, which no error may repeat."""
WRONG_ECHO: Final = CallbackResponse(
    HTTPStatus.OK, f'{{"challenge": "{MARKER}"}}'.encode(), {"content-type": "application/json"}
)


UNCHALLENGED: Final = "the callback was accepted without a challenge: is it allowed beforehand?"


@dataclass(slots=True)
class DeliveryRound:
    """The callbacks of one event, by how they answer it."""

    acknowledging: Subscription
    failing_once: Subscription
    """The first attempt is answered with 500."""
    gone: Subscription
    """410"""
    too_large: Subscription
    """413"""
    redirecting: Subscription
    """307 to `redirect_target`"""
    redirect_target: CallbackRecorder
    rotated: Subscription
    """Refreshed with another secret: `callback.secret` is the new one."""
    older_secret: str
    ended: Subscription
    """Unsubscribed before the event."""
    unverified: Subscription
    """Its challenge was answered with a wrong echo."""
    polled: list[Json] = field(default_factory=list[Json])
    """The same events, polled; empty if the type does not offer poll."""

    @property
    def subscriptions(self) -> list[Subscription]:
        return [
            *(self.acknowledging, self.failing_once, self.gone, self.too_large),
            *(self.redirecting, self.rotated, self.unverified),
        ]

    @property
    def posts(self) -> list[tuple[Subscription, ReceivedPost]]:
        return [(each, post) for each in self.subscriptions for post in each.callback.posts]

    @property
    def event_posts(self) -> list[tuple[Subscription, ReceivedPost]]:
        return [(each, post) for each, post in self.posts if post.envelope_type is None]

    def list_secrets(self, made: Subscription) -> list[str]:
        """The secrets that may sign for this subscription."""
        return [made.callback.secret, *([self.older_secret] if made is self.rotated else [])]


async def delivered(server: ServerUnderTest) -> DeliveryRound:
    """One event, and what each callback received until the failing one had its second attempt."""
    await server.require(subscription)
    round_ = await _subscribe_all(server)
    before = await _read_cursor(server, round_)
    await server.emitter.emit()
    if not await round_.acknowledging.callback.wait_for_attempts(1, server.timeouts.event_seconds):
        await require_occurrence(server, round_.acknowledging.event, before)
        raise Violation(f"no delivery within {server.timeouts.event_seconds:.0f} s after the event was to happen")
    await round_.failing_once.callback.wait_for_attempts(2, server.timeouts.retry_seconds)
    await round_.redirecting.callback.wait_for_attempts(ATTEMPTS_MAX + 1, server.timeouts.quiet_seconds)
    if before is not None:
        round_.polled = occurrences_in(await poll(server, round_.acknowledging.event, before))
    return round_


async def wrong_echo(server: ServerUnderTest) -> Subscription:
    """A subscribe whose challenge, if one comes, is answered with a wrong echo."""
    return await _subscribe(server, answer_challenges(WRONG_ECHO))


async def refused_challenge(server: ServerUnderTest) -> Subscription:
    """A subscribe whose challenge was answered with a wrong echo."""
    return _require_challenge(await server.observe(wrong_echo))


async def failed_challenge(server: ServerUnderTest) -> Subscription:
    """A subscribe whose challenge was answered with 500."""
    return _require_challenge(await _subscribe(server, answer_challenges(CallbackResponse(500, MARKER.encode()))))


async def redirected_challenge(server: ServerUnderTest) -> tuple[Subscription, CallbackRecorder]:
    """A subscribe whose challenge, if one comes, is redirected to a callback that would echo it."""
    target = server.endpoint.add_callback()
    response = CallbackResponse(HTTPStatus.FOUND, headers={"location": target.url})
    return await _subscribe(server, answer_challenges(response)), target


def _require_challenge(made: Subscription) -> Subscription:
    """Raise `Untestable` if the callback was accepted without a challenge, as one that the operator allows may be."""
    if made.reply.has_result and not made.callback.challenges:
        raise Untestable(UNCHALLENGED)
    return made


async def _subscribe(server: ServerUnderTest, respond: Respond = acknowledge, *, query: str = "") -> Subscription:
    event = (await server.require(subscription)).event
    callback = server.endpoint.add_callback(respond, query=query)
    return Subscription(event, callback, await server.subscribe(event, callback, ttlMs=TTL_MILLISECONDS))


async def _require_accepted(
    server: ServerUnderTest, respond: Respond = acknowledge, *, query: str = ""
) -> Subscription:
    made = await _subscribe(server, respond, query=query)
    if not made.reply.has_result:
        raise Untestable(f"a further subscription was refused: {made.reply.describe()}")
    return made


async def _subscribe_all(server: ServerUnderTest) -> DeliveryRound:
    target = server.endpoint.add_callback()
    rotated, older_secret = await _rotate(server, await _require_accepted(server))
    ended = await _require_accepted(server)
    delivery = {"url": ended.callback.url}
    key = make_key({"name": ended.event.name, "arguments": ended.event.arguments, "delivery": delivery})
    await server.unsubscribe(key)
    return DeliveryRound(
        acknowledging=await _require_accepted(server, query=QUERY),
        failing_once=await _require_accepted(server, refuse_events(500, times=1)),
        gone=await _require_accepted(server, refuse_events(410)),
        too_large=await _require_accepted(server, refuse_events(413)),
        redirecting=await _require_accepted(server, refuse_events(307, headers={"location": target.url})),
        redirect_target=target,
        rotated=rotated,
        older_secret=older_secret,
        ended=ended,
        unverified=await server.observe(wrong_echo),
    )


async def _rotate(server: ServerUnderTest, made: Subscription) -> tuple[Subscription, str]:
    older = made.callback.secret
    made.callback.secret = generate_secret()
    reply: Reply = await server.subscribe(made.event, made.callback, ttlMs=TTL_MILLISECONDS)
    return Subscription(made.event, made.callback, reply), older


async def _read_cursor(server: ServerUnderTest, round_: DeliveryRound) -> str | None:
    event = round_.acknowledging.event
    if "poll" not in list_modes(event.descriptor):
        return None
    cursor = (await poll(server, event, None)).result.get("cursor")
    return cursor if isinstance(cursor, str) else None
