"""The user's home folder, also for a user who has none: a number without an account, in a container or a job without HOME."""

from pathlib import Path


def find_home() -> Path:
    """The root for a user without a home folder, as container runtimes set it.

    Such a user has no files there, and a command that must write one there says that it cannot.
    """
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
