"""The words and the rules of Ringback, as values and tables.

Nothing here awaits, reads a clock, draws a random number or knows a framework: what changes with the world is handed in.
A rule that several surfaces need (which webhook hears an event, which status may follow which, how long to wait before the
next attempt) is written here once, as a table or a pure function, and tested by properties.

    ids  clock  errors  cursor      the alphabet
    call  webhook  event  delivery  the nouns, each a frozen value with its rules
    retry                           the ladders of attempts
    principal                       who is asking, and what they may do
    ports                           what the rules need from the world, as narrow Protocols
"""
