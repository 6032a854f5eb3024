"""The answer to a person who typed a verb that does not exist: the verb for what they mean,
or one that is spelled nearly so.

Words of other tools are answered by their meaning. A slip of the finger is answered by spelling, and never with a verb
that closes, removes or goes back: a person who repeats the suggestion unread must not lose anything.
Imported only after such a slip.
"""

from __future__ import annotations

import difflib

from wakeful.verbs.table import COMMANDS

# Verbs that are never suggested: each closes, abandons, removes, replaces or goes back.
DANGEROUS = frozenset(verb.name for verb in COMMANDS.values() if verb.is_dangerous)
_RUN = "`wakeful activate NAME` runs a session now"
_DAEMON = "`wakeful daemon` starts the service"
_LIST = "`wakeful list` shows all sessions"
_SHOW = "`wakeful show NAME` tells all about a session"
_STOP = "`wakeful interrupt NAME` stops its run"
_HOLD = "`wakeful sleep NAME` holds a session"
_NEW = "`wakeful new NAME` writes a spec"
_GONE = "a session whose file leaves sessions.d starts no more runs, and its record is kept"
_HELP = "`wakeful --help` lists the verbs, `wakeful VERB --help` explains one"
_EDIT = "edit sessions.d/NAME.yaml: the daemon reads it when it is saved, `wakeful check` judges it"
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
    "status": f"{_LIST}; {_SHOW}; `wakeful doctor` looks at the service",
    "ps": f"{_LIST}; `wakeful top` shows what runs",
    "ls": _LIST,
    "sessions": _LIST,
    "info": _SHOW,
    "describe": _SHOW,
    "cat": _SHOW,
    "logs": "`wakeful log NAME` shows a session's records, `wakeful output NAME` what a run printed",
    "tail": "`wakeful follow` shows what happens, as it happens",
    "watch": "`wakeful follow` shows what happens, as it happens; `wakeful top` what runs",
    "events": "`wakeful log NAME` shows a session's records; `wakeful follow` those to come",
    "create": _NEW,
    "init": f"{_NEW}; {_DAEMON}",
    "edit": _EDIT,
    "reload": _EDIT,
    "apply": _EDIT,
    "validate": "`wakeful check` judges specs",
    "lint": "`wakeful check` judges specs",
    "rm": _GONE,
    "remove": _GONE,
    "delete": _GONE,
    "message": "`wakeful send NAME TEXT` puts a message in a session's mailbox",
    "chat": "`wakeful ask NAME TEXT` puts a message to a session's agent",
    "help": _HELP,
    "version": "`wakeful --version` prints it",
}


def suggest_verb(name: str) -> str:
    """The advice for such a verb, as the end of a sentence."""
    meaning = MEANINGS.get(name.lower())
    if meaning is not None:
        return meaning
    near = difflib.get_close_matches(name.lower(), COMMANDS, 1)
    # The nearest verb is the likeliest one: where it must not be suggested, the second nearest would be a guess.
    return f"did you mean {near[0]!r}?" if near and near[0] not in DANGEROUS else "`wakeful --help` lists them"
