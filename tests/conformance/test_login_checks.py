"""When calls that wait for a login are sent again without one."""

from collections.abc import Sequence

from ringback.domain.clock import seconds
from ringback.domain.clock_confirmation import latest_of_right_clock
from ringback.domain.ids import CallId
from ringback.domain.login_checks import CHECK_SECONDS_MAX, FIRST_CHECK_SECONDS, LoginCheck, first_check, next_check
from ringback.domain.login_waits import ANY_VERSION
from ringback.domain.ports import Store, Transaction
from ringback.domain.upkeep import Upkeep
from tests.support.builders import make_call
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

DUE = START + seconds(FIRST_CHECK_SECONDS)


async def find_due(store: Store, *, after_seconds: float = 0.0) -> LoginCheck | None:
    return await store.write(lambda tx: tx.login_checks.find_due(now=DUE + seconds(after_seconds)))


async def add_waits(store: Store, *versions: int) -> Sequence[CallId]:
    calls = [make_call() for _ in versions]

    async def add(tx: Transaction) -> None:
        for call, version in zip(calls, versions, strict=True):
            await tx.calls.insert(call)
            await tx.login_waits.add(call.id, "git", ALICE, tokens_version=version)

    await store.write(add)
    return [call.id for call in calls]


async def list_waiting(store: Store, tokens_version: int = ANY_VERSION) -> Sequence[CallId]:
    return await store.read(
        lambda tx: tx.login_waits.list_waiting("git", ALICE, tokens_version=tokens_version, limit=10)
    )


async def test_the_check_that_has_been_due_longest_is_next_and_its_pauses_double_up_to_a_limit(store: Store) -> None:
    alices, bobs = (first_check("git", owner, now=START) for owner in (ALICE, BOB))
    for check in (alices, bobs, first_check("git", ALICE, now=START + seconds(5))):
        await store.write(lambda tx, check=check: tx.login_checks.add(check))
    assert await find_due(store, after_seconds=-1) is None

    moved = next_check(alices, now=DUE)
    await store.write(lambda tx: tx.login_checks.replace(moved))
    assert (await find_due(store), moved.pause_seconds) == (bobs, 2 * FIRST_CHECK_SECONDS)
    await store.write(lambda tx: tx.login_checks.remove("git", BOB))
    assert await find_due(store) is None
    assert await find_due(store, after_seconds=moved.pause_seconds) == moved
    for _ in range(20):
        moved = next_check(moved, now=DUE)
    assert moved.pause_seconds == CHECK_SECONDS_MAX


async def test_a_check_that_a_clock_far_ahead_planned_is_due_once_the_clock_is_corrected(store: Store) -> None:
    """Otherwise the calls would wait for forty days, although the upstream asks for no login any more."""
    far = first_check("git", ALICE, now=START + seconds(40 * 86_400))
    await store.write(lambda tx: tx.login_checks.add(far))

    first = await store.read(lambda tx: tx.upkeep.find_first(due_after=DUE, latest=latest_of_right_clock(START)))

    assert first[Upkeep.LOGIN_CHECKS] <= START
    assert await find_due(store) == far
    await store.write(lambda tx: tx.login_checks.replace(next_check(far, now=START)))
    assert await find_due(store) is None


async def test_an_accepted_call_makes_a_resumption_of_all_that_wait_for_the_same_login_and_of_each_once(
    store: Store,
) -> None:
    accepted, *others = await add_waits(store, 7, 7, 9)
    await store.write(lambda tx: tx.login_checks.resume_others([accepted], now=START))
    resumption = await store.read(lambda tx: tx.login_waits.find_next_resumption())
    assert resumption is not None
    assert list(await list_waiting(store, resumption.tokens_version)) == [accepted, *others]

    await store.write(lambda tx: tx.login_waits.remove([accepted, *others]))
    await store.write(lambda tx: tx.login_waits.add(others[0], "git", ALICE, tokens_version=7))
    assert not await list_waiting(store, resumption.tokens_version), (
        "it was refused again, and waits for the next login"
    )


async def test_a_call_that_was_refused_again_comes_after_the_others(store: Store) -> None:
    first, second = sorted(await add_waits(store, 7, 7))
    await store.write(lambda tx: tx.login_waits.add(first, "git", ALICE, tokens_version=7))

    assert list(await list_waiting(store)) == [second, first]
