"""The words and the rules of Ringback, as values and tables.

Nothing here awaits, reads a clock, draws a random number or knows a framework: what changes with the world is handed in.
A rule that several surfaces need (which webhook hears an event, which status may follow which, how long to wait before the
next attempt) is written here once, as a table or a pure function, and tested by properties.

    ids  clock  errors  cursor      the alphabet
    call  webhook  event  delivery  the nouns, each a frozen value with its rules
    inputs  recovery                a call's questions and answers; what becomes of it without its runner
    reported  results               calls that run elsewhere; what is kept of a tool's answer
    retry  breaker  health          the ladders of attempts; when an origin or a receiver gets no more of them
    catch_up  pages                 webhooks with an old cursor; pages whose work is bounded
    scheduling_time                 the wall clock without its steps
    liveness                        when a silent child process counts as frozen
    verification                    proof that a callback URL wants callbacks
    write_probe                     a write that shows whether the store keeps what it is given
    principal  usage                who is asking, what they may do, and how much of everything they have
    upstreams  catalog              what is told of upstreams, and what is kept of it
    watches                         who wants to hear when an upstream changes
    ports                           what the rules need from the world, as narrow Protocols
"""
