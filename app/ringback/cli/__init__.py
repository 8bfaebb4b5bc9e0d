"""The command line, for people at a terminal and for scripts.

    app               the root command: imports a command's module when it runs
    imports           … without the parts of its libraries that no command uses; the client follows with the first request
    commands          the commands, one module each

What one command, or two, are made of:

    embedded_service  `mcp` and `connect`: the service that they start if none runs
    stdio_bridge      `mcp`: standard input and output to streamable HTTP
    client_files      `connect`: reads and edits the files of MCP clients
    connect_report    … prints what changes and what to do next
    following         `call --wait` and `join`: progress and result
    call_words        what commands say about a call
    listening         `listen`: opens the parts of the durable listener and runs it
    durable_listener  … from the event stream, with an inbox on disk
    stop_signals      … the first signal ends it in order, the second at once
    callback_receiver … by webhook: verifies and prints callbacks
    callback_server   … serves its ASGI application
    callback_text     … the printed text of a callback
    webhook_names     `webhooks`: found by their names
    login_redirects   `upstreams login`: gets the redirect at the end of a login
    stored_request    `verify`: parses a saved request, and finds why its signature does not match
    server_checks     `check-server`: its cases
    receiver_checks   `check-receiver`: its checks
    check_report      … the table of both
    installation_checks  `doctor`: its checks
    configured_upstreams … which upstreams the configuration has
    demo_upstream     `serve --dev`: the MCP server behind it

What commands share:

    client_options    the options of client commands, and how a command runs with a client
    option_groups     … declared once as the fields of a dataclass
    server_options    --database, and the service's errors that end a command with one message
    arguments         parses `--arg name=value`, times and URLs, and `list` after a command that lists by itself
    output            printing and exit codes
    output_errors     … one message and an exit code where the output cannot be written
    hints             the service's advice, with commands in the place of REST requests
    http_connections  reads one HTTP request for each connection, and responds: to callbacks, and to a login's redirect
    file_locks        locks that end with their process, for the own service and the durable listener
    http_clients      how the commands' httpx clients differ: no cookies, redirects, or proxy to this machine; limits
    home_folder       the user's home and base folders, also for a user who has no home

Results go to standard output, everything else to standard error. An expected error is one message that says what to do; a
traceback is a bug. Exit codes:

    0    success
    1    the call ended with another outcome than `result`, a callback is invalid or was refused, or the doctor found a fault
    2    the request failed: usage, settings, connection, or a problem that the service reports
    3    the call waits for input, and the command does not, because it has no terminal
    74   the output could not be written; what the command did is done
    75   a wait ended before its call, or a repetition may succeed: the database is away, or a disk is full
    130  Ctrl-C
    143  SIGTERM, for `check-server`

`--json` prints the objects of the REST API. `ringback --install-completion` sets up completion for the shell.
"""
