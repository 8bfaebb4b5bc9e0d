"""Describes validation errors without the rejected values, which may be secrets."""

import re
from typing import Final

from pydantic import ValidationError

LOCATION_LENGTH_MAX: Final = 100
"""Characters of a location: a client's own key is part of it."""


_TYPE_WORDS: Final = (
    (re.compile(r"^Value error, "), ""),
    (re.compile(r"^(Frozenset|Set|List|Tuple) should have "), "A list should have "),
    (re.compile(r"^Dictionary should have "), "An object should have "),
    (re.compile(r"^Value should have "), "It should have "),
    (re.compile(r" after validation(?=, )"), ""),
    (re.compile(r"^Input should be a valid (frozenset|set|list|tuple|sequence)$"), "Input should be a list"),
    (re.compile(r"^Input should be (a valid dictionary|an instance of|an object).*"), "Input should be an object"),
    (re.compile(r"^Input should be None$"), "Input should be null"),
)
"""Pydantic names types of Python, and clients read JSON."""


def describe_reason(message: str) -> str:
    """A message of pydantic in the words of JSON."""
    for pattern, words in _TYPE_WORDS:
        message = pattern.sub(words, message)
    return message


def describe_validation_errors(problem: ValidationError, *, root: str = "", errors_max: int = 1) -> list[str]:
    """The first errors, each as `location: reason`; `root` is the location of the validated value."""
    errors = problem.errors(include_input=False, include_url=False, include_context=False)[:errors_max]
    return [
        ": ".join(filter(None, (_join_location(root, error["loc"]), describe_reason(error["msg"])))) for error in errors
    ]


def _join_location(root: str, steps: tuple[int | str, ...]) -> str:
    return ".".join(str(step) for step in (root, *steps) if step != "")[:LOCATION_LENGTH_MAX]
