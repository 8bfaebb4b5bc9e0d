"""A connection whose upstream requires a login waits for new tokens, and its requests fail at once."""

import asyncio

import pytest

from ringback.protocol.errors import LoginRequired, RequestNotSent, TokensUnreadable
from ringback.upstreams.errors import UpstreamLoginRequired, UpstreamTokensUnreadable
from ringback.upstreams.login_gate import RETRY_SECONDS, LoginGate
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.followed_login import FollowedLogin
from ringback.upstreams.oauth.token_source import OnWait
from tests.support.clock import ManualClock


class VersionedTokens:
    """Implements `TokenSource`: a stored version, of which the process knows an older one."""

    def __init__(self) -> None:
        self.version: int | None = 1
        self.stored: int | None = 1
        self.login = FollowedLogin()
        self._changed = asyncio.Event()
        self.is_closed = False

    async def check_login(self) -> None:
        raise NotImplementedError

    def sign_in(self, *, notifies: bool) -> None:
        self.stored = 2
        if notifies:
            self._changed.set()

    async def get_token(
        self, *, other_than: str | None = None, refusal: Refusal | None = None, on_wait: OnWait | None = None
    ) -> str | None:
        raise NotImplementedError

    async def explain_refusal(self, refusal: Refusal, *, token: str | None) -> RequestNotSent | None:
        raise NotImplementedError

    async def read_version(self) -> int | None:
        self.version = self.stored
        return self.stored

    async def wait_changed(self) -> None:
        await self._changed.wait()

    async def aclose(self) -> None:
        self.is_closed = True


def make_gate() -> tuple[LoginGate, VersionedTokens, ManualClock]:
    tokens, clock = VersionedTokens(), ManualClock()
    gate = LoginGate(tokens, upstream="hosted", clock=clock)
    gate.note_failure(ExceptionGroup("of the SDK", [LoginRequired("sign in", scope="tools", tokens_version=1)]))
    return gate, tokens, clock


async def test_a_request_fails_at_once_and_names_the_scope() -> None:
    gate, _, _ = make_gate()
    with pytest.raises(UpstreamLoginRequired, match="ringback upstreams login") as raised:
        await gate.require_open()

    assert raised.value.scope == "tools"


async def test_a_request_whose_tokens_have_a_key_of_other_nodes_asks_for_no_sign_in() -> None:
    gate, _, _ = make_gate()
    gate.note_failure(TokensUnreadable("no key", tokens_version=1))

    with pytest.raises(UpstreamTokensUnreadable, match="it needs no sign-in") as raised:
        await gate.require_open()
    assert raised.value.tokens_version == 1


async def test_a_request_after_a_login_passes_before_the_notification_arrives() -> None:
    gate, tokens, _ = make_gate()
    tokens.sign_in(notifies=False)

    await gate.require_open()
    await gate.require_open()
    assert not gate.is_closed


async def test_a_login_that_was_stored_while_the_refused_attempt_ended_opens_the_gate() -> None:
    tokens = VersionedTokens()
    gate = LoginGate(tokens, upstream="hosted", clock=ManualClock())
    gate.note_failure(LoginRequired("sign in", tokens_version=None))

    await gate.require_open()
    assert not gate.is_closed


async def test_another_failure_leaves_the_gate_open() -> None:
    gate, _, _ = make_gate()
    gate.note_failure(TimeoutError())

    await gate.require_open()


async def test_a_waiting_connection_goes_on_when_a_login_is_notified() -> None:
    gate, tokens, _ = make_gate()
    waiting = asyncio.create_task(gate.wait_open())
    tokens.sign_in(notifies=True)

    await waiting
    assert not gate.is_closed


async def test_a_waiting_connection_goes_on_when_a_request_sees_the_login() -> None:
    gate, tokens, _ = make_gate()
    waiting = asyncio.create_task(gate.wait_open())
    await asyncio.sleep(0)
    tokens.sign_in(notifies=False)
    await gate.require_open()

    await waiting


async def test_a_waiting_connection_tries_again_after_a_minute() -> None:
    gate, _, clock = make_gate()
    waiting = asyncio.create_task(gate.wait_open())
    while not waiting.done():
        clock.advance(RETRY_SECONDS / 4)
        await asyncio.sleep(0)

    assert not gate.is_closed


async def test_the_gate_closes_the_tokens_although_it_is_cancelled() -> None:
    gate, tokens, _ = make_gate()
    closing = asyncio.create_task(gate.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)

    assert tokens.is_closed
