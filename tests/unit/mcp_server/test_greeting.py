"""A greeting while the upstreams are configured anew."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from ringback.domain.errors import UnknownUpstream
from ringback.domain.upstreams import UpstreamProfile
from ringback.mcp_server import greeting as greeting_module
from ringback.mcp_server.exchange import Endpoint
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.greeting import CapabilitiesMiddleware


class Removed:
    """The passage after a reload that came between the door and the greeting."""

    async def profile(self, upstream: str) -> UpstreamProfile | None:
        raise UnknownUpstream("There is no upstream of this name.", upstream=upstream)


def nobody(context: Any) -> None:
    """Who asks does not matter here."""
    del context


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_an_upstream_that_was_removed_meanwhile_is_refused_as_everywhere_else(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def greeted(context: Any) -> dict[str, Any]:
        del context
        return {"capabilities": {}}

    monkeypatch.setattr(greeting_module, "caller_of", nobody)
    greeting = CapabilitiesMiddleware(Endpoint(upstream="git"), (), cast("Gateway", SimpleNamespace(passage=Removed())))
    with pytest.raises(MCPError) as refused:
        await greeting(cast("Any", SimpleNamespace(method=method)), greeted)

    assert refused.value.error.code == INVALID_PARAMS
    assert refused.value.error.data == {"problem": "unknown-upstream", "upstream": "git"}
