"""A unit of work that a caller has handed to a store: its result, and what follows its end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ringback.admission import Admission, find_admission
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal

log = logging.getLogger(__name__)


class EndedTransaction(Protocol):
    """What a run of the work leaves behind."""

    topics: list[str]
    committing_actions: list[Callable[[], None]]
    commit_actions: list[Callable[[], None]]
    rollback_actions: list[Callable[[], None]]


@dataclass(slots=True, eq=False)
class UnitOfWork:
    work: Callable[[Transaction], Awaitable[Any]]
    done: asyncio.Future[Any]
    principal: Principal | None = None
    """Whose rows it locks; None for a unit of the service itself."""
    admission: Admission | None = field(default_factory=find_admission)
    """Of its caller's context. It starts calls, and a client waits for its commit (`ringback.admission`)."""
    value: Any = None
    error: Exception | None = None
    topics: Sequence[str] = ()
    committing_actions: Sequence[Callable[[], None]] = ()
    commit_actions: Sequence[Callable[[], None]] = ()
    rollback_actions: Sequence[Callable[[], None]] = ()

    @property
    def is_admission(self) -> bool:
        return self.admission is not None

    @property
    def work_name(self) -> str:
        """The qualified name of the work's function."""
        work: Any = self.work
        work = getattr(work, "func", work)  # of a `partial`
        return getattr(work, "__qualname__", type(work).__qualname__)

    def begin_run(self, transaction: EndedTransaction) -> None:
        """Collect what the transaction registers from now on, also if the work raises."""
        self.topics, self.committing_actions = transaction.topics, transaction.committing_actions
        self.commit_actions, self.rollback_actions = transaction.commit_actions, transaction.rollback_actions

    def reset_after_rollback(self) -> None:
        """Forget the run that was rolled back, before the next one."""
        _run_actions(self.rollback_actions)
        self.topics, self.error = (), None
        self.committing_actions, self.commit_actions, self.rollback_actions = (), (), ()

    def resolve(self) -> None:
        """Let the caller continue in the next turn of the event loop, unless it was cancelled."""
        if self.done.done():
            return
        if self.error is None:
            self.done.set_result(self.value)
        else:
            self.done.set_exception(self.error)

    def end_admission(self) -> None:
        """Call it when the commit begins: background work does not wait for the disk."""
        if self.admission is not None:
            self.admission.end()

    def run_committing_actions(self) -> None:
        """Run what the work registered for the time of the commit. Call it once, unless the work has raised."""
        _run_actions(self.committing_actions)

    def run_end_actions(self) -> None:
        """Run what the work registered for a commit, or for a rollback."""
        _run_actions(self.commit_actions if self.error is None else self.rollback_actions)


def complete_units(units: Iterable[UnitOfWork]) -> None:
    """Resolve callers before the end actions, so that the caller of an admission writes its 202 first.

    The exception is a unit whose work began during the commit: its end actions release a request, and its caller waits for the
    response. So the request goes first. The caller continues in the same turn of the event loop: it subscribes to the
    notifications of its call before the loop reads the first.
    """
    begun, others = list[UnitOfWork](), list[UnitOfWork]()
    for unit in units:
        (begun if unit.committing_actions else others).append(unit)
    for unit in begun:
        unit.run_end_actions()
    for unit in (*begun, *others):
        unit.resolve()
    for unit in others:
        unit.run_end_actions()


def _run_actions(actions: Sequence[Callable[[], None]]) -> None:
    for action in actions:
        try:
            action()
        except Exception:  # boundary: a bug in one unit must not reach the others in the same commit
            log.exception("store.ending_failed")
