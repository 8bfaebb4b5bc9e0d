"""Fixtures for the tests of upstreams."""

import pytest

from ringback.upstreams import proxy
from ringback.upstreams.subscriptions import resource_subscriptions


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the waits for an unreachable upstream."""
    monkeypatch.setattr(proxy, "CONNECT_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(resource_subscriptions, "RETRY_SECONDS", 0.05)
