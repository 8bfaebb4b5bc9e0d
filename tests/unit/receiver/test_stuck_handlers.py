"""A handler that catches its cancellation holds up its own session, and neither other sessions nor the end of the receiver."""

import asyncio
from pathlib import Path

import pytest

from ringback.receiver import Callback, handler_runs
from tests.support.inbox_receivers import FakeTime, Handler, abandon, make_app
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import make_event_body, post_signed


class StubbornHandler(Handler):
    """Catches every cancellation of the callbacks of session s1, until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()
        self.runs = 0

    async def handle(self, callback: Callback) -> None:
        if callback.client_session_id == "s1" and not self.released.is_set():
            self.runs += 1
            while not self.released.is_set():
                try:
                    await self.released.wait()
                except asyncio.CancelledError:
                    continue
            return
        await super().handle(callback)


@pytest.fixture(autouse=True)
def short_wait_for_cancelled_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_runs, "CANCELLATION_SECONDS", 0.01)


async def test_other_sessions_go_on_and_its_own_goes_on_after_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handler, time = StubbornHandler(), FakeTime()
    app = make_app(
        tmp_path, handler.handle, clock=time.read, sleep=time.sleep, handlers_max=1, handler_timeout_seconds=0.01
    )

    async with app:
        for event_id in ("evt_1", "evt_2"):
            await post_signed(app, make_event_body(event_id, client_session_id="s1"))
        await post_signed(app, make_event_body("evt_3", client_session_id="s2"))
        await handler.wait_until_handled(1)
        assert (handler.handled, handler.runs) == (["evt_3"], 1)
        handler.released.set()
        await handler.wait_until_handled(3)

    assert handler.handled == ["evt_3", "evt_1", "evt_2"]
    assert caplog.text.count("It must not catch CancelledError") >= 1


async def test_the_receiver_ends_beside_it(tmp_path: Path) -> None:
    handler = StubbornHandler()
    app = make_app(tmp_path, handler.handle, handler_timeout_seconds=0.01)
    await app.open()
    await post_signed(app, make_event_body("evt_1", client_session_id="s1"))

    async with asyncio.timeout(WAIT_SECONDS):
        await abandon(app)

    handler.released.set()
    again = Handler()
    async with make_app(tmp_path, again.handle) as app:
        await again.wait_until_handled(1)
    assert again.handled == ["evt_1"]
