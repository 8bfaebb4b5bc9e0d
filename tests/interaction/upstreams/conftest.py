"""Fixtures for the tests of upstreams."""

import pytest

from ringback.upstreams import proxy
from ringback.upstreams.subscriptions import resource_subscriptions


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the pause between two attempts to subscribe."""
    monkeypatch.setattr(resource_subscriptions, "RETRY_SECONDS", 0.05)


@pytest.fixture
def unreachable_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends the wait for an upstream that the test has stopped. Only for requests that need no connection."""
    monkeypatch.setattr(proxy, "CONNECT_WAIT_SECONDS", 0.2)
