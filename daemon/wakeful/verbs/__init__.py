"""One table of verbs. The command line, the HTTP routes, completion, the checks of tokens and `docs/commands.md` are
made from it.

`verb` defines the values, each family module lists its verbs, `table` joins the families. Everything here is plain
data: no click, no
starlette, no core, so that a command on the terminal can import it in a few milliseconds.
"""
