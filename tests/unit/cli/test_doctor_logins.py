"""The doctor has none of the service's logins, so an upstream that requires one is no failure."""

from ringback.cli.installation_checks.upstreams import check_upstreams
from ringback.domain.clock import SystemClock
from ringback.settings import Settings
from tests.support.authorization_server import AuthorizationServer
from tests.support.upstreams import ControlledUpstream, make_http_config, serving


async def test_an_upstream_that_requires_a_login_is_left_to_the_service() -> None:
    async with serving(AuthorizationServer().require_token(ControlledUpstream().app())) as server:
        (finding,) = await check_upstreams([make_http_config(server.url)], Settings(), clock=SystemClock())

    assert finding.ok
    assert finding.detail.endswith(": ringback upstreams")


async def test_an_upstream_that_is_this_service_itself_is_named_as_such() -> None:
    settings = Settings()
    (finding,) = await check_upstreams([make_http_config(f"{settings.base_url}/mcp")], settings, clock=SystemClock())

    assert not finding.ok
    assert "it is this Ringback itself" in finding.detail
