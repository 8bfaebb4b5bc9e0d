"""The files of the dashboard: those of other projects are unchanged, and templates keep the content security policy."""

import hashlib
import re
from pathlib import Path
from typing import Final

import pytest

import ringback.ui
from ringback.ui.assets import ASSETS, OWN_FILES, VENDORED_FILES

UI: Final = Path(ringback.ui.__file__).parent
STATIC: Final = UI / "static"
TEMPLATES: Final = sorted((UI / "templates").rglob("*.html"))
FORBIDDEN: Final = {
    "an inline style": re.compile(r"\sstyle=|<style", re.IGNORECASE),
    "an inline script": re.compile(r"<script(?![^>]*\ssrc=)", re.IGNORECASE),
    "a handler attribute": re.compile(r"\son[a-z]+=|\shx-on", re.IGNORECASE),
    "a URL of another host": re.compile(r"(src|href|action)=\"(https?:)?//", re.IGNORECASE),
    "text that is not escaped": re.compile(r"\|\s*safe\b|autoescape"),
}


def test_files_of_other_projects_are_what_the_registry_has_and_their_licence_is_beside_them() -> None:
    found = {name: hashlib.sha256((STATIC / name).read_bytes()).hexdigest() for name in VENDORED_FILES}
    licences = (STATIC / "LICENSES.txt").read_text(encoding="utf-8")

    assert found == {name: file.sha256 for name, file in VENDORED_FILES.items()}
    assert all(name in licences and file.package in licences for name, file in VENDORED_FILES.items())
    assert {file.licence for file in VENDORED_FILES.values()} == {"0BSD"}
    assert "Zero-Clause BSD" in licences


def test_each_file_is_served_or_a_licence() -> None:
    assert {path.name for path in STATIC.iterdir()} == {*OWN_FILES, *VENDORED_FILES, "LICENSES.txt"}
    assert {
        name for name, asset in ASSETS.items() if hashlib.sha256(asset.content).hexdigest()[:16] != asset.digest
    } == set()


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_nothing_that_the_content_security_policy_forbids(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert [what for what, pattern in FORBIDDEN.items() if pattern.search(text)] == []


def test_own_scripts_make_no_markup_of_text() -> None:
    script = (STATIC / "ringback.js").read_text(encoding="utf-8")

    assert (
        re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|\.style\b", script)
        == []
    )
