"""Where calls, events and deliveries are kept: implementations of `domain.ports.Store`, one folder for each database.

    open.py      a URL becomes an open store
    queries.py   loads named statements from .sql files; there is no SQL anywhere else
    signals.py   who waits for what, within one process
    sqlite/      the default: one file, no service to start

Another database gets a folder with the same file names and the same statement names, so that a diff of the two shows the
dialect, and runs the same suite: tests/conformance. This ring knows rows. What they mean, and what may follow what, is
decided above it; it only promises what the ports say.
"""
