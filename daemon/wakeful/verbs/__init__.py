"""The table of verbs. The command line, the HTTP routes, completion, the token checks and the reference in
`docs/commands.md` are generated from it.

`verb` defines the values, each family module lists its verbs, and `table` joins the families. This package is plain
data and never imports click, starlette or the core, so that every command imports it in a few milliseconds.

docs/architecture.md explains how to add a verb.
"""
