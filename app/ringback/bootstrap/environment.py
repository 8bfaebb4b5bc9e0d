"""The external dependencies of a service."""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

from ringback.domain.clock import Clock, SystemClock
from ringback.domain.ports import Store
from ringback.notifier.fan_out import SelectWebhooks, select_matching_webhooks
from ringback.notifier.http.resolver import Resolver
from ringback.telemetry.spans import Tracer
from ringback.upstreams.config import UpstreamEntry

ReadConfigs = Callable[[], Sequence[UpstreamEntry]]
"""Reads the upstreams' configuration; raises `ConfigError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The external dependencies of a service. Tests, simulations and embedders replace them."""

    clock: Clock = field(default_factory=SystemClock)
    random_fraction: Callable[[], float] = random.SystemRandom().random
    """Uniform in [0, 1), for jitter."""
    random_bytes: Callable[[int], bytes] = os.urandom
    resolver: Resolver | None = None
    """Resolves the hosts of callbacks, instead of the system's resolver."""
    host_resolver: Resolver | None = None
    """Resolves the hosts of upstreams and of the token issuer, instead of the system's resolver."""
    egress: httpx.AsyncBaseTransport | None = None
    """Sends callbacks, instead of Ringback's guarded HTTP sender."""
    wrap_store: Callable[[Store], Store] = lambda store: store
    """Wraps the store, for tests that observe it or make it fail."""
    announces_api: bool = True
    """Whether callbacks contain the API's URLs. A Ringback within another server may not serve its API."""
    select_webhooks: SelectWebhooks = select_matching_webhooks
    """Selects the webhooks that get an event. A server with events of its own decides by the events' data."""
    tracer: Tracer | None = None
    """Starts the spans of traces; None for a service without traces."""
