"""The pages of the dashboard, a module for each section. Each class makes the routes of its pages and of their buttons.

home           the first page; home_cards: its numbers
calls          the list of calls, the page of one call
live           what lists, the first page and the page of a session show, as server-sent events
sessions       the client sessions, the page of one
webhooks       the webhooks; webhook_actions: the buttons of one; webhook_form: changes one
deliveries     the deliveries; redelivery: sends all again that match a filter
upstreams      the upstreams and their tools; tools: starts a call of one
events         the event log
audit          who changed what
lookup         one box for every id and key
sign_in        sign in with an API key, and sign out; issuer_sign_in: at the issuer of access tokens
portal         opens a portal link
"""
