"""Requests that arrive together start in several turns of the event loop, and a peer with many of them delays no other peer."""

import asyncio
from functools import partial

from ringback.http_server.request_turns import REQUESTS_IN_TURN, RequestTurns


async def test_a_hundred_requests_of_one_peer_start_a_few_in_each_turn_and_another_peers_request_in_the_next() -> None:
    turns, started = RequestTurns(), list[str]()
    for number in range(100):
        turns.start_request("greedy", partial(started.append, f"greedy {number}"))
    turns.start_request("quiet", partial(started.append, "quiet"))
    assert started == [f"greedy {number}" for number in range(REQUESTS_IN_TURN)]

    await asyncio.sleep(0)

    assert len(started) == 2 * REQUESTS_IN_TURN
    assert "quiet" in started
    while len(started) < 101:
        before = len(started)
        await asyncio.sleep(0)
        assert 0 < len(started) - before <= REQUESTS_IN_TURN
    greedy = [name for name in started if name != "quiet"]
    assert greedy == [f"greedy {number}" for number in range(100)]
    await asyncio.sleep(0)
    turns.start_request("quiet", partial(started.append, "at once"))
    assert started[-1] == "at once"


async def test_a_peer_whose_requests_wait_gets_turns_like_one_that_sends_a_new_request_each_turn() -> None:
    turns, started = RequestTurns(), list[str]()
    for number in range(20):
        turns.start_request("burst", partial(started.append, f"burst {number}"))
    for _ in range(10):
        for _ in range(REQUESTS_IN_TURN):
            turns.start_request("steady", partial(started.append, "steady"))
        await asyncio.sleep(0)

    assert [name for name in started if name != "steady"] == [f"burst {number}" for number in range(20)]
