"""Challenges and proofs of callback URLs."""

from dataclasses import replace
from datetime import datetime, timedelta

from ringback.domain.ports import Store
from ringback.domain.verification import CHALLENGE_WINDOW_SECONDS, Challenge, RecentChallenges
from tests.support.builders import make_webhook
from tests.support.clock import START, FakeClock
from tests.support.examples import ALICE, BOB

HERE, THERE = "https://here.example", "https://there.example:8443"
LATER = START + timedelta(minutes=1, milliseconds=7)


async def make_challenge(store: Store, **over: object) -> Challenge:
    """Of a webhook that is there."""
    webhook = make_webhook()
    await store.write(lambda tx: tx.webhooks.insert(webhook))
    return replace(
        Challenge(webhook_id=webhook.id, principal=ALICE, url=f"{HERE}/hook", origin=HERE, due_at=START), **over
    )


async def put(store: Store, *challenges: Challenge) -> None:
    for challenge in challenges:
        await store.write(lambda tx, each=challenge: tx.challenges.save(each))


async def get(store: Store, challenge: Challenge) -> Challenge | None:
    return await store.read(lambda tx: tx.challenges.get(challenge.webhook_id))


async def due(store: Store, now: datetime, limit: int = 10) -> list[Challenge]:
    return list(await store.read(lambda tx: tx.challenges.list_due(now=now, limit=limit)))


async def test_a_webhook_has_one_challenge_which_is_read_back_as_it_was_put_last(store: Store) -> None:
    planned = await make_challenge(store)
    taken = replace(planned, url=f"{THERE}/hook", origin=THERE, attempts=1, due_at=LATER, token="lease_1")
    await put(store, planned)
    assert await get(store, planned) == planned
    await put(store, taken)

    assert await get(store, planned) == taken


async def test_those_that_are_due_come_in_the_order_of_their_time(store: Store) -> None:
    second, first = await make_challenge(store, due_at=LATER), await make_challenge(store)
    third = await make_challenge(store, due_at=LATER + timedelta(seconds=1), token="lease_1")
    assert await store.read(lambda tx: tx.challenges.next_due_at()) is None
    await put(store, second, first, third)

    assert await due(store, START - timedelta(milliseconds=1)) == []
    assert await due(store, LATER) == [first, second]
    assert await due(store, LATER + timedelta(hours=1), limit=3) == [first, second, third]
    assert await due(store, LATER, limit=1) == [first]
    assert await store.read(lambda tx: tx.challenges.next_due_at()) == START


async def test_a_challenge_goes_when_it_is_dropped_and_with_its_webhook(store: Store) -> None:
    dropped, orphaned = await make_challenge(store), await make_challenge(store)
    await put(store, dropped, orphaned)

    await store.write(lambda tx: tx.challenges.remove(dropped.webhook_id))
    await store.write(lambda tx: tx.webhooks.delete(orphaned.webhook_id))

    assert [await get(store, dropped), await get(store, orphaned)] == [None, None]


async def test_those_of_the_last_minute_are_counted_by_origin_and_by_principal(store: Store) -> None:
    here, there = await make_challenge(store), await make_challenge(store, origin=THERE)
    foreign = await make_challenge(store, principal=BOB)

    async def count_recent(now: datetime, **of: object) -> RecentChallenges:
        return await store.read(lambda tx: tx.challenges.count_recent(now=now, **of))  # pyright: ignore[reportArgumentType]

    for number, challenge in enumerate([here, here, there, foreign]):
        at = START + timedelta(seconds=number)
        await store.write(lambda tx, each=challenge, now=at: tx.challenges.record_sent(each, now=now))
    now = START + timedelta(seconds=3)

    assert await count_recent(now, origin=HERE) == RecentChallenges(sent_count=3, waiting_count=0, first_sent_at=START)
    assert await count_recent(now, principal=ALICE) == RecentChallenges(
        sent_count=3, waiting_count=0, first_sent_at=START
    )
    assert await count_recent(now, principal=BOB) == RecentChallenges(sent_count=1, waiting_count=0, first_sent_at=now)
    assert (await count_recent(now, origin=HERE, principal=ALICE)).sent_count == 2
    assert (await count_recent(now, origin=THERE, principal=BOB)).sent_count == 0
    over = START + timedelta(seconds=CHALLENGE_WINDOW_SECONDS)
    assert await count_recent(over, origin=HERE) == RecentChallenges(
        sent_count=2, waiting_count=0, first_sent_at=START + timedelta(seconds=1)
    )


async def test_urls_that_wait_for_their_first_turn_are_counted_too(store: Store) -> None:
    waiting, same = await make_challenge(store), await make_challenge(store, due_at=LATER)
    other = await make_challenge(store, url=f"{HERE}/other", due_at=LATER)
    out, repeated = await make_challenge(store, attempts=1, token="lease_1"), await make_challenge(store, attempts=1)
    await put(store, waiting, same, other, out, repeated)

    counted = await store.read(lambda tx: tx.challenges.count_recent(origin=HERE, now=START))

    assert counted == RecentChallenges(sent_count=0, waiting_count=2, first_sent_at=None)
    for principal, waiting_count in ((ALICE, 2), (BOB, 0)):
        counted = await store.read(
            lambda tx, each=principal: tx.challenges.count_recent(origin=HERE, principal=each, now=START)
        )
        assert counted.waiting_count == waiting_count


async def test_challenge_counts_of_past_minutes_are_removed_in_bounded_steps(store: Store) -> None:
    challenge = await make_challenge(store)
    for number in range(4):
        at = START + timedelta(seconds=number)
        await store.write(lambda tx, now=at: tx.challenges.record_sent(challenge, now=now))

    async def forget() -> int:
        return await store.write(lambda tx: tx.challenges.remove_sent(cutoff=START + timedelta(seconds=2), limit=2))

    assert [await forget(), await forget(), await forget()] == [2, 1, 0]
    assert (await store.read(lambda tx: tx.challenges.count_recent(origin=HERE, now=START))).sent_count == 1


async def test_a_proof_is_of_one_principal_and_one_url(store: Store) -> None:
    url = f"{HERE}/hook"
    await store.write(lambda tx: tx.proofs.save(ALICE, url, now=START))
    await store.write(lambda tx: tx.proofs.save(ALICE, url, now=LATER))

    assert await store.read(lambda tx: tx.proofs.get_proven_at(ALICE, url)) == LATER
    assert await store.read(lambda tx: tx.proofs.get_proven_at(BOB, url)) is None
    assert await store.read(lambda tx: tx.proofs.get_proven_at(ALICE, f"{url}?")) is None


async def test_proofs_that_have_aged_are_removed_in_bounded_steps(store: Store, clock: FakeClock) -> None:
    for number in range(3):
        await store.write(lambda tx, each=number: tx.proofs.save(ALICE, f"{HERE}/{each}", now=START))
    await store.write(lambda tx: tx.proofs.save(ALICE, HERE, now=LATER))

    async def remove() -> int:
        return await store.write(lambda tx: tx.proofs.remove(cutoff=LATER, limit=2))

    assert [await remove(), await remove(), await remove()] == [2, 1, 0]
    assert await store.read(lambda tx: tx.proofs.get_proven_at(ALICE, HERE)) == LATER
