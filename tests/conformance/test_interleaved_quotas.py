"""Quotas that units of two nodes check at the same time: no two of them take the last place."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ringback.domain.call import Call
from ringback.domain.errors import QuotaExceeded
from ringback.domain.webhook import Webhook
from ringback.services.access import portal_links
from ringback.services.access.portal_links import CreatedPortalLink
from ringback.services.calls.reports import CallReport
from ringback.services.webhooks.registrations import WebhookRegistration
from tests.support.clock import FakeClock
from tests.support.interleaving import CALLER, Node, Nodes, open_nodes

URL: Final = "http://127.0.0.1:1/callback"
REPORT: Final = CallReport(key="key", upstream="git", tool="git_log")
REGISTRATION: Final = WebhookRegistration(url=URL)


async def report(node: Node, key: str) -> Call:
    return (await node.services.reports.record_report(CALLER, replace(REPORT, key=key))).call


async def register(node: Node) -> Webhook:
    return (await node.services.registrations.register_webhook(CALLER, REGISTRATION)).webhook


async def test_the_quota_of_open_calls_is_exact(tmp_path: Path, clock: FakeClock) -> None:
    async with open_nodes(tmp_path, clock, quota_open_calls=5) as nodes:
        outcomes = await asyncio.gather(
            *(report((nodes.first, nodes.second)[number % 2], key=f"key-{number}") for number in range(40)),
            return_exceptions=True,
        )

        assert sum(isinstance(outcome, Call) for outcome in outcomes) == 5
        assert all(isinstance(outcome, Call | QuotaExceeded) for outcome in outcomes)


async def test_the_quota_of_webhooks_is_exact(tmp_path: Path, clock: FakeClock) -> None:
    async with open_nodes(tmp_path, clock, quota_webhooks=3) as nodes:
        outcomes = await asyncio.gather(
            *(register((nodes.first, nodes.second)[number % 2]) for number in range(12)), return_exceptions=True
        )

        assert sum(isinstance(outcome, Webhook) for outcome in outcomes) == 3


async def test_the_quota_of_portal_links_is_exact(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portal_links, "PORTAL_LINKS_MAX", 1)

    async def make_link(node: Node) -> object:
        return await node.services.portal_links.create_link(CALLER, client_session_id=None, lifetime_seconds=60.0)

    made, refused = await nodes.interleave(make_link, make_link)

    assert isinstance(made, CreatedPortalLink)
    assert isinstance(refused, QuotaExceeded)
