"""Runs a unit of work to its end, without waiting for anything else."""

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from ringback.storage.rows.unit import PAUSED

T = TypeVar("T")


def run_to_completion(awaitable: Awaitable[T]) -> T:
    """Run without an event loop, and without pausing. Raises RuntimeError for work that waits for anything."""
    steps = awaitable.__await__()
    while True:
        try:
            reached = next(steps)
        except StopIteration as end:
            return end.value
        _require_pause(reached, steps)


async def run_in_steps(awaitable: Awaitable[T]) -> T:
    """As `run_to_completion`, but at each pause the event loop runs others."""
    steps = awaitable.__await__()
    while True:
        try:
            reached = next(steps)
        except StopIteration as end:
            return end.value
        _require_pause(reached, steps)
        try:
            await asyncio.sleep(0)
        except BaseException:
            steps.close()
            raise


def _require_pause(reached: object, steps: Generator[Any, Any, Any]) -> None:
    if reached is not PAUSED:
        steps.close()
        raise RuntimeError(
            "A unit of work waited for something that is not its transaction. Do that before or after, never inside."
        )
