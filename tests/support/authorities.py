"""The certificate authority that the processes of the tests trust. It is one, and its key is not kept.

Loading the usual 140 authorities takes 25 ms of CPU for each httpx client: without this module that is a tenth of all tests. No
test connects to a public host, except for package managers, which get `make_network_environment`.
"""

import os
import ssl
from pathlib import Path
from typing import Final

import certifi

_FILE: Final = Path(__file__).with_suffix(".pem")
_VARIABLE: Final = "SSL_CERT_FILE"
"""OpenSSL and httpx read it."""
_USUAL: Final = "RINGBACK_TEST_USUAL_SSL_CERT_FILE"


def trust_one_authority() -> None:
    """Trust only the authority of the tests, in this process and in those that it starts."""
    if os.environ.get(_VARIABLE) != str(_FILE):
        os.environ[_USUAL] = os.environ.get(_VARIABLE, "")
        os.environ[_VARIABLE] = str(_FILE)
    _replace_usual_files()


def _replace_usual_files() -> None:
    """Clients without `trust_env` do not read the variable: httpx asks certifi for its file, and httpx2 OpenSSL."""
    certifi.where = lambda: str(_FILE)
    read_paths = ssl.get_default_verify_paths  # reads the variable, which a test may set
    ssl.get_default_verify_paths = lambda: read_paths()._replace(openssl_cafile=str(_FILE), openssl_capath="")


def make_network_environment() -> dict[str, str]:
    """The environment for a process that connects to public hosts."""
    environment = dict(os.environ)
    environment.pop(_VARIABLE, None)
    usual = environment.pop(_USUAL, "")
    return environment | ({_VARIABLE: usual} if usual else {})
