"""The command line: people at a terminal, and scripts.

    app.py            the root: which commands there are, and --version
    serve.py          runs the service
    keys.py           API keys, straight in the service's database
    call.py           starts a call through the REST API, and waits for it
    arguments.py      … its `--arg name=value` as JSON
    listen.py         a receiver that verifies callbacks and prints them
    callback_server.py … its HTTP server
    webhooks.py       who is rung, through the REST API
    deliveries.py     what was sent, through the REST API
    doctor.py         looks at everything that could be wrong
    checks.py         … and how it looks
    connect.py        how the client commands reach a Ringback
    service_errors.py the service's errors that end a command with one message
    output.py         what is printed, and how errors end
    demo_upstream.py  the MCP server behind `serve --dev`

Answers go to standard output, all else to standard error. Exit codes: 0 it worked; 1 the call ended in another way than with
a result, or the doctor found something wrong; 2 it could not be asked (usage, settings, connection, or a problem that the
service tells). Errors that are to be expected are one message that says what to do; a traceback is a bug.
"""
