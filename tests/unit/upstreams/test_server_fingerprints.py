"""Which changes of a configuration leave the server of an upstream the same."""

from dataclasses import replace
from typing import Final

import pytest

from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.server_fingerprints import make_server_fingerprint
from tests.support.upstreams import make_http_config, make_python_config, open_upstreams

URL: Final = "http://localhost:80/mcp"
CHILD: Final = make_python_config("server.py", "--verbose")


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/mcp",
        "http://localhost:80/mcp/",
        "HTTP://LocalHost/mcp",
        "http://localhost./mcp",
        "http://127.0.0.1/mcp",
        "http://[::1]:80/mcp",
        "http://user:password@localhost/mcp",
        "http://localhost/mcp?key=secret#part",
    ],
)
def test_another_form_of_the_url_is_the_same_server(url: str) -> None:
    assert make_server_fingerprint(make_http_config(url)) == make_server_fingerprint(make_http_config(URL))


@pytest.mark.parametrize(
    "url",
    [
        "https://localhost/mcp",
        "http://localhost:8080/mcp",
        "http://localhost/",
        "http://localhost/MCP",
        "http://localhost/tenant/mcp",
        "http://localhost.example/mcp",
    ],
)
def test_another_scheme_host_port_or_path_is_another_server(url: str) -> None:
    assert make_server_fingerprint(make_http_config(url)) != make_server_fingerprint(make_http_config(URL))


def test_a_child_is_the_same_server_while_its_command_and_arguments_are() -> None:
    fingerprint = make_server_fingerprint(CHILD)
    assert make_server_fingerprint(replace(CHILD, name="other", env={"TOKEN": "rotated"})) == fingerprint
    assert make_server_fingerprint(replace(CHILD, command="other")) != fingerprint
    assert make_server_fingerprint(replace(CHILD, args=("server.py --verbose",))) != fingerprint


def test_a_child_in_another_directory_is_another_server() -> None:
    """`uv run server` and `npm start` are what the directory says."""
    here = make_server_fingerprint(replace(CHILD, cwd="/srv/here"))
    assert here == make_server_fingerprint(replace(CHILD, cwd="/srv/here/"))
    assert here != make_server_fingerprint(replace(CHILD, cwd="/srv/there"))
    assert here != make_server_fingerprint(CHILD)


def test_a_fingerprint_shows_no_part_of_the_url() -> None:
    fingerprint = make_server_fingerprint(make_http_config("https://mcp.example/s/secret/mcp"))
    transport, digest = fingerprint.address.split(":")
    assert (transport, len(digest)) == ("http", 16)
    assert set(digest) <= set("0123456789abcdef")


def test_a_server_with_an_id_is_the_same_at_another_address_and_another_id_is_another_server() -> None:
    here, there = (make_http_config(url) for url in (URL, "https://moved.example/mcp"))

    def is_same(one: UpstreamConfig, other: UpstreamConfig) -> bool:
        first, second = make_server_fingerprint(one), make_server_fingerprint(other)
        assert first.is_same_server(second) is second.is_same_server(first)
        return first.is_same_server(second)

    assert is_same(replace(here, server_id="billing-1"), replace(there, server_id="billing-1"))
    assert is_same(replace(here, server_id="billing-1"), replace(CHILD, server_id="billing-1"))
    assert not is_same(replace(here, server_id="billing-1"), replace(here, server_id="billing-2"))
    assert is_same(replace(here, server_id="billing-1"), here)
    assert not is_same(replace(here, server_id="billing-1"), there)


async def test_the_names_of_one_server_are_those_with_its_address_or_its_id() -> None:
    """Each of them is one server with the next one: a task of it is adopted once."""
    configs = [
        make_http_config(URL, name="address"),
        replace(make_http_config(URL, name="both"), server_id="billing-1"),
        replace(make_http_config("https://moved.example/mcp", name="moved"), server_id="billing-1"),
        make_http_config("https://other.example/mcp", name="other"),
    ]
    async with open_upstreams(*configs) as upstreams:
        connections = upstreams.connections
        for name in ("address", "both", "moved"):
            fingerprint = connections.shared[name].server_fingerprint
            assert connections.list_shared_names(name, fingerprint) == ["address", "both", "moved"]
        assert connections.list_shared_names("other", connections.shared["other"].server_fingerprint) == ["other"]
        assert connections.list_shared_names("other", None) == ["other"]
