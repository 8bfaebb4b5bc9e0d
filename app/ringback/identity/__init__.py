"""Who is asking: whatever a bearer token says, checked, and turned into a caller."""
