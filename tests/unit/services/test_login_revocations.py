"""Revocations run beside requests, in a bounded number."""

import asyncio

from ringback.services.logins.login_tokens import REVOCATIONS_MAX, LoginRevocations
from tests.support.login_flow import ScriptedLoginFlow
from tests.support.logins import make_tokens


async def test_only_so_many_revocations_run_at_the_same_time() -> None:
    flow = ScriptedLoginFlow()
    revocations = LoginRevocations(flow)
    for _ in range(REVOCATIONS_MAX + 1):
        revocations.revoke_later(make_tokens())
    await asyncio.sleep(0)
    revoked = len(flow.revoked)
    await asyncio.sleep(0)
    revocations.revoke_later(make_tokens())
    await asyncio.sleep(0)

    assert (revoked, len(flow.revoked)) == (REVOCATIONS_MAX, REVOCATIONS_MAX + 1)
