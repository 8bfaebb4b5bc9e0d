"""Upstreams whose host names hang do not delay an upstream whose name resolves."""

import asyncio
from urllib.parse import urlsplit

import pytest

from ringback.domain.call_outcome import CallOutcome
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http import caching_resolver as look_ups
from ringback.notifier.http.resolver import Resolution
from tests.support.resolvers import make_resolution
from tests.support.upstreams import (
    ControlledUpstream,
    make_http_config,
    open_upstreams,
    run_upstream_call,
    serving,
    wait_until_true,
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The event loop of the service: its own look-ups would have four threads."""
    return "asyncio", {"use_uvloop": True}


class PartlyHanging:
    def __init__(self) -> None:
        self.hanging: set[str] = set()

    async def __call__(self, host: str, /) -> Resolution:
        if host.startswith("hung"):
            self.hanging.add(host)
            await asyncio.Event().wait()
        return make_resolution("127.0.0.1")

    async def aclose(self) -> None: ...


async def test_an_upstream_connects_while_other_names_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ups, "RESOLVE_SECONDS", 60.0)  # so that they hang as long as the test lasts
    resolver = PartlyHanging()
    hung = [make_http_config(f"http://hung-{number}.test/mcp", name=f"hung-{number}") for number in range(20)]
    async with (
        serving(ControlledUpstream().app()) as server,
        open_upstreams(*hung, hosts=ConfiguredHosts(resolver)) as upstreams,
    ):
        await wait_until_true(lambda: len(resolver.hanging) == len(hung))
        port = urlsplit(server.url).port
        upstreams.reconfigure([*hung, make_http_config(f"http://localhost:{port}/mcp")])

        assert (await run_upstream_call(upstreams, "echo", {"text": "hello"})).outcome is CallOutcome.RESULT
