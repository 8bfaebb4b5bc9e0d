"""The command `ringback`."""

from ringback.cli.app import app


def main() -> None:
    app()
