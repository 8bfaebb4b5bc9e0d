"""The processes of a proxy's checks: an MCP server, Ringback, and the proxy with the file of scripts/deploy, over TLS.

The files are used as they are, with other ports, certificates and host names: localhost for the host of its own, and 127.0.0.1
for the host that Ringback shares.
"""

import asyncio
import json
import os
import re
import shutil
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import trustme

from scripts.interop_runs.stage import Receiver, StageProcess, receiving, running
from scripts.ports import free_port

DEPLOY: Final = Path(__file__).resolve().parents[1] / "deploy"
PROXY_PATHS: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
OWN_HOST: Final = "localhost"
SHARED_HOST: Final = "127.0.0.1"


class Place(StrEnum):
    """Where clients reach Ringback."""

    ROOT = "root"
    PATH = "path"

    def public_url(self, port: int) -> str:
        return f"https://{OWN_HOST}:{port}" if self is Place.ROOT else f"https://{SHARED_HOST}:{port}/ringback"


class ProxyMissing(Exception):
    """The proxy is not installed. The message says how to install it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    name: str
    package: str
    """The Debian package."""
    render: Callable[[Path, int, int], Sequence[str]]
    """Writes the configuration into the folder, for the port of the proxy and that of Ringback; returns the command."""

    @property
    def program(self) -> str:
        found = shutil.which(self.name, path=PROXY_PATHS)
        if found is None:
            raise ProxyMissing(f"{self.name} is missing: apt-get install {self.package}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyStage:
    public_url: str
    key: str
    trusted: ssl.SSLContext
    authority: Path
    folder: Path
    receiver: Receiver
    settings: Sequence[str]
    """Ringback's variables, as `NAME=value`."""


@asynccontextmanager
async def open_proxy_stage(proxy: Proxy, place: Place, folder: Path) -> AsyncGenerator[ProxyStage]:
    program = proxy.program
    authority = _write_certificates(folder)
    proxy_port, ringback_port, upstream_port = free_port(), free_port(), free_port()
    public_url = place.public_url(proxy_port)
    settings = _make_settings(folder, public_url, ringback_port, upstream_port, authority)
    key = await _create_key(settings)
    upstream = [sys.executable, "-m", "scripts.interop_runs.proxy_upstream", str(upstream_port)]
    ringback = ["env", *settings, sys.executable, "-m", "ringback", "serve"]
    command = [program, *proxy.render(folder, proxy_port, ringback_port)]
    processes = [
        StageProcess("the upstream", upstream, upstream_port, folder / "upstream.log"),
        StageProcess("ringback", ringback, ringback_port, folder / "ringback.log"),
        StageProcess(proxy.name, command, proxy_port, folder / f"{proxy.name}.log"),
    ]
    async with receiving() as receiver, running(processes):
        yield ProxyStage(
            public_url=public_url,
            key=key,
            trusted=ssl.create_default_context(cafile=str(authority)),
            authority=authority,
            folder=folder,
            receiver=receiver,
            settings=settings,
        )


def _write_certificates(folder: Path) -> Path:
    """One certificate for both hosts, as the files name it; returns the authority's."""
    authority = trustme.CA()
    certificate = authority.issue_cert(OWN_HOST, SHARED_HOST)
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(str(folder / "fullchain.pem"), append=True)
    certificate.private_key_pem.write_to_path(str(folder / "privkey.pem"))
    shutil.copy(folder / "fullchain.pem", folder / "ringback.pem")
    shutil.copy(folder / "privkey.pem", folder / "ringback.pem.key")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return folder / "ca.pem"


def _make_settings(
    folder: Path, public_url: str, ringback_port: int, upstream_port: int, authority: Path
) -> Sequence[str]:
    config = folder / "mcp.json"
    servers = {"stage": {"url": f"http://127.0.0.1:{upstream_port}/mcp"}}
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return [
        f"RINGBACK_DATABASE_URL=sqlite:///{folder / 'ringback.db'}",
        f"RINGBACK_CONFIG={config}",
        f"RINGBACK_PORT={ringback_port}",
        f"RINGBACK_PUBLIC_URL={public_url}",
        f"RINGBACK_CA_FILE={authority}",
        "RINGBACK_TRUSTED_PROXIES=127.0.0.1/32",
        "RINGBACK_OIDC_ISSUER=https://issuer.example",
        "RINGBACK_CALLBACK_PRIVATE_CIDRS=127.0.0.0/8",
        "RINGBACK_CALLBACK_HTTP=true",
    ]


async def _create_key(settings: Sequence[str]) -> str:
    command = ["env", *settings, sys.executable, "-m", "ringback", "keys", "create", "alice", "--create"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    return printed.decode().strip()


def _render_file(name: str, folder: Path, ringback_port: int) -> str:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    text = text.replace("127.0.0.1:8090", f"127.0.0.1:{ringback_port}").replace("/etc/ringback/tls", str(folder))
    return text.replace("ringback.example.com", OWN_HOST).replace("tools.example.com", SHARED_HOST)


def render_nginx(folder: Path, proxy_port: int, ringback_port: int) -> Sequence[str]:
    site = _render_file("nginx-site.conf", folder, ringback_port).replace(
        "listen 443", f"listen 127.0.0.1:{proxy_port}"
    )
    (folder / "site.conf").write_text(site, encoding="utf-8")
    temporary = "".join(
        f"{name}_temp_path {folder / name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    # As root, nginx would give its workers another user, who cannot write into the folder.
    user = "user root;\n" if os.geteuid() == 0 else ""
    text = (
        f"{user}pid {folder / 'nginx.pid'};\nerror_log stderr warn;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}include {folder / 'site.conf'};\n}}\n"
    )
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    return ["-c", str(folder / "nginx.conf"), "-g", "daemon off;"]


def render_caddy(folder: Path, proxy_port: int, ringback_port: int) -> Sequence[str]:
    text = _render_file("Caddyfile", folder, ringback_port)
    for host in (OWN_HOST, SHARED_HOST):
        text = re.sub(rf"^{re.escape(host)} {{", f"https://{host}:{proxy_port} {{", text, flags=re.MULTILINE)
    # Without the ports of its administration and of redirections, which other processes may use.
    options = f"{{\n\tadmin off\n\tauto_https disable_redirects\n\tstorage file_system {folder / 'caddy'}\n}}\n"
    (folder / "Caddyfile").write_text(options + text, encoding="utf-8")
    return ["run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


def render_haproxy(folder: Path, proxy_port: int, ringback_port: int) -> Sequence[str]:
    text = _render_file("haproxy.cfg", folder, ringback_port).replace("bind :443", f"bind 127.0.0.1:{proxy_port}")
    (folder / "haproxy.cfg").write_text(text, encoding="utf-8")
    return ["-db", "-f", str(folder / "haproxy.cfg")]


PROXIES: Final = (
    Proxy(name="nginx", package="nginx-light", render=render_nginx),
    Proxy(name="caddy", package="caddy", render=render_caddy),
    Proxy(name="haproxy", package="haproxy", render=render_haproxy),
)
