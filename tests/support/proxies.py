"""The proxy to an upstream of either era, as the gateway uses it, with longer timeouts."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringback.domain.errors import Unavailable
from ringback.domain.principal import Principal
from ringback.domain.upstreams import Listing, UpstreamChange, UpstreamProxyPort
from tests.support.examples import ALICE
from tests.support.library_upstream import ERAS, UPSTREAM_NAME, LibraryUpstream
from tests.support.limits import growing_pauses
from tests.support.upstreams import WAIT_SECONDS, HttpServer, make_http_config, open_upstreams, serving

parametrize_eras = pytest.mark.parametrize("era", ERAS)


@asynccontextmanager
async def serving_proxy(library: LibraryUpstream, era: str) -> AsyncGenerator[tuple[UpstreamProxyPort, HttpServer]]:
    async with (
        serving(library.app(era)) as server,
        open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams,
    ):
        await list_when_connected(upstreams.proxy, UPSTREAM_NAME, Listing.PROMPTS)
        yield upstreams.proxy, server


async def list_when_connected(
    passage: UpstreamProxyPort, upstream: str, listing: Listing, *, principal: Principal = ALICE
) -> Sequence[Mapping[str, Any]]:
    """The list, once the upstream is connected, which may take longer than the proxy's own timeout."""
    async with asyncio.timeout(WAIT_SECONDS):
        for pause in growing_pauses():
            with contextlib.suppress(Unavailable):
                return await passage.list_entries(upstream, listing, principal=principal)
            await asyncio.sleep(
                pause
            )  # a refusal of a failing upstream suspends nothing: the loop would run nothing else
    raise AssertionError


async def next_change(changes: AsyncIterator[UpstreamChange]) -> UpstreamChange:
    return await asyncio.wait_for(anext(changes), WAIT_SECONDS)
