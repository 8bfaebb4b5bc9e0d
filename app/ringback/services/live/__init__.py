"""Lists that follow what happens, for pages that stay open. However many viewers look at one list, it is read once.

    commit ──▶ signal ──▶ the list's turn ──▶ read ──▶ if it changed: every viewer of the list gets the same new content

Live lists must not slow calls and callbacks. So the CPU time of their reads and of all their viewers' writes is measured, and
the next read waits until a small part of this process's time has paid for it: with many lists, with many viewers, or under
load, each list is read less often.

    lists     the lists that viewers follow
    listings  what a list shows: calls, deliveries, webhooks, events, or a client session; home_listing: the first page
    budget    the CPU time of all lists together, and whose turn it is
    pools     how many lists and pages one principal or one portal link has open
"""
