"""A greeting while the upstreams are configured anew."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from ringback.domain.errors import UnknownUpstream
from ringback.domain.upstreams import UpstreamProfile
from ringback.mcp_server import capabilities as greeting_module
from ringback.mcp_server.capabilities import CapabilitiesMiddleware
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.request_context import Endpoint


class RemovedUpstreamProxy:
    """The passage after a reload that came between the door and the greeting."""

    async def get_profile(self, upstream: str) -> UpstreamProfile | None:
        raise UnknownUpstream("There is no upstream of this name.", upstream=upstream)


def no_extensions(context: Any) -> None:
    """Who asks does not matter here."""
    del context


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_a_removed_upstream_is_refused_with_the_usual_error(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def greeted(context: Any) -> dict[str, Any]:
        del context
        return {"capabilities": {}}

    monkeypatch.setattr(greeting_module, "get_caller", no_extensions)
    greeting = CapabilitiesMiddleware(
        Endpoint(upstream="git"), (), cast("Gateway", SimpleNamespace(passage=RemovedUpstreamProxy()))
    )
    with pytest.raises(MCPError) as refused:
        await greeting(cast("Any", SimpleNamespace(method=method)), greeted)

    assert refused.value.error.code == INVALID_PARAMS
    assert refused.value.error.data == {"problem": "unknown-upstream", "upstream": "git"}
