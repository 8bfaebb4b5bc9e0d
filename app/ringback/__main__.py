"""`python -m ringback` is the command `ringback`."""

from ringback.main import main

if __name__ == "__main__":
    main()
