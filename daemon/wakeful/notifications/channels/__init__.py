"""The channels of messages: `http`, `mail` and `program`. `send` chooses one."""
