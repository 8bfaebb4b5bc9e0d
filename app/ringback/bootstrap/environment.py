"""What a whole service takes from outside."""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

from ringback.domain.clock import Clock, SystemClock
from ringback.domain.ports import Store
from ringback.notifier.http.resolver import Resolver
from ringback.upstreams.registry import UpstreamConfig

ReadConfigs = Callable[[], Sequence[UpstreamConfig]]
"""Reads the configuration of the upstreams; raises `ConfigError`."""


def _unwrapped(store: Store) -> Store:
    return store


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What a whole service takes from outside, so that a test, a simulation or an embedder can bring its own."""

    clock: Clock = field(default_factory=SystemClock)
    random_fraction: Callable[[], float] = random.SystemRandom().random
    """Uniform in [0, 1), for jitter."""
    random_bytes: Callable[[int], bytes] = os.urandom
    resolver: Resolver | None = None
    """Looks up the hosts of callbacks, instead of the machine's name servers."""
    host_resolver: Resolver | None = None
    """Looks up the hosts of upstreams and of the token issuer, instead of the machine's name servers."""
    egress: httpx.AsyncBaseTransport | None = None
    """Callbacks go out through it instead of our own guarded sender."""
    wrap_store: Callable[[Store], Store] = _unwrapped
    """Put around the store, to watch it or to fail at a chosen moment."""
