"""Requests that arrive together start in several turns of the event loop, and a peer with many of them delays no other peer."""

import asyncio
from collections.abc import Callable
from functools import partial

from ringback.loop_turns import LoopTurns
from tests.support.limits import WAIT_SECONDS

IN_TURN = 4


async def test_a_hundred_requests_of_one_peer_start_a_few_in_each_turn_and_another_peers_request_in_the_next() -> None:
    turns, started = LoopTurns(IN_TURN), list[str]()
    for number in range(100):
        turns.run("greedy", partial(started.append, f"greedy {number}"))
    turns.run("quiet", partial(started.append, "quiet"))
    assert started == [f"greedy {number}" for number in range(IN_TURN)]

    await asyncio.sleep(0)

    assert len(started) == 2 * IN_TURN
    assert "quiet" in started
    while len(started) < 101:
        before = len(started)
        await asyncio.sleep(0)
        assert 0 < len(started) - before <= IN_TURN
    greedy = [name for name in started if name != "quiet"]
    assert greedy == [f"greedy {number}" for number in range(100)]
    await asyncio.sleep(0)
    turns.run("quiet", partial(started.append, "at once"))
    assert started[-1] == "at once"


async def test_requests_of_no_known_peer_start_in_later_turns_too() -> None:
    """A request through a trusted proxy has no peer."""
    turns, started = LoopTurns(IN_TURN), list[int]()
    for number in range(2 * IN_TURN):
        turns.run(None, partial(started.append, number))

    await asyncio.sleep(0)

    assert started == list(range(2 * IN_TURN))


async def test_a_peer_whose_requests_wait_gets_turns_like_one_that_sends_a_new_request_each_turn() -> None:
    turns, started = LoopTurns(IN_TURN), list[str]()
    for number in range(20):
        turns.run("burst", partial(started.append, f"burst {number}"))
    for _ in range(10):
        for _ in range(IN_TURN):
            turns.run("steady", partial(started.append, "steady"))
        await asyncio.sleep(0)

    assert [name for name in started if name != "steady"] == [f"burst {number}" for number in range(20)]


async def test_those_who_wait_go_on_a_few_in_each_turn_and_one_that_gave_up_delays_no_other() -> None:
    turns, passed = LoopTurns(IN_TURN), list[str]()

    async def wait(owner: str) -> None:
        await turns.wait(owner)
        passed.append(owner)

    tasks = [asyncio.create_task(wait("greedy")) for _ in range(20)]
    tasks.append(asyncio.create_task(wait("quiet")))
    await asyncio.sleep(0)
    tasks[IN_TURN].cancel()
    for _ in range(2):
        await asyncio.sleep(0)
    assert "quiet" in passed
    await asyncio.wait(tasks)

    assert passed.count("greedy") == 19


async def test_what_waits_pauses_after_a_turn_in_which_the_loop_was_busy_and_goes_on_at_once_while_it_is_idle() -> None:
    now, paused = [0.0], asyncio.Event()
    turns = LoopTurns(1, pause_factor=1.0, now=lambda: now[0])
    passed = list[str]()
    turns.run("stream", partial(passed.append, "first"))
    turns.run("stream", partial(passed.append, "beside other work"))
    now[0] += 10.0  # the pause is bounded, or the test waits for ten seconds
    for _ in range(5):
        await asyncio.sleep(0)
    assert passed == ["first"]

    turns.run("stream", paused.set)
    await asyncio.wait_for(paused.wait(), WAIT_SECONDS)

    assert passed == ["first", "beside other work"]


async def test_an_owner_rests_for_some_turns_after_each_of_its_works_and_no_other_owner_waits_for_it() -> None:
    turns, started, turn_numbers = LoopTurns(IN_TURN, rest_turns=3), list[str](), list[int]()
    for number in range(5):
        turns.run("burst", partial(started.append, f"burst {number}"))
    turns.run("quiet", partial(started.append, "quiet"))
    assert started == ["burst 0", "quiet"]

    for turn in range(1, 21):
        before = len(started)
        await asyncio.sleep(0)
        turn_numbers += [turn] * (len(started) - before)

    assert started == ["burst 0", "quiet", *(f"burst {number}" for number in range(1, 5))]
    assert turn_numbers == [4, 8, 12, 16]
    turns.run("burst", partial(started.append, "after its rest"))
    assert started[-1] == "after its rest"


async def test_work_that_has_become_needless_takes_no_turn_and_its_owner_does_not_rest_for_it() -> None:
    turns, started = LoopTurns(1, rest_turns=3), list[str]()
    turns.run("other", partial(started.append, "other"))
    for _ in range(50):
        turns.run("burst", lambda: False)
    turns.run("burst", partial(started.append, "needed"))

    await asyncio.sleep(0)

    assert started == ["other", "needed"]


async def test_a_wait_that_is_not_needed_any_more_ends_without_a_turn() -> None:
    turns, passed = LoopTurns(1), list[str]()
    needed = True

    async def wait(name: str, is_needed: Callable[[], bool]) -> None:
        await turns.wait("stream", is_needed)
        passed.append(name)

    tasks = [asyncio.create_task(wait(f"gone {number}", lambda: needed)) for number in range(50)]
    tasks.append(asyncio.create_task(wait("there", lambda: True)))
    await asyncio.sleep(0)
    needed = False
    for _ in range(3):
        await asyncio.sleep(0)

    assert "there" in passed
    await asyncio.wait(tasks)
    await asyncio.create_task(wait("at once", lambda: False))
    assert passed[-1] == "at once"
