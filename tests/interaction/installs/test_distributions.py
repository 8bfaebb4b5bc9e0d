"""The sdist has what its README links, and the wheel that is built from it has what the commands print."""

import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from tests.support.limits import WAIT_SECONDS

ROOT = Path(__file__).parents[3]
_LINK = re.compile(r"\]\((?!https?:|#)(?P<path>[^)#]+)\)")


_BUILD = """
import gzip, sys
compress = gzip.GzipFile.__init__
compress.__defaults__ = tuple(1 if each == 9 else each for each in compress.__defaults__)
from hatchling.cli import hatchling
sys.exit(hatchling())
"""
"""`python -m hatchling`, which compresses with the default level, 9: that takes a second of CPU."""


def build(kind: str, source: Path, target: Path) -> Path:
    """The built file. The build backend runs without an environment of its own, which takes half a minute."""
    command = (sys.executable, "-c", _BUILD, "build", "--target", kind, "--directory", str(target))
    subprocess.run(command, cwd=source, capture_output=True, timeout=WAIT_SECONDS, check=True)
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder / "built")) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.glob("ringback-*")
    return unpacked


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build("wheel", sdist, tmp_path_factory.mktemp("wheel")))


@pytest.fixture
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


@pytest.mark.parametrize("page", ["README.md", "scripts/deploy/OPERATIONS.md"])
def test_every_file_that_a_page_links_is_in_the_sdist(sdist: Path, page: str) -> None:
    linked = {match["path"] for match in _LINK.finditer((sdist / page).read_text(encoding="utf-8"))}

    assert linked
    assert {path for path in linked if not (sdist / page).parent.joinpath(path).exists()} == set()


def test_the_sdist_has_no_file_that_a_service_or_an_editor_left(sdist: Path) -> None:
    found = {str(file.relative_to(sdist)) for file in sdist.rglob("*") if file.is_file()}
    ignored = re.compile(r"\.db(-wal|-shm|\.key|\.lock)?$|(^|/)(\.env|__pycache__|\.venv)(/|$)|\.pyc$")

    assert {name for name in found if ignored.search(name)} == set()


def test_the_wheel_has_the_operations_page_and_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    package = ROOT / "app" / "ringback"
    expected = {
        f"ringback/{file.relative_to(package)}"
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }

    assert expected <= set(wheel.namelist())
    assert wheel.read("ringback/cli/operations.md") == (ROOT / "scripts/deploy/OPERATIONS.md").read_bytes()


def test_the_metadata_name_license_pythons_and_platform_and_no_invented_address(metadata: Message) -> None:
    classifiers = metadata.get_all("Classifier", [])

    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("MIT", ">=3.11")
    assert "Operating System :: POSIX :: Linux" in classifiers
    assert "Programming Language :: Python :: 3.11" in classifiers
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert [metadata[name] for name in ("Home-page", "Author-email", "Project-URL")] == [None, None, None]
