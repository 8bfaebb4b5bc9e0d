"""Requests carry a token to the origin of the upstream only, and are sent at most twice."""

from typing import Any

import httpx2
import pytest

from ringback.protocol.errors import LoginRequired, RequestNotSent, TokensUnreadable
from ringback.upstreams.dispatch_records import DISPATCH_RECORD
from ringback.upstreams.oauth.bearer_transport import BearerTokenTransport
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.followed_login import FollowedLogin
from ringback.upstreams.oauth.token_source import OnWait

URL = "https://mcp.example/mcp"


class ScriptedTokens:
    """Implements `TokenSource`: gives these tokens one after the other, the last one for ever."""

    def __init__(self, *tokens: str | None) -> None:
        self.tokens = list(tokens)
        self._given: list[str | None] = []
        self.refusals: list[tuple[Refusal, str | None]] = []
        self.first_refusals: list[Refusal] = []
        """Of tokens that were to be replaced."""
        self.failure: RequestNotSent | None = LoginRequired("sign in")
        self.login = FollowedLogin()
        self.refreshes = False
        """Whether each token is refreshed first."""

    async def check_login(self) -> None: ...

    async def get_token(
        self, *, other_than: str | None = None, refusal: Refusal | None = None, on_wait: OnWait | None = None
    ) -> str | None:
        if refusal is not None:
            self.first_refusals.append(refusal)
        if on_wait is not None and self.refreshes:
            await on_wait()
        if len(self.tokens) > 1 and self._given and self._given[-1] == other_than:
            del self.tokens[0]
        self._given.append(self.tokens[0])
        return self.tokens[0]

    async def explain_refusal(self, refusal: Refusal, *, token: str | None) -> RequestNotSent | None:
        self.refusals.append((refusal, token))
        return self.failure

    @property
    def version(self) -> int | None:
        return None

    async def read_version(self) -> int | None:
        return None if self.tokens == [None] else 1

    async def wait_changed(self) -> None: ...

    async def aclose(self) -> None: ...


class UnreadableLogin(ScriptedTokens):
    """After these tokens, other ones are stored that this node cannot read."""

    async def get_token(self, *, other_than: str | None = None, **options: Any) -> str | None:
        if not self.tokens or other_than == self.tokens[-1]:
            raise TokensUnreadable("no key")
        return await super().get_token(other_than=other_than, **options)


class Upstream(httpx2.AsyncBaseTransport):
    """Accepts one token; answers others with this status."""

    def __init__(self, accepted: str | None, status: int = 401) -> None:
        self._accepted = None if accepted is None else f"Bearer {accepted}"
        self._status = status
        self.shown: list[str | None] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.shown.append(request.headers.get("authorization"))
        is_accepted = self.shown[-1] == self._accepted
        challenge = {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'}
        return httpx2.Response(200 if is_accepted else self._status, headers=challenge)


async def send(upstream: Upstream, tokens: ScriptedTokens, url: str = URL, *, body: bytes = b"{}") -> int:
    transport = BearerTokenTransport(upstream, tokens, url=URL)
    return (await transport.handle_async_request(httpx2.Request("POST", url, content=body))).status_code


async def test_a_request_carries_the_token() -> None:
    upstream = Upstream("one")

    assert await send(upstream, ScriptedTokens("one")) == 200
    assert upstream.shown == ["Bearer one"]


async def test_a_refused_request_is_sent_once_more_with_another_token() -> None:
    upstream = Upstream("two")

    assert await send(upstream, ScriptedTokens("one", "two")) == 200
    assert upstream.shown == ["Bearer one", "Bearer two"]


async def test_a_request_that_is_refused_twice_requires_a_login() -> None:
    upstream, tokens = Upstream("three"), ScriptedTokens("one", "two")
    with pytest.raises(LoginRequired):
        await send(upstream, tokens)

    assert upstream.shown == ["Bearer one", "Bearer two"]
    assert [token for _, token in tokens.refusals] == ["two"]


async def test_a_request_without_a_token_is_sent_again_after_a_login_in_between() -> None:
    upstream = Upstream("new")

    assert await send(upstream, ScriptedTokens(None, "new")) == 200
    assert upstream.shown == [None, "Bearer new"]


async def test_a_refused_request_without_a_token_is_sent_once() -> None:
    upstream = Upstream("one")
    with pytest.raises(LoginRequired):
        await send(upstream, ScriptedTokens(None))

    assert upstream.shown == [None]


@pytest.mark.parametrize(
    ("body", "is_handshake"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, "method": "initialize"}', True),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "server/discover"}', True),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "initialize"}}', False),
        (b"[]", False),
        (b"", False),
    ],
)
async def test_a_refusal_says_whether_it_is_that_of_a_handshake(body: bytes, *, is_handshake: bool) -> None:
    tokens = ScriptedTokens("one", "two")
    with pytest.raises(LoginRequired):
        await send(Upstream("three"), tokens, body=body)

    ((refusal, _),) = tokens.refusals
    assert refusal.is_handshake == is_handshake
    assert tokens.first_refusals == [refusal]


