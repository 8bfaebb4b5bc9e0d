"""`python -m ringback` is the command `ringback`."""

from ringback.cli.app import app


def main() -> None:
    app()


if __name__ == "__main__":
    main()
