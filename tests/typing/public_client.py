# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""What a user's type checker sees of `ringback.client`. Pyright reads this file in scripts/check; nothing runs it."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, assert_type

from ringback.client import (
    Call,
    CallbackOptions,
    Delivery,
    Event,
    EventPage,
    EventStream,
    PublicKey,
    RegisteredWebhook,
    Resumed,
    RingbackClient,
    Started,
    SyncEventStream,
    SyncRingbackClient,
    Webhook,
)


async def use_the_asynchronous_client() -> None:
    async with RingbackClient("http://127.0.0.1:8090", api_key="rbk_x") as ringback:
        assert_type(ringback, RingbackClient)
        started = await ringback.start_call(
            "git", "git_log", {"repo_path": "."}, callback=CallbackOptions(url="https://agent.example/")
        )
        assert_type(started, Started)
        assert_type(started.call, Call)
        assert_type(started.resume_token, str)
        assert_type(started.result, Mapping[str, Any] | None)
        assert_type(await ringback.wait(started.call.id, timeout_seconds=60), Call)
        assert_type(await ringback.wait_any([started.call.id]), Sequence[Call])
        assert_type(await ringback.wait_calls(correlation_id="c1"), Sequence[Call])
        assert_type(await ringback.resume(started.resume_token), Resumed)
        assert_type(await ringback.register_webhook("https://agent.example/", ordered=True), RegisteredWebhook)
        assert_type(await ringback.poll_events(limit=5), EventPage)
        assert_type(await ringback.public_keys(), Sequence[PublicKey])
        assert_type(ringback.calls(status="working"), AsyncGenerator[Call])
        assert_type([delivery async for delivery in ringback.deliveries()], list[Delivery])
        async with ringback.stream_events(cursor=None) as stream:
            assert_type(stream, EventStream)
            async for event in stream:
                assert_type(event, Event)
                assert_type(stream.cursor, str | None)


def use_the_synchronous_client() -> None:
    with SyncRingbackClient("http://127.0.0.1:8090", api_key="rbk_x") as ringback:
        assert_type(ringback, SyncRingbackClient)
        started = ringback.start_call("git", "git_log", {"repo_path": "."}, correlation_id="c1")
        assert_type(started, Started)
        assert_type(ringback.wait(started.call.id), Call)
        assert_type(ringback.result(started.call.id), Mapping[str, Any])
        assert_type(ringback.resume(started.resume_token), Resumed)
        assert_type(ringback.register_webhook("https://agent.example/", retries="days"), RegisteredWebhook)
        assert_type(ringback.delete_webhook("wh_1"), None)
        assert_type(ringback.webhooks(), Iterator[Webhook])
        assert_type(list(ringback.calls()), list[Call])
        with ringback.stream_events() as stream:
            assert_type(stream, SyncEventStream)
            for event in stream:
                assert_type(event, Event)
                assert_type(stream.is_truncated, bool)


async def misuse_the_clients(ringback: RingbackClient, sync: SyncRingbackClient) -> None:
    """Pyright's strict mode reports an unneeded ignore, so each line here is an error that a user sees."""
    await ringback.start_call("git")  # pyright: ignore[reportCallIssue]
    await ringback.register_webhook("https://agent.example/", retries="weeks")  # pyright: ignore[reportArgumentType]
    await ringback.change_webhook("wh_1", state="asleep")  # pyright: ignore[reportArgumentType]
    sync.start_call("git", "git_log", callback={"secret": "whsec_x"})  # pyright: ignore[reportArgumentType]
    sync.call(1)  # pyright: ignore[reportArgumentType]
