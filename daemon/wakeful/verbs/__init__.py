"""One table of verbs. The command line, the HTTP routes, completion, the checks of tokens and the reference in
`docs/commands.md` are made from it.

`verb` defines the values, each family module lists its verbs, `table` joins the families. Everything here is plain
data without click, starlette or the core: a command on the terminal imports it in a few milliseconds.

To add a verb, add its value to a family and run `make docs`. A call also needs its rule in `core/calls/` and its
entry in `api/routes/lifecycle_calls.py` or `history_calls.py`. A look also needs its handler in `api/app.py`. A verb
whose answer is more than words needs a function in `cli/verbs/`, named in `cli/command.py`.
"""
