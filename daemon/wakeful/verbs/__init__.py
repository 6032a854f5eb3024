"""One table of verbs. The command line, the HTTP routes, completion, the checks of tokens and the reference in
`docs/commands.md` are made from it.

`verb` defines the values, each family module lists its verbs, `table` joins the families. Everything here is plain
data without click, starlette or the core: a command on the terminal imports it in a few milliseconds.

docs/architecture.md says how to add a verb.
"""
