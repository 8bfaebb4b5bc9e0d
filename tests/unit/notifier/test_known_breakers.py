"""Which circuit breakers a process forgets at the limit. What follows for attempts: `test_concurrency_limiter`."""

import random
import time
from typing import Final

import pytest

from ringback.domain.circuit_breaker import CLOSED_BREAKER, CircuitBreaker
from ringback.domain.principal import Principal
from ringback.notifier import known_breakers
from ringback.notifier.known_breakers import KnownBreakers
from ringback.notifier.permits import ReceiverKey

OPEN: Final = CircuitBreaker(failures=9, openings=1)


def breaker_key(principal: str, number: int = 0) -> str:
    return ReceiverKey(Principal(principal), f"https://dead-{number}").breaker_key


def test_the_principal_with_the_most_breakers_loses_one_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_breakers, "KNOWN_BREAKERS_MAX", 40)
    breakers, choices = KnownBreakers(), random.Random(7)
    counts: dict[str, int] = dict.fromkeys(("alice", "bob", "carol", "dave"), 0)
    known: set[tuple[str, str]] = set()

    for _ in range(3000):
        name = choices.choices(list(counts), weights=(8, 4, 2, 1))[0]
        key = breaker_key(name, choices.randrange(60))
        breakers.replace(key, OPEN if choices.random() < 0.8 else CLOSED_BREAKER)
        known = {each for each in {*known, (name, key)} if each[1] in breakers}
        before, counts = counts, {each: sum(owner == each for owner, _ in known) for each in counts}
        if len(breakers) == 40:
            lost = [each for each in counts if counts[each] < before[each]]
            assert all(before[each] + (each == name) >= max(before.values()) for each in lost)

    assert len(breakers) == len(known)


def test_the_cost_of_a_breaker_at_the_limit_does_not_grow_with_the_principals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease replaces those of hundreds of webhooks in its transaction."""

    def measure(limit: int) -> float:
        monkeypatch.setattr(known_breakers, "KNOWN_BREAKERS_MAX", limit)
        breakers = KnownBreakers()
        for number in range(limit):
            breakers.replace(breaker_key(f"early-{number}"), OPEN)
        begun_at = time.thread_time()
        for number in range(300):
            breakers.replace(breaker_key(f"late-{number}"), OPEN)
        assert len(breakers) == limit
        return time.thread_time() - begun_at

    assert measure(20_000) < 20 * measure(300)
