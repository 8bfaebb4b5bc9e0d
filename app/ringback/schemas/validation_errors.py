"""Describes validation errors without the rejected values, which may be secrets."""

from typing import Final

from pydantic import ValidationError

LOCATION_LENGTH_MAX: Final = 100
"""Characters of a location: a client's own key is part of it."""


def describe_validation_errors(problem: ValidationError, *, root: str = "", errors_max: int = 1) -> list[str]:
    """The first errors, each as `location: reason`; `root` is the location of the validated value."""
    errors = problem.errors(include_input=False, include_url=False, include_context=False)[:errors_max]
    return [
        ": ".join(filter(None, (_join_location(root, error["loc"]), error["msg"].removeprefix("Value error, "))))
        for error in errors
    ]


def _join_location(root: str, steps: tuple[int | str, ...]) -> str:
    return ".".join(str(step) for step in (root, *steps) if step != "")[:LOCATION_LENGTH_MAX]
