"""One upstream and a chain of two Ringbacks on real sockets, shared by all tests of a module."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from ringback.upstreams.config import UpstreamConfig
from tests.support.application import running_application
from tests.support.interop_upstream import InteropUpstream
from tests.support.upstreams import make_http_config, serving

WINDOW_SECONDS: Final = 0.2
"""The inline wait of `hold`, whose call outlives it."""
LONG_WINDOW_SECONDS: Final = 50.0
"""The inline wait of all other tools, which end within it even on a busy machine."""
GRACE_SECONDS: Final = 0.2
"""Clients with tasks get the same with any value; this only saves time."""


@dataclass(frozen=True, slots=True)
class GatewayChain:
    """URLs of the same server: direct, through one Ringback, and through two."""

    upstream: InteropUpstream
    direct_url: str
    gateway_url: str
    """Through one Ringback."""
    second_gateway_url: str
    """Through two Ringbacks."""


def running_gateway_for(url: str) -> UpstreamConfig:
    return replace(make_http_config(url), tool_inline_wait_seconds={"hold": WINDOW_SECONDS})


@pytest.fixture(scope="module")
async def shared_street(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[GatewayChain]:
    stage = InteropUpstream()
    folder: Path = module_path_factory.mktemp("street")
    (folder / "first").mkdir()
    (folder / "second").mkdir()
    async with (
        serving(stage.app()) as server,
        running_application(
            folder / "first",
            running_gateway_for(server.url),
            auth="off",
            inline_wait_seconds=LONG_WINDOW_SECONDS,
            task_grace_seconds=GRACE_SECONDS,
        ) as first,
        serving(first.app.api) as near,
        running_application(
            folder / "second",
            running_gateway_for(f"{near.url}/stage"),
            auth="off",
            inline_wait_seconds=LONG_WINDOW_SECONDS,
        ) as second,
        serving(second.app.api) as far,
    ):
        yield GatewayChain(stage, server.url, f"{near.url}/stage", f"{far.url}/stage")


@pytest.fixture
def street(shared_street: GatewayChain) -> GatewayChain:
    shared_street.upstream.reset()
    shared_street.upstream.seen_meta.clear()
    return shared_street
