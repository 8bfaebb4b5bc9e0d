"""The facts that every log line of a piece of work has: the request, the call, the delivery.

    with log_facts(call_id=call.id):
        ...                       # each record that is logged here has call_id, also in the tasks that start here

A task that works for many, such as the writer of the store, calls `leave_log_context` first: otherwise its lines would name the
request that happened to start it.
"""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

_NO_FACTS: Final[Mapping[str, object]] = MappingProxyType({})
_FACTS: Final[ContextVar[Mapping[str, object]]] = ContextVar("ringback_log_facts", default=_NO_FACTS)


@contextmanager
def log_facts(facts: Mapping[str, object] | None = None, /, **more: object) -> Generator[None]:
    """Log records of this context have these facts besides those around it. None is no fact."""
    token = _FACTS.set({**_FACTS.get(), **(facts or {}), **more})
    try:
        yield
    finally:
        _FACTS.reset(token)


def add_log_facts(**facts: object) -> None:
    """Log records of this task have these facts from now on, besides those around it: for a task that ends with its work."""
    _FACTS.set({**_FACTS.get(), **facts})


def leave_log_context() -> None:
    """This task, and each task that it starts, belongs to none of the work that started it."""
    _FACTS.set(_NO_FACTS)


class ContextFilter(logging.Filter):
    """Adds the facts of the context to each record. What the record says itself counts first."""

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in _FACTS.get().items():
            if value is not None:
                record.__dict__.setdefault(name, value)
        return True
