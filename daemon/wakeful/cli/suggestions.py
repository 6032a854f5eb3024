"""Suggests a verb to a person who typed one that does not exist.

Verbs of other tools (`restart`, `ps`) are matched by their meaning, typing errors by their spelling. A typing error
never suggests a verb that closes, removes or goes back. A person who runs the suggestion without reading it could lose
something. Imported only after such an error.
"""

from __future__ import annotations

import difflib

from wakeful.verbs.table import COMMANDS

# Verbs that are never suggested: each closes, abandons, removes, replaces or goes back.
DANGEROUS = frozenset(verb.name for verb in COMMANDS.values() if verb.is_dangerous)
_RUN = "`wakeful activate NAME` runs a session now"
_DAEMON = "`wakeful daemon` starts the service"
_LIST = "`wakeful list` shows all sessions"
_SHOW = "`wakeful show NAME` shows everything about a session"
_STOP = "`wakeful interrupt NAME` stops its run"
_HOLD = "`wakeful sleep NAME` holds a session"
_NEW = "`wakeful new NAME` writes a spec"
_GONE = "a session whose file is removed from sessions.d starts no more runs, and its log is kept"
_HELP = "`wakeful --help` lists the verbs, `wakeful VERB --help` explains one"
_EDIT = "edit sessions.d/NAME.yaml: the daemon reads it when it is saved, `wakeful check` checks it"
# Words of other tools -> what the person means here.
MEANINGS = {
    "restart": f"{_RUN}; the service: `systemctl --user restart wakeful`, or Ctrl-C and `wakeful daemon`",
    "rerun": _RUN,
    "retry": _RUN,
    "run": f"{_RUN}; {_DAEMON}",
    "exec": _RUN,
    "trigger": _RUN,
    "wake": _RUN,
    "start": f"{_DAEMON}; {_RUN}",
    "serve": _DAEMON,
    "up": _DAEMON,
    "stop": f"{_STOP}; {_HOLD} until `wakeful resume NAME`; the service: Ctrl-C, or `systemctl --user stop wakeful`",
    "kill": _STOP,
    "abort": _STOP,
    "down": "the service stops with Ctrl-C, or `systemctl --user stop wakeful`",
    "pause": f"{_HOLD} until `wakeful resume NAME`",
    "disable": f"{_HOLD} until `wakeful resume NAME`; `enabled: false` in its spec keeps it so",
    "enable": "`wakeful resume NAME` lifts a hold; `enabled: false` stands in the spec",
    "unpause": "`wakeful resume NAME` lifts a hold",
    "continue": "`wakeful resume NAME` lifts a hold",
    "status": f"{_LIST}; {_SHOW}; `wakeful doctor` checks the service",
    "ps": f"{_LIST}; `wakeful top` shows running sessions",
    "ls": _LIST,
    "sessions": _LIST,
    "info": _SHOW,
    "describe": _SHOW,
    "cat": _SHOW,
    "logs": "`wakeful log NAME` shows a session's records, `wakeful output NAME` what a run printed",
    "tail": "`wakeful follow` prints new records",
    "watch": "`wakeful follow` prints new records; `wakeful top` shows running sessions",
    "events": "`wakeful log NAME` shows a session's records; `wakeful follow` prints new ones",
    "create": _NEW,
    "init": f"{_NEW}; {_DAEMON}",
    "edit": _EDIT,
    "reload": _EDIT,
    "apply": _EDIT,
    "validate": "`wakeful check` checks specs",
    "lint": "`wakeful check` checks specs",
    "rm": _GONE,
    "remove": _GONE,
    "delete": _GONE,
    "message": "`wakeful send NAME TEXT` puts a message in a session's mailbox",
    "chat": "`wakeful talk NAME` talks to a session's agent, `wakeful ask NAME TEXT` asks one question",
    "help": _HELP,
    "version": "`wakeful --version` prints it",
}


def suggest_verb(name: str) -> str:
    """Return the suggestion for an unknown verb, as the end of a sentence."""
    meaning = MEANINGS.get(name.lower())
    if meaning is not None:
        return meaning
    near = difflib.get_close_matches(name.lower(), COMMANDS, 1)
    # If the most similar verb must not be suggested, suggest none. The second most similar verb would be only a guess.
    return f"did you mean {near[0]!r}?" if near and near[0] not in DANGEROUS else "`wakeful --help` lists them"
