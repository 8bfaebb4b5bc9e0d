"""The lists of upstreams, and the check of a call against them.

listing               fetches a list, bounded
listed_entries        leaves out of an entry what strict clients cannot read
catalog_cache         the last known lists, in memory and in the store
upstream_lists        the lists of one connection, as clients with and without elicitation see them
catalog_refresher     keeps the cached lists of a connection current
tool_catalog          finds tools and rejects calls that cannot succeed
argument_validation   checks arguments of tools and event types against an inputSchema in bounded time
payload_schemas       … the data of events that clients publish
requested_schemas     … answers to elicitations, against the requestedSchema of the question
"""
