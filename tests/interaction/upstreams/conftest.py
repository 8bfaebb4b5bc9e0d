"""What the tests of upstreams share."""

import pytest

from ringback.upstreams import proxy as passage
from ringback.upstreams.subscriptions import resource_subscriptions as watching


@pytest.fixture
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream that is away is not waited for as long as it would be."""
    monkeypatch.setattr(passage, "CONNECT_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(watching, "RETRY_SECONDS", 0.05)
