"""Tokens of a configured client: the caller is notified before the authorization server is asked."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ringback.domain import jsontext
from ringback.domain.client_address import Address
from ringback.protocol.errors import CredentialsRejected
from ringback.upstreams.config import ClientCredentials
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.client_credentials import (
    REFUSED_AGE_SECONDS,
    RETRY_SECONDS,
    ClientCredentialsTokens,
)
from tests.support.clock import FakeClock


async def refuse_look_up(host: str) -> Sequence[Address]:
    raise AssertionError(host)


class ScriptedCredentials(ClientCredentialsTokens):
    def __init__(self) -> None:
        credentials = ClientCredentials(
            token_url="https://issuer.example/token", client_id="ringback", client_secret="s"
        )
        self.clock = FakeClock()
        super().__init__(credentials, look_up=refuse_look_up, clock=self.clock)
        self.steps: list[str] = []
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()
        self.refusal: Any = None

    async def note_wait(self) -> None:
        self.steps.append("wait")

    async def _post_form(self) -> tuple[int, bytes | None]:
        self.steps.append("request")
        self.is_asked.set()
        await self.may_answer.wait()
        if self.refusal is not None:
            return 401, jsontext.dumps({"error": self.refusal})
        token = f"token-{self.steps.count('request')}"
        return 200, jsontext.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 3600})


async def test_a_caller_is_notified_before_a_token_request_and_not_if_a_token_is_at_hand() -> None:
    tokens = ScriptedCredentials()

    assert [await tokens.get_token(on_wait=tokens.note_wait) for _ in range(2)] == ["token-1", "token-1"]
    assert tokens.steps == ["wait", "request"]
    assert await tokens.get_token(other_than="token-1", on_wait=tokens.note_wait) == "token-2"
    assert await tokens.get_token(other_than="token-1", on_wait=tokens.note_wait) == "token-2"
    assert tokens.steps == ["wait", "request"] * 2


async def test_a_caller_is_notified_before_it_waits_for_the_fetch_of_another_though_the_old_token_looks_fresh() -> None:
    tokens = ScriptedCredentials()
    old = await tokens.get_token()
    tokens.is_asked.clear()
    tokens.may_answer.clear()
    refused = asyncio.create_task(tokens.get_token(other_than=old))
    await tokens.is_asked.wait()

    waiting = asyncio.create_task(tokens.get_token(on_wait=tokens.note_wait))
    tokens.may_answer.set()

    assert await asyncio.gather(refused, waiting) == ["token-2", "token-2"]
    assert tokens.steps == ["request", "request", "wait"]


@pytest.mark.parametrize(
    ("refusal", "shown"),
    [
        ("invalid_client", ": invalid_client."),
        ("hostile words", "client."),
        ({"code": 401}, "client."),
        ([], "client."),
    ],
)
async def test_a_refused_client_is_rejected_whatever_the_error_is_and_only_known_codes_are_shown(
    refusal: Any, shown: str
) -> None:
    tokens = ScriptedCredentials()
    tokens.refusal = refusal
    with pytest.raises(CredentialsRejected) as raised:
        await tokens.get_token()

    assert str(raised.value).endswith(shown)


@pytest.mark.requirement("R11")
async def test_after_a_failed_token_request_the_authorization_server_is_not_asked_for_some_seconds() -> None:
    """Each call sent a token request: to a server that restarts, as many as its upstream gets calls."""
    tokens = ScriptedCredentials()
    tokens.refusal = "invalid_client"
    for _ in range(100):
        with pytest.raises(CredentialsRejected):
            await tokens.get_token()
    assert tokens.steps == ["request"]

    tokens.refusal = None
    tokens.clock.advance(RETRY_SECONDS)
    assert await tokens.get_token() == "token-2"


async def test_a_token_that_expires_soon_is_used_while_no_other_one_can_be_fetched() -> None:
    tokens = ScriptedCredentials()
    await tokens.get_token()
    tokens.refusal = "server_error"
    tokens.clock.advance(3599)

    assert [await tokens.get_token() for _ in range(3)] == ["token-1"] * 3
    assert tokens.steps == ["request"] * 2
    with pytest.raises(CredentialsRejected):
        await tokens.get_token(other_than="token-1")
    tokens.clock.advance(1)
    with pytest.raises(CredentialsRejected):
        await tokens.get_token()
    assert tokens.steps == ["request"] * 2


@pytest.mark.requirement("R11")
async def test_a_new_token_is_not_replaced_because_one_request_is_refused() -> None:
    """Each call of a tool that always answers 401 sent a token request."""
    tokens = ScriptedCredentials()
    refused = await tokens.get_token()
    refusal = Refusal(status_code=401)

    assert [await tokens.get_token(other_than=refused, refusal=refusal) for _ in range(100)] == ["token-1"] * 100
    assert tokens.steps == ["request"]
    tokens.clock.advance(REFUSED_AGE_SECONDS)
    assert await tokens.get_token(other_than=refused, refusal=refusal) == "token-2"


@pytest.mark.parametrize("details", [{"error": "invalid_token"}, {"is_handshake": True}])
async def test_a_token_that_is_refused_for_every_request_is_replaced_at_once(details: dict[str, Any]) -> None:
    tokens = ScriptedCredentials()
    refused = await tokens.get_token()

    assert await tokens.get_token(other_than=refused, refusal=Refusal(status_code=401, **details)) == "token-2"
