"""Bugs put in on purpose, one at a time, at run time. They prove that the checks find what they look for.

Each mutant replaces a function of Ringback while it is applied. `scripts/simulate --mutants` prints how many seeds it takes to
find each of them.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from unittest.mock import patch

from ringback.domain.call import Call
from ringback.domain.call_rows import CallChange
from ringback.domain.delivery import DeliveryState, RetryDecision
from ringback.janitor import Janitor
from ringback.notifier import attempts, recorder
from ringback.notifier.dispatcher import Dispatcher
from ringback.notifier.recorder import ChangedCall, CompletionRequest, LeasedCompletion, Recorder
from ringback.runner.leased_call import LeasedCall
from ringback.runner.runner import Runner
from ringback.services.call_starts import CallStarter
from ringback.services.quotas import QuotaEnforcer
from ringback.signing.resume_token import ResumeTokenCodec
from scripts.simulate_runs.node_store import NodeSignals, NodeStore

Patches = Sequence[tuple[Any, str, Any]]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    description: str
    make_patches: Callable[[], Patches]

    @contextmanager
    def applied(self) -> Generator[None]:
        with ExitStack() as stack:
            for target, name, replacement in self.make_patches():
                stack.enter_context(patch.object(target, name, replacement))
            yield