async def test_a_refusal_without_an_explanation_is_shown_as_it_is() -> None:
    upstream, tokens = Upstream("one"), ScriptedTokens(None)
    tokens.failure = None

    assert await send(upstream, tokens) == 401


async def test_a_demand_for_a_scope_is_explained_and_not_repeated() -> None:
    upstream, tokens = Upstream("other", status=403), ScriptedTokens("one")
    with pytest.raises(LoginRequired):
        await send(upstream, tokens)

    ((refusal, token),) = tokens.refusals
    assert refusal.requires_scope
    assert (refusal.scope, token) == ("write", "one")
    assert upstream.shown == ["Bearer one"]


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/mcp",
        "http://mcp.example/mcp",
        "https://mcp.example:8443/mcp",
        "https://mcp.example.evil/mcp",
    ],
)
async def test_another_origin_gets_no_token(url: str) -> None:
    upstream, tokens = Upstream(None, status=200), ScriptedTokens("one")
    await send(upstream, tokens, url)

    assert upstream.shown == [None]


async def test_a_refusal_by_another_origin_is_no_reason_to_sign_in_and_gets_no_token() -> None:
    upstream, tokens = Upstream("two"), ScriptedTokens("one", "two")

    assert await send(upstream, tokens, "https://evil.example/mcp") == 401
    assert (upstream.shown, tokens.refusals) == ([None], [])


@pytest.mark.parametrize("url", ["https://MCP.example/mcp", "https://mcp.example:443/mcp", "https://mcp.example/other"])
async def test_the_same_origin_in_other_words_gets_the_token(url: str) -> None:
    assert await send(Upstream("one"), ScriptedTokens("one"), url) == 200


class RecordingUpstream(Upstream):
    """Notes its requests among those of the record that they have: what is stored of the call, in order."""

    def __init__(self, accepted: str | None, status: int = 401) -> None:
        super().__init__(accepted, status)
        self.steps: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.steps.append("request")
        return await super().handle_async_request(request)

    async def record_unsent(self) -> None:
        self.steps.append("unsent")

    async def record_dispatch(self) -> None:
        self.steps.append("dispatch")

    async def send(self, tokens: ScriptedTokens) -> None:
        request = httpx2.Request("POST", URL, content=b"{}", extensions={DISPATCH_RECORD: self})
        await BearerTokenTransport(self, tokens, url=URL).handle_async_request(request)


async def test_a_call_that_waits_for_its_first_token_is_recorded_as_unsent_until_it_goes_out() -> None:
    upstream, tokens = RecordingUpstream("one"), ScriptedTokens("one")
    tokens.refreshes = True

    await upstream.send(tokens)
    assert upstream.steps == ["unsent", "dispatch", "request"]


async def test_a_call_that_is_sent_again_with_a_token_at_hand_is_recorded_as_sent_all_the_time() -> None:
    upstream = RecordingUpstream("two")

    await upstream.send(ScriptedTokens("one", "two"))
    assert upstream.steps == ["dispatch", "request", "dispatch", "request"]


@pytest.mark.parametrize(("given", "steps"), [([], ["unsent"]), (["one"], ["dispatch", "request", "unsent"])])
async def test_a_call_whose_tokens_only_another_node_can_read_is_recorded_as_unsent(
    given: list[str], steps: list[str]
) -> None:
    upstream, tokens = RecordingUpstream("two"), UnreadableLogin(*given)

    with pytest.raises(TokensUnreadable):
        await upstream.send(tokens)
    assert upstream.steps == steps


@pytest.mark.parametrize("status", [401, 403])
async def test_a_call_that_requires_a_login_is_recorded_as_unsent(status: int) -> None:
    upstream = RecordingUpstream(None, status)

    with pytest.raises(LoginRequired):
        await upstream.send(ScriptedTokens("one"))
    assert upstream.steps == ["dispatch", "request", "unsent"]
