"""`python -m ringback` is the command `ringback`."""

from ringback.cli.app import app
from ringback.cli.output_errors import exit_on_write_errors


def main() -> None:
    with exit_on_write_errors():
        app()


if __name__ == "__main__":
    main()
