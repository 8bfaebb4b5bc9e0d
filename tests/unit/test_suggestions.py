"""A known name is suggested in the place of an unknown one, in bounded time."""

import difflib
from typing import Any

import pytest

from ringback.suggestions import COMPARED_MAX, find_similar, suggest_name


@pytest.mark.parametrize(
    ("wanted", "similar"),
    [
        ("git_lgo", "git_log"),
        ("it_log", "git_log"),
        ("git_diff_stagd", "git_diff_staged"),
        ("order.payd", "order.paid"),
        ("weather", None),
        ("session", "client_session_id"),
        ("GIT_LOG", "git_log"),
        ("Order.Payd", "order.paid"),
        ("Session", "client_session_id"),
    ],
)
def test_the_name_that_resembles_the_wanted_one_most_is_found_among_many(wanted: str, similar: str | None) -> None:
    others = [f"git_tool_{number}" for number in range(300)] + [f"order.n{number}" for number in range(300)]
    known = [*others, "git_log", "git_diff", "git_diff_staged", "order.paid", "client_session_id"]

    assert find_similar(wanted, known) == similar


def test_names_in_capital_letters_are_suggested_as_they_are() -> None:
    assert suggest_name("weatherapi", ["WeatherAPI"]) == " Did you mean 'WeatherAPI'?"


def test_a_long_name_is_suggested_as_a_whole() -> None:
    assert suggest_name("a" * 70, ["b", "a" * 69 + "c"]) == f" Did you mean '{'a' * 69}c'?"


def test_few_of_many_names_that_resemble_the_wanted_one_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    class CountingMatcher(difflib.SequenceMatcher[str]):
        def ratio(self) -> float:
            nonlocal compared
            compared += 1
            return super().ratio()

    matcher: Any = CountingMatcher
    monkeypatch.setattr(difflib, "SequenceMatcher", matcher)

    assert find_similar("a" * 64, ["a" * 127 + str(number) for number in range(100)]) is not None
    assert 0 < compared <= COMPARED_MAX
