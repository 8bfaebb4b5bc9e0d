"""The passage to an upstream of either era, as a gateway has it, and the patience that it takes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringback.domain.errors import Unavailable
from ringback.domain.upstreams import UpstreamChange, Listing, UpstreamProxyPort
from tests.support.library import ERAS, NAME, Library
from tests.support.upstreams import WAIT_SECONDS, HttpServer, http_config, opened, serving

both_eras = pytest.mark.parametrize("era", ERAS)


@asynccontextmanager
async def passing(library: Library, era: str) -> AsyncGenerator[tuple[UpstreamProxyPort, HttpServer]]:
    async with serving(library.app(era)) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        await eventually(upstreams.proxy, NAME, Listing.PROMPTS)
        yield upstreams.proxy, server


async def eventually(passage: UpstreamProxyPort, upstream: str, listing: Listing) -> Sequence[Mapping[str, Any]]:
    """The list, once the upstream was reached; it may need longer than anybody here is patient."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            with contextlib.suppress(Unavailable):
                return await passage.list_entries(upstream, listing)


async def next_of(changes: AsyncIterator[UpstreamChange]) -> UpstreamChange:
    return await asyncio.wait_for(anext(changes), WAIT_SECONDS)
