"""A bug put in on purpose: functions of Ringback that are replaced while it is applied."""

from collections.abc import Callable, Generator, Sequence
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
