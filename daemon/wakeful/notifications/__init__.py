"""Notifications to people: makes messages from records of the log, and delivers each message at least once.

`notices` selects the records, `ledger` decides when a message is sent, `messages` makes its text, `channels` send it.
`delivery_loop` joins them; the daemon runs it as one coroutine. Nothing here changes a session, except that the results
of messages are recorded.
"""
