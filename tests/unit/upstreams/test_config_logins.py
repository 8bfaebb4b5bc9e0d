"""How an upstream of the configuration gets its credentials: an OAuth client, a login, variables, headers."""

from typing import Any

import pytest

from ringback.upstreams.config import AuthMethod, ClientCredentials
from tests.support.upstream_configs import CLIENT, SECRET, parse_one


def test_an_oauth_client_is_read_and_names_the_upstream_as_its_resource() -> None:
    config = parse_one({"url": "https://user:pw@mcp.example/mcp?k=1#x", "ringback": {"oauth": CLIENT}})

    assert config.oauth == ClientCredentials(
        token_url="https://login.example/token",
        client_id="us",
        client_secret=SECRET,
        scope=None,
        resource="https://mcp.example/mcp",
        auth_method=AuthMethod.BASIC,
    )
    assert SECRET not in repr(config)


def test_an_oauth_client_may_be_configured_in_detail() -> None:
    details = {
        "scope": "a b",
        "resource": None,
        "auth_method": "client_secret_post",
        "token_url": "http://127.0.0.1:9/t",
    }
    config = parse_one({"url": "https://mcp.example", "ringback": {"oauth": CLIENT | details}})

    assert config.oauth is not None
    assert (config.oauth.scope, config.oauth.resource, config.oauth.auth_method) == ("a b", None, AuthMethod.POST)


@pytest.mark.parametrize(
    ("server", "takes_login"),
    [
        ({"url": "https://mcp.example/mcp"}, True),
        ({"url": "https://mcp.example/mcp", "headers": {"X-Tenant": "acme"}}, True),
        ({"url": "https://mcp.example/mcp", "headers": {"AUTHORIZATION": "Bearer x"}}, False),
        ({"url": "https://user:pw@mcp.example/mcp"}, False),
        ({"url": "https://mcp.example/mcp", "ringback": {"oauth": CLIENT}}, False),
        ({"command": "server"}, False),
    ],
    ids=["nothing", "another header", "a header", "a user", "client credentials", "a child process"],
)
def test_an_upstream_takes_a_login_unless_the_configuration_has_its_credentials(
    server: dict[str, Any], *, takes_login: bool
) -> None:
    assert parse_one(server).takes_login is takes_login
