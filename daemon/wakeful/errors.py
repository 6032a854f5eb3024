"""The one tree of errors. Each branch names the person who must act.

A message says where, what was found, what was expected and what to do. Expected endings (a run that fails, a change
that is undone) are outcomes in the log, never exceptions. Every package may add subclasses. Each raise has a message.
"""


class WakefulError(Exception):
    """An error that is reported with a message instead of a traceback."""


class SpecError(WakefulError):
    """The author of a spec must act: a key, a value, a cycle."""


class OperatorError(WakefulError):
    """The operator of the daemon must act: disk, permissions, versions, a second daemon."""


class CallerError(WakefulError):
    """The caller must act: an unknown name, a call that makes no sense now."""


class KeyReused(CallerError):
    """The idempotency key of this call was used for another call."""


class UnknownSession(CallerError):
    """The name belongs to no session."""


class InternalError(WakefulError):
    """The developers must act: this is a defect of wakeful, and stopping is safer than going on."""
