"""The configuration of upstreams: the `mcpServers` file that every MCP host reads, and `serve --upstream NAME=COMMAND_OR_URL`.

    loader ──▶ server_entry ──▶ models        models      `UpstreamConfig`: one upstream, completely decided and expanded
    file or    pydantic models  the values    expansion   ${VARIABLE} placeholders
    option     of one server

Nothing here starts or connects to an upstream. The caller passes the environment in. Its values may be secret: an error names
the variable and the upstream but never a value, and the `repr` of a configuration hides its secrets.
"""

from ringback.upstreams.config.loader import (
    load_service_section,
    load_upstreams,
    parse_upstream_option,
    parse_upstreams,
)
from ringback.upstreams.config.models import (
    INLINE_WAIT_SECONDS_MAX,
    MAX_CONCURRENT_HTTP,
    MAX_CONCURRENT_STDIO,
    AuthMethod,
    ClientCredentials,
    ConfigError,
    Isolation,
    UpstreamConfig,
    UpstreamTransport,
)

__all__ = [
    "INLINE_WAIT_SECONDS_MAX",
    "MAX_CONCURRENT_HTTP",
    "MAX_CONCURRENT_STDIO",
    "AuthMethod",
    "ClientCredentials",
    "ConfigError",
    "Isolation",
    "UpstreamConfig",
    "UpstreamTransport",
    "load_service_section",
    "load_upstreams",
    "parse_upstream_option",
    "parse_upstreams",
]
