"""Read models: what the service does now, what happened hour by hour, and the sessions of clients.

Each is a bounded number of rows, however many calls are stored. The janitor writes the hourly counts (`janitor.hour_counter`).

    insights    the one entry of dashboard, CLI and API
    readiness   checks with a real write whether the store can store a call, once for all probes
    missing_roles  roles that work waits for and that no node runs, and their log lines
    overviews   hourly counts with what has happened since they were written, and open work
    tails       what has happened since the hourly counts were written
    sessions    client sessions and their calls
"""
