"""The checks of `ringback doctor` on an installation. Each finding of a fault says how to repair it.

database     the database and the key ring
network      the service, its clock, the issuer of access tokens, and the receivers of callbacks
service      what the running service says about itself
own_service  which service it is that the user's MCP clients share
public_url   what lies behind the public URL
upstreams    the configured upstreams
report       what is printed of the findings, and when
"""
