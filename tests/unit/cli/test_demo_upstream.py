"""The demo upstream counts primes correctly."""

import pytest

from ringback.cli.demo_upstream import count_between, is_prime


@pytest.mark.parametrize(("number", "prime"), [(2, True), (3, True), (4, False), (25, False), (97, True), (7919, True)])
def test_a_prime_is_known_as_one(*, number: int, prime: bool) -> None:
    assert is_prime(number) is prime


def test_primes_are_counted_segment_by_segment() -> None:
    divisors = [number for number in range(2, 32) if is_prime(number)]

    assert [count_between(0, 10, divisors), count_between(10, 100, divisors), count_between(100, 1000, divisors)] == [
        4,
        21,
        143,
    ]
