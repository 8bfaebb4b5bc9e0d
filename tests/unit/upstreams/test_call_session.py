"""A request of a call goes to another session only if its session failed."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import pytest

from ringback.domain.login_waits import still_requires_login
from ringback.protocol.errors import (
    CredentialsRejected,
    CredentialsRequired,
    LoginRequired,
    RequestNotSent,
    ScopeRefused,
    SessionNotFound,
    TokenReplaced,
)
from ringback.upstreams import dispatch_records
from ringback.upstreams.call_session import CallSession
from ringback.upstreams.dispatch_records import enter_dispatch_record
from ringback.upstreams.session import ACCEPTED_SECONDS, UpstreamSession
from tests.support.logins import make_tokens

RESULT: dict[str, Any] = {"content": []}


class FakeSession:
    """A session whose requests fail in this order, and succeed after that."""

    def __init__(self, *failures: RequestNotSent) -> None:
        self.failures = list(failures)
        self.requests = 0
        self.is_closed = False
        self.age_seconds = 0.0

    async def send_request(self, method: str, params: Mapping[str, Any], **_options: Any) -> dict[str, Any]:
        assert (method, params) == ("tools/call", {})
        self.requests += 1
        if self.failures:
            raise self.failures.pop(0)
        return RESULT

    def close_to_new_requests(self) -> None:
        self.is_closed = True


class FakeConnection:
    """Implements `SessionSource`: a shared session, and another one after its end."""

    def __init__(self, session: FakeSession) -> None:
        self.session = session
        self.next_session = FakeSession()

    async def get_shared_session(self) -> UpstreamSession:
        return cast("UpstreamSession", self.next_session if self.session.is_closed else self.session)

    def open_dedicated_session(self, **_options: Any) -> AbstractAsyncContextManager[UpstreamSession]:
        raise AssertionError

    async def send(self) -> dict[str, Any]:
        session = CallSession(self, cast("UpstreamSession", self.session), is_dedicated=False)
        return await session.send_request("tools/call", {})


@pytest.mark.parametrize(
    "failure",
    [
        LoginRequired("sign in"),
        ScopeRefused("no right"),
        CredentialsRejected("not for this tool"),
        CredentialsRequired("not for this tool"),
    ],
)
async def test_credentials_that_one_request_lacks_leave_the_shared_session_open(failure: RequestNotSent) -> None:
    connection = FakeConnection(FakeSession(failure))
    with pytest.raises(type(failure)):
        await connection.send()

    assert (connection.session.requests, connection.session.is_closed) == (1, False)


@pytest.mark.parametrize("failure", [CredentialsRejected("revoked"), CredentialsRequired("needed now")])
async def test_credentials_that_were_accepted_long_ago_are_tried_in_another_session(failure: RequestNotSent) -> None:
    """Its handshake says whether they are refused for everything."""
    connection = FakeConnection(FakeSession(failure))
    connection.session.age_seconds = ACCEPTED_SECONDS

    assert await connection.send() == RESULT
    assert (connection.session.is_closed, connection.next_session.requests) == (True, 1)


async def test_a_request_whose_token_was_replaced_is_sent_once_more_in_the_same_session() -> None:
    connection = FakeConnection(FakeSession(TokenReplaced("replaced")))

    assert await connection.send() == RESULT
    assert (connection.session.requests, connection.session.is_closed) == (2, False)


async def test_a_call_whose_token_is_replaced_twice_is_queued_again_while_tokens_are_stored() -> None:
    connection = FakeConnection(FakeSession(*[TokenReplaced("replaced")] * 5))
    with pytest.raises(LoginRequired) as raised:
        await connection.send()

    assert (connection.session.requests, connection.session.is_closed) == (2, False)
    stored = make_tokens(access_token="new")
    assert not still_requires_login(stored, refused_version=raised.value.tokens_version)
    assert still_requires_login(None, refused_version=raised.value.tokens_version)


@pytest.mark.parametrize("failure", [RequestNotSent("cannot connect"), SessionNotFound("unknown")])
async def test_a_request_whose_session_failed_is_sent_once_more_in_the_next_one(failure: RequestNotSent) -> None:
    connection = FakeConnection(FakeSession(failure))

    assert await connection.send() == RESULT
    assert (connection.session.requests, connection.session.is_closed) == (1, True)
    assert connection.next_session.requests == 1


class RecordingConnection(FakeConnection):
    """Opens the next session once the call is recorded as unsent, and notes its steps as the record of the call."""

    def __init__(self, session: FakeSession) -> None:
        super().__init__(session)
        self.steps: list[tuple[str, int]] = []
        self.is_unsent = False
        self._recorded = asyncio.Event()

    async def get_shared_session(self) -> UpstreamSession:
        await self._recorded.wait()
        return await super().get_shared_session()

    async def record_unsent(self) -> None:
        self.steps.append(("unsent", self.next_session.requests))
        self.is_unsent = True
        self._recorded.set()

    async def wait_unsent(self, seconds: float) -> None: ...

    async def record_dispatch(self) -> None:
        self.steps.append(("dispatch", self.next_session.requests))


async def test_a_call_that_waits_long_for_the_next_session_is_recorded_as_unsent_until_it_goes_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch_records, "SLOW_SECONDS", 0.0)
    connection = RecordingConnection(FakeSession(RequestNotSent("cannot connect")))
    enter_dispatch_record(connection)

    assert await connection.send() == RESULT
    assert (connection.steps, connection.next_session.requests) == ([("unsent", 0), ("dispatch", 0)], 1)
