"""The user's home folder, also for a user who has none: a number without an account, in a container or a job without HOME.

The folders of configuration and state are below it, or where XDG variables say.
"""

from collections.abc import Mapping
from pathlib import Path


def find_home() -> Path:
    """The root for a user without a home folder, as container runtimes set it.

    Such a user has no files there, and a command that must write one there says that it cannot.
    """
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def find_base_folder(environment: Mapping[str, str], variable: str, default: str, *, home: Path | None = None) -> Path:
    """A base folder (XDG Base Directory Specification): that of the variable, or `default` below the home folder.

    A relative path in the variable is ignored, as the specification says: each command would have its files elsewhere.
    """
    folder = Path(environment.get(variable, ""))
    return folder if folder.is_absolute() else (home or find_home()) / default
