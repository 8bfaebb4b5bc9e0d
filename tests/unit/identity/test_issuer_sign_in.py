"""The sign-in of people at the issuer, without a socket."""

import asyncio
import os

import httpx
import pytest

from ringback.domain.errors import IssuerUnavailable
from ringback.identity.issuer_sign_in import IssuerSignIn, SignInClient
from tests.support.clock import FakeClock
from tests.support.token_issuer import FakeTokenIssuer


async def test_all_that_wait_for_the_issuer_share_one_fetch_also_one_that_fails(
    issuer: FakeTokenIssuer, clock: FakeClock
) -> None:
    """One after the other, the hundredth would wait for the issuer a hundred times as long as the first."""
    client = SignInClient(
        client_id="dashboard", redirect_uri="https://r.example/callback", resource="https://r.example"
    )
    issuer.unreachable = True
    issuer.may_respond.clear()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(issuer)) as http:
        sign_in = IssuerSignIn(issuer.url, client, http=http, clock=clock, random_bytes=os.urandom)
        beginning = [asyncio.create_task(sign_in.begin()) for _ in range(20)]
        await issuer.request_arrived.wait()
        issuer.may_respond.set()
        refused = await asyncio.gather(*beginning, return_exceptions=True)
        requested = len(issuer.requested_paths)

        with pytest.raises(IssuerUnavailable):
            await sign_in.begin()
        issuer.unreachable = False
        url, _ = await sign_in.begin()

    assert [type(each) for each in refused] == [IssuerUnavailable] * 20
    assert requested == 1
    assert url.startswith(f"{issuer.url}/authorization?"), "the next one asks again"
