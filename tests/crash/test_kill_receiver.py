"""A receiver with an inbox is killed with SIGKILL: every acknowledged callback is in the inbox once, and is handled."""

import asyncio
import itertools
import json
import random
import sqlite3
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from ringback.domain.clock import SystemClock
from ringback.signing.standard_webhooks import build_signed_headers
from tests.support.limits import WAIT_SECONDS
from tests.support.processes import running_process
from tests.support.signed_posts import SECRET, make_event_body
from tests.support.upstreams import wait_until_true

MODULE = "tests.crash.receiving_process"


@pytest.fixture
async def client() -> AsyncGenerator[httpx.AsyncClient]:
    """One for all posts: making a client costs more than a post."""
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
        yield client


async def post_callback(client: httpx.AsyncClient, url: str, event_id: str, session: str) -> bool:
    """Whether the callback was acknowledged."""
    body = json.dumps(make_event_body(event_id, client_session_id=session)).encode()
    timestamp = int(SystemClock().now().timestamp())
    headers = build_signed_headers([SECRET], message_id=event_id, timestamp=timestamp, body=body)
    try:
        return (await client.post(url, content=body, headers=headers)).status_code == 204
    except httpx.TransportError:
        return False


def read_lines(folder: Path) -> list[str]:
    file = folder / "handled.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def count_stored(folder: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(folder / "inbox.db")) as connection:
        return connection.execute(
            "SELECT message_id, count(*) FROM messages GROUP BY message_id ORDER BY min(number)"
        ).fetchall()


@pytest.mark.requirement("R21")
async def test_a_callback_whose_handler_was_killed_is_handled_after_the_restart(
    tmp_path: Path, client: httpx.AsyncClient
) -> None:
    async with running_process(module=MODULE, folder=str(tmp_path), hold=True) as receiver:
        assert await post_callback(client, receiver.url, "evt_1", "s1")
        await wait_until_true(lambda: read_lines(tmp_path) == ["begin s1 evt_1"])
        assert await post_callback(client, receiver.url, "evt_2", "s1")
        await receiver.kill()

    async with running_process(module=MODULE, folder=str(tmp_path), hold=False) as receiver:
        await wait_until_true(lambda: len(read_lines(tmp_path)) == 5)
        assert await post_callback(client, receiver.url, "evt_1", "s1")
        assert await post_callback(client, receiver.url, "evt_3", "s1")
        await wait_until_true(lambda: len(read_lines(tmp_path)) == 7)
        await receiver.kill()

    begun = [f"{step} s1 evt_{number}" for number, step in itertools.product((1, 2, 3), ("begin", "end"))]
    assert read_lines(tmp_path) == ["begin s1 evt_1", *begun]
    assert count_stored(tmp_path) == [("evt_1", 1), ("evt_2", 1), ("evt_3", 1)]


async def test_a_receiver_that_is_killed_again_and_again_under_load_loses_no_acknowledged_callback(
    tmp_path: Path, client: httpx.AsyncClient, *, deep: bool
) -> None:
    """Its senders repeat what was not acknowledged, as Ringback does."""
    chance, kills = random.Random(7), 50 if deep else 5
    unacknowledged = [(f"evt_{number}", f"s{number % 5}") for number in range(kills * 20)]

    for _ in range(kills):
        async with running_process(module=MODULE, folder=str(tmp_path), hold=False) as receiver:
            batch = unacknowledged[:20]
            posts = [asyncio.create_task(post_callback(client, receiver.url, *each)) for each in batch]
            acknowledged = chance.randrange(1, 20)
            for done in itertools.islice(asyncio.as_completed(posts), acknowledged):
                await done
            await receiver.kill()
            kept = [each for each, taken in zip(batch, await asyncio.gather(*posts), strict=True) if not taken]
            unacknowledged = [*kept, *unacknowledged[20:]]

    async with running_process(module=MODULE, folder=str(tmp_path), hold=False) as receiver:
        for event_id, session in unacknowledged:
            assert await post_callback(client, receiver.url, event_id, session)
        await wait_until_true(lambda: not find_unhandled(tmp_path, kills * 20))
        await receiver.kill()

    stored = count_stored(tmp_path)
    assert {count for _, count in stored} == {1}
    assert len(stored) == kills * 20
    assert_order_kept_per_session(tmp_path, [event_id for event_id, _ in stored])


def find_unhandled(folder: Path, count: int) -> set[str]:
    ended = {line.split(" ")[2] for line in read_lines(folder) if line.startswith("end ")}
    return {f"evt_{number}" for number in range(count)} - ended


def assert_order_kept_per_session(folder: Path, arrived: list[str]) -> None:
    """The first ends of a session's callbacks are in the order in which the inbox stored them."""
    place = {event_id: number for number, event_id in enumerate(arrived)}
    by_session: defaultdict[str, list[int]] = defaultdict(list)
    for line in dict.fromkeys(read_lines(folder)):
        step, session, event_id = line.split(" ")
        if step == "end":
            by_session[session].append(place[event_id])
    assert by_session
    assert all(places == sorted(places) for places in by_session.values())
