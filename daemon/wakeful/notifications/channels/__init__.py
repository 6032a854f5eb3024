"""The channels of messages: `http_post`, `mail` and `program`. `send` chooses one."""
