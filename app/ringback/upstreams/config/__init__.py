"""Which MCP servers there are: the `mcpServers` file that every MCP host reads, and `serve --upstream NAME=COMMAND_OR_URL`.

    document ──▶ entry ──▶ values        upstream: what comes of it, an `UpstreamConfig` each
    a file's     one       of the shapes that occur,
    servers      server    ${PLACEHOLDERS} expanded

Nothing is started or reached here. The environment is handed in; what it holds may be secret, so an error names the variable
and the upstream, never a value, and a configuration does not show its secrets when it is printed.
"""

from ringback.upstreams.config.loader import load_upstreams, parse_upstream_option, parse_upstreams
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
    "load_upstreams",
    "parse_upstream_option",
    "parse_upstreams",
]
