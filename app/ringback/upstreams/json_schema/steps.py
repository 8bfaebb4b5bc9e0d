"""The limit on the work of one validation."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

STEPS_MAX: Final = 50_000
"""For one validation. A step takes 0.1 to 2 µs, so the limit is 0.1 s; the arguments of a tool take about a hundred steps."""
CHARACTERS_PER_STEP: Final = 1_000
"""Of texts that are compared, hashed or resolved."""


class StepLimitExceeded(Exception):
    """The validation has used all its steps, or the value is nested too deeply."""


class SchemaUnusable(Exception):
    """The schema is invalid, or has a reference that leads nowhere or to itself."""


class StepCounter:
    """Counts the steps of one validation."""

    def __init__(self) -> None:
        self.left: int = STEPS_MAX

    def count(self, steps: int) -> None:
        """Raises `StepLimitExceeded` once the steps are used up."""
        self.left -= steps
        if self.left < 0:
            raise StepLimitExceeded

    @contextmanager
    def limit(self, steps: int, *, reserve: int) -> Generator[None]:
        """Allow at most so many steps within, and leave `reserve` for what follows. Raises `StepLimitExceeded`."""
        before = self.left
        allowed = min(steps, before - reserve)
        self.left = allowed
        try:
            self.count(0)
            yield
        finally:
            self.left = before - max(0, min(allowed, allowed - self.left))

    def count_text(self, length: int) -> None:
        self.count(1 + length // CHARACTERS_PER_STEP)
