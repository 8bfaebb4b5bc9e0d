"""Which changes of a configuration leave the server of an upstream the same."""

from dataclasses import replace
from typing import Final

import pytest

from ringback.upstreams.server_fingerprints import make_server_fingerprint
from tests.support.upstreams import make_http_config, make_python_config

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
    transport, digest = make_server_fingerprint(make_http_config("https://mcp.example/s/secret/mcp")).split(":")
    assert (transport, len(digest)) == ("http", 16)
    assert set(digest) <= set("0123456789abcdef")
