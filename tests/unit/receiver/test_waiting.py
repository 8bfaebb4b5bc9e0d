"""A waiter gets the callback with its correlation id, once."""

import asyncio

import pytest

from ringback.receiver import ReceiverApp
from ringback.receiver.app import WAITABLE_BYTES_MAX
from tests.support.limits import WAIT_SECONDS
from tests.support.recording_handler import RecordingHandler, make_app
from tests.support.signed_posts import NOW, SECRET, make_event_body, post_signed


@pytest.mark.requirement("R21")
async def test_waiting_for_a_correlation_id_ends_with_its_callback() -> None:
    app = make_app(RecordingHandler())

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(app.wait_for(correlation_id="c2", timeout_seconds=WAIT_SECONDS))
        await post_signed(app, make_event_body("evt_1", correlation_id="c1"))
        await post_signed(app, make_event_body("evt_2", correlation_id="c2", call_id="call_2"))

    assert waiting.result().call_id == "call_2"


async def test_a_callback_that_came_before_anybody_waited_is_still_there_but_only_once() -> None:
    app = make_app(RecordingHandler())
    await post_signed(app, make_event_body())
    await post_signed(app, make_event_body())

    assert (await app.wait_for(correlation_id="c1", timeout_seconds=WAIT_SECONDS)).event_id == "evt_1"
    with pytest.raises(TimeoutError):
        await app.wait_for(correlation_id="c1", timeout_seconds=0)


async def test_large_callbacks_that_no_waiter_receives_fill_the_memory_only_up_to_a_limit() -> None:
    app = ReceiverApp(SECRET, clock=lambda: NOW)
    for number in range(2 + WAITABLE_BYTES_MAX // 250_000):
        body = make_event_body(f"evt_{number}", correlation_id=f"c{number}", result="x" * 250_000)
        assert (await post_signed(app, body)).status_code == 204

    for number in (0, 1):
        with pytest.raises(TimeoutError):
            await app.wait_for(correlation_id=f"c{number}", timeout_seconds=0)
    assert (await app.wait_for(correlation_id="c3", timeout_seconds=0)).event_id == "evt_3"


async def test_waiters_do_not_get_a_callback_that_the_handler_has_not_accepted() -> None:
    app = make_app(RecordingHandler(failures=1))

    await post_signed(app, make_event_body())
    with pytest.raises(TimeoutError):
        await app.wait_for(correlation_id="c1", timeout_seconds=0)

    await post_signed(app, make_event_body())
    assert (await app.wait_for(correlation_id="c1", timeout_seconds=0)).event_id == "evt_1"
