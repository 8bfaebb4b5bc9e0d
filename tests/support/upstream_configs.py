"""Configurations of upstreams, parsed as from a file."""

import json
from typing import Any

from ringback.upstreams.config import UpstreamConfig, parse_upstreams

SECRET = "hunter2-hunter2"
CLIENT = {"token_url": "https://login.example/token", "client_id": "us", "client_secret": "${TOKEN}"}
ENVIRONMENT = {"TOKEN": SECRET, "EMPTY": ""}


def parse(servers: Any, *, key: str = "mcpServers") -> tuple[UpstreamConfig, ...]:
    loaded = parse_upstreams(json.dumps({key: servers}), source="servers.json", environment=ENVIRONMENT)
    loaded.require_all()
    return loaded.configs


def parse_one(settings: Any, *, name: str = "git") -> UpstreamConfig:
    (config,) = parse({name: settings})
    return config


def with_oauth(**client: Any) -> dict[str, Any]:
    return {"url": "https://mcp.example", "ringback": {"oauth": CLIENT | client}}


def with_login(**settings: Any) -> dict[str, Any]:
    return {"url": "https://a.example", "ringback": {"login": settings}}
