"""A bug put in on purpose: functions of Ringback that are replaced while it is applied."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    description: str
    make_patches: Callable[[], Sequence[Patch]]

    @contextmanager
    def applied(self) -> Generator[None]:
        with ExitStack() as stack:
            for target, name, replacement in self.make_patches():
                stack.enter_context(patch.object(target, name, replacement))
            yield


_kept_tasks: set[asyncio.Task[Any]] = set()


def keep_task(work: Coroutine[Any, Any, Any]) -> None:
    """Let this go on after the function that began it has returned."""
    task = asyncio.get_running_loop().create_task(work)
    _kept_tasks.add(task)
    task.add_done_callback(_kept_tasks.discard)
