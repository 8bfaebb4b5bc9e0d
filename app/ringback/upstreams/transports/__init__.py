"""Bytes to and from upstreams.

HTTP    SDK ──▶ direct_posts ──▶ legacy_session_transport ──▶ guarded_http ──▶ throttled_calls ──▶ bearer tokens ──▶
        cookies ──▶ http_pool
        `event_stream` checks responses that are event streams, and leaves outdated progress out of them (`progress_floods`);
        `event_parts` reads and writes single events.
        `http_connection` is one connection of the pool. `own_streams` keeps the stream for messages outside requests open.
stdio   SDK ──▶ stdio ──▶ child_process
        `child_input` queues and writes messages. `child_records` finds the processes that an earlier service left.
        `notification_buffer` limits notifications. `error_output` keeps the end of a command's standard error.
both    `line_splitter` and `message_decoder` bound lines and messages. `large_results` passes big results around the SDK.
`paced_streams` lets an event stream wait for its reader. `open_response` closes the response to a request whose caller is gone.
"""
