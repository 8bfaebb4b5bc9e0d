"""The capabilities of an endpoint while the configuration of the upstreams is reloaded."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from ringback.domain.errors import UnknownUpstream
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.upstreams import UpstreamProfile
from ringback.mcp_server import capabilities as capabilities_module
from ringback.mcp_server.capabilities import CapabilitiesMiddleware
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.request_context import Endpoint
from tests.support.examples import ALICE

CALLER = Caller(principal=ALICE, scopes=frozenset(Scope), upstreams=None)


class RemovedUpstreamProxy:
    """A proxy whose configuration was reloaded after the request was authorized."""

    async def get_profile(self, upstream: str, *, principal: Principal) -> UpstreamProfile | None:
        del principal
        raise UnknownUpstream("There is no upstream of this name.", upstream=upstream)


def get_some_caller(sdk_context: Any) -> Caller:
    del sdk_context
    return CALLER


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_a_removed_upstream_is_refused_with_the_usual_error(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def call_next(context: Any) -> dict[str, Any]:
        del context
        return {"capabilities": {}}

    monkeypatch.setattr(capabilities_module, "get_caller", get_some_caller)
    middleware = CapabilitiesMiddleware(
        Endpoint(upstream="git"), (), cast("Gateway", SimpleNamespace(proxy=RemovedUpstreamProxy()))
    )
    with pytest.raises(MCPError) as error_info:
        await middleware(
            cast("Any", SimpleNamespace(method=method, request=SimpleNamespace(scope={"state": {}}))), call_next
        )

    assert error_info.value.error.code == INVALID_PARAMS
    assert error_info.value.error.data == {"problem": "unknown-upstream", "upstream": "git"}
