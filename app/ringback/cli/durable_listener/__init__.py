"""The durable listener of `ringback listen`: callbacks on a machine without a public URL.

    GET /v1/events/stream ──▶ event_reader ──▶ inbox ──▶ callback_dispatcher ──▶ handler
                              adds a resume    one file:      one lane a          prints, forwards, or runs
                              token            callbacks      session, with       a command
                                               + cursor       retries

One transaction stores events and the cursor after them, so each event is in the inbox exactly once, however often the
listener is killed. A callback leaves the inbox after its handler has succeeded, so a handler runs at least once. Callbacks of
one client_session_id (of one call without one) are handled one at a time, in the order of the log.

    listener             opens the parts, runs them, and stops them in order
    event_reader         reads the event stream into the inbox, as callbacks like those that the service makes
    inbox                the SQLite file: waiting callbacks, the cursor, the secret; the same inbox as a receiver's
    defaults             what the help of `listen` shows without importing the rest
    state_file           where the file is, and the lock that keeps a second listener from it
    callback_dispatcher  one lane for each session, retries, the stop
    handlers             the outcomes of a handler; prints callbacks
    notifications        desktop notifications, or the terminal's bell
    forwarding           sends callbacks to a URL, signed as Ringback signs
    commands             runs a command for each callback
    running_commands     the commands that run, and the wait for those of a listener that was killed
    command_guard        the process that ends them when the listener is killed

The package imports only the client, the receiver and the signatures.
"""
