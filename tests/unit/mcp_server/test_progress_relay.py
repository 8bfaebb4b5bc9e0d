"""Progress is sent under the client's token, and only when it increases, from each source."""

from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp_types import LOG_LEVEL_META_KEY

from ringback.domain.call import Progress
from ringback.domain.upstreams import UpstreamNotification
from ringback.mcp_server.progress_relay import ProgressRelay, get_log_level, set_log_level
from ringback.mcp_server.request_context import RequestContext
from tests.support.examples import CALL


class FakeClientSession:
    """A request context whose client records the notifications that it receives."""

    def __init__(self, *, meta: dict[str, Any] | None = None, is_modern: bool = False) -> None:
        self.sent_notifications: list[tuple[str, dict[str, Any]]] = []
        self._connection = SimpleNamespace(state=dict[str, Any]())
        self.context = cast(
            "RequestContext",
            SimpleNamespace(
                meta=meta or {},
                is_modern=is_modern,
                stream_request=None,
                sdk_context=SimpleNamespace(session=self, request_id=1),
            ),
        )

    async def send_notification(self, notification: Any, related_request_id: int) -> None:
        assert related_request_id == 1
        self.sent_notifications.append((notification.method, notification.params))


async def progress_events(*progress: float) -> AsyncIterator[UpstreamNotification]:
    for each in progress:
        yield UpstreamNotification(method="notifications/progress", params={"progress": each})


async def test_decreasing_progress_is_not_sent() -> None:
    client = FakeClientSession(meta={"progress_token": "t"})
    relay = ProgressRelay(client.context)
    await relay.relay_notifications(progress_events(1, 3, 2, 3))
    await relay.relay_stored_progress(replace(CALL, progress=Progress(progress=3, total=4)))
    await relay.relay_stored_progress(replace(CALL, progress=Progress(progress=4, total=4, message="done")))
    assert [params for _, params in client.sent_notifications] == [
        {"progressToken": "t", "progress": 1},
        {"progressToken": "t", "progress": 3},
        {"progressToken": "t", "progress": 4, "total": 4, "message": "done"},
    ]


async def test_without_a_token_no_progress_is_sent() -> None:
    client = FakeClientSession()
    await ProgressRelay(client.context).relay_notifications(progress_events(1, 2))
    assert client.sent_notifications == []


async def test_zero_is_a_valid_progress_token() -> None:
    client = FakeClientSession(meta={"progress_token": 0})
    await ProgressRelay(client.context).relay_notifications(progress_events(1))
    assert client.sent_notifications == [("notifications/progress", {"progressToken": 0, "progress": 1})]


def test_a_session_keeps_its_log_level_however_many_others_set_theirs() -> None:
    first = FakeClientSession()
    set_log_level(first.context, "error")
    for _ in range(10_001):
        set_log_level(FakeClientSession().context, "debug")
    assert get_log_level(first.context) == "error"
    assert get_log_level(FakeClientSession().context) is None


@pytest.mark.parametrize(("level", "known"), [("error", "error"), ("loud", None), ({}, None), (["error"], None)])
def test_a_log_level_of_a_request_counts_if_it_is_one(level: Any, known: str | None) -> None:
    client = FakeClientSession(meta={LOG_LEVEL_META_KEY: level}, is_modern=True)
    assert get_log_level(client.context) == known
