"""The configuration of upstreams: the `mcpServers` file that every MCP host reads, and `serve --upstream NAME=COMMAND_OR_URL`.

    loader ──▶ names ──▶ server_entry ──▶ models     `UpstreamConfig`: one upstream, completely decided and expanded
    file or    GitHub    one server       the values
    option     ▸ github  own_settings     what is under its key `ringback`
                         fields           the types of its fields
                         expansion        ${VARIABLE} placeholders
    regular_files        opens the file without waiting for another process

An entry that cannot be served is skipped (`SkippedUpstream`), with the reason and what to do, and the others are served. A
document that is no mcpServers file is an error. Comments and trailing commas are allowed.

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
    LoadedUpstreams,
    LoginSettings,
    ProtocolChoice,
    UpstreamConfig,
    UpstreamEntry,
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
    "LoadedUpstreams",
    "LoginSettings",
    "ProtocolChoice",
    "UpstreamConfig",
    "UpstreamEntry",
    "UpstreamTransport",
    "load_service_section",
    "load_upstreams",
    "parse_upstream_option",
    "parse_upstreams",
]
