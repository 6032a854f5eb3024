"""The steps of every verb that is a call.

A verb that only records its call needs no entry: its body becomes the call of the same name, field by field. Verbs with
work before or after the call have an entry in `CALLS` of `lifecycle_calls` or `history_calls`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import get_args

from wakeful.api.operations import history_calls, lifecycle_calls
from wakeful.api.operations.call_steps import CallSteps
from wakeful.core.calls import values as calls
from wakeful.verbs.verb import Verb

_WITH_STEPS = {**lifecycle_calls.CALLS, **history_calls.CALLS}


def list_steps(verbs: Mapping[str, Verb]) -> dict[str, CallSteps]:
    """List the steps of each verb with a route `POST /call/NAME`. Raises LookupError if there is no call for one."""
    return {name: _find_steps(name) for name, verb in verbs.items() if verb.is_call}


def _find_steps(name: str) -> CallSteps:
    if name in _WITH_STEPS:
        return _WITH_STEPS[name]
    for kind in get_args(calls.Call):
        if _spell(kind) == name:
            return CallSteps(makes=(kind,))
    raise LookupError(f"the verb {name} has a route of calls, but core/calls/values.py has no call of its name")


def _spell(kind: type[calls.Call]) -> str:
    """Spell the name of a call as its verb: `SleepAll` is `sleep_all`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
