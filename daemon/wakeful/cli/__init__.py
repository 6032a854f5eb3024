"""Arguments in, text out: the command `wakeful`.

`command` has the table of verbs and the exit codes, `client` speaks to the daemon, `text` prints, `verbs/` has what each verb
does. A verb's module is imported when that verb is used: `wakeful list` must not wait for what only `check` needs.
"""

from wakeful.cli.command import main

__all__ = ["main"]
