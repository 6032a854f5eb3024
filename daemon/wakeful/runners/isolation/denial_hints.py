"""Makes the hint for a failed, confined run: the access it was denied, as far as its output tells,
and the line of a spec that allows it.

`saving` asks once per failed run, in a thread, because this reads the file system. The program's output is compared
with the run's reach, so a hint never names a place that the run could use. Names are hostile: they are quoted here for
YAML, and the code that prints the hint escapes them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from wakeful.core.looking.granted_places import find_cache
from wakeful.core.looking.patterns import contains
from wakeful.core.observations import Denied, Traced
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.denial_messages import Complaint, find_complaints, speaks_of_denial
from wakeful.runners.isolation.reach import is_wide
from wakeful.runners.isolation.reach_check import BY_SYSTEM, NETWORK, Judge, Standards
from wakeful.runners.isolation.strace import Access, Asked
from wakeful.runners.isolation.system_places import is_of_system

# The number of denials named in one line; the others are counted.
_TOLD = 3
# Text that needs no quotes in YAML.
_PLAIN = re.compile(r"[A-Za-z_./~][A-Za-z0-9_./~+-]*")
# The least depth of a folder that is opened for one of its files: /home/me and /var are too high.
_DEEP = 3
_DONE = {"read": "reading", "write": "writing", "run": "running", "connect": "connecting to"}
_TEMPORARY = "it is a temporary file: declare the file that it replaces as an output"


def find_hint(order: RunOrder, standards: Standards | None, cwd: str, text: str) -> str:
    """Of a run that failed after printing `text`. `standards` None: what it could reach is not known any more."""
    denied = (
        list(_judge_all(standards, find_complaints(text, tell_command(order)), cwd)) if standards is not None else []
    )
    trace = f"`wakeful trace {shlex.quote(order.name)}`"
    if denied:
        rest = f"; and {len(denied) - _TOLD} more: {trace} lists all" if len(denied) > _TOLD else ""
        # A link may lead to a name that is no text.
        return os.fsencode("; ".join(_say(one, order) for one in denied[:_TOLD]) + rest).decode(
            errors="backslashreplace"
        )
    if speaks_of_denial(text):
        return f"it may have been denied what it does not declare: {trace} finds out what, and says what to declare"
    return f"isolation is on ({order.confinement.level}): {trace} tells whether it was denied anything"


def name_addresses(trace: Traced, text: str, command: str) -> Traced:
    """A trace of a run without a network knows no address: the kernel refuses the socket already.

    The program's own words often name it.
    """
    if not any(one.what == NETWORK for one in trace.denied):
        return trace
    named = [one.what for one in find_complaints(text, command) if one.access == "connect" and one.what]
    if not named:
        return trace
    others = tuple(one for one in trace.denied if one.what != NETWORK)
    return replace(
        trace, denied=(*others, *(Denied(access="connect", what=what, place=what) for what in dict.fromkeys(named)))
    )


def tell_command(order: RunOrder) -> str:
    return "\n".join((*order.argv, order.script or "", *(order.check or ())))


def _judge_all(standards: Standards, complaints: Iterable[Complaint], cwd: str) -> Iterator[Denied]:
    judge = Judge(standards)
    told: set[tuple[str, str | None]] = set()
    for complaint in complaints:
        denied = _judge(judge, complaint, cwd)
        if denied is not None and (denied.access, denied.place or denied.what) not in told:
            told.add((denied.access, denied.place or denied.what))
            yield denied


def _judge(judge: Judge, complaint: Complaint, cwd: str) -> Denied | None:
    if complaint.access == "connect":
        return judge.judge(
            Asked(access="connect", what=complaint.what, error="EAI_AGAIN" if complaint.is_absent else "EACCES")
        )
    path = os.path.normpath(os.path.join(cwd, os.path.expanduser(complaint.what)))
    if not os.path.lexists(path):
        # A word that is no path, or a path as seen from another folder.
        if complaint.is_absent or complaint.is_word or not os.path.isdir(os.path.dirname(path)):
            return None
        return _find_first(judge, ("write",), path, complaint)
    # Where the words do not say, nobody is offered to write the system's own files.
    is_either = complaint.access != "write" and not is_of_system(os.path.realpath(path))
    return _find_first(judge, ("read", "write") if is_either else (complaint.access or "read",), path, complaint)


def _find_first(judge: Judge, accesses: tuple[Access, ...], path: str, complaint: Complaint) -> Denied | None:
    """Return the first of these accesses that the run's isolation denies.

    If it denies none, return the first that the system denies.
    """
    error = "ENOENT" if complaint.is_absent else "EACCES"
    found = [
        one for access in accesses if (one := judge.judge(Asked(access=access, what=path, error=error))) is not None
    ]
    denied = next((one for one in found if not (one.words or "").startswith(BY_SYSTEM)), None)
    if denied is not None and complaint.is_temporary:
        return Denied(access="write", what=denied.what, words=_TEMPORARY)
    return denied or (found[0] if found and os.path.lexists(path) else None)


def _say(denied: Denied, order: RunOrder) -> str:
    what = f"it was denied {_DONE[denied.access]} {denied.what}"
    if denied.words is not None or denied.place is None:
        return f"{what} ({denied.words})" if denied.words is not None else what
    return f"{what}; to allow it: {_spell_line(denied, denied.place, order)}"


def _spell_line(denied: Denied, place: str, order: RunOrder) -> str:
    """As one line of YAML, in addition to what the spec says."""
    if denied.access == "connect":
        return (
            "network: true, or better its addresses, as `network: [HOST:PORT]`"
            if place == "*"
            else f"network: [{json.dumps(place)}]"
        )
    root, home = os.path.realpath(order.root), os.path.realpath(os.path.expanduser("~"))
    if (cache := find_cache(place)) is not None:
        return f"allow: {{write: [{_spell(_shorten(cache, root, home))}]}}"
    if not contains(root, place) or place == root:
        key, opened = ("write", _open_for(denied, place, root)) if denied.access == "write" else ("read", place)
        return f"allow: {{{key}: [{_spell(_shorten(opened, root, home))}]}}"
    below = os.path.relpath(place, root)
    pattern = f"{below}/**" if denied.is_folder else below
    access = ", access: write" if denied.access == "write" else ""
    return f"bindings: {{{_name(below, order)}: {{file: {_spell(pattern)}{access}}}}}"


def _open_for(denied: Denied, place: str, root: str) -> str:
    """The folder of a file: it is made there, or another is renamed over it.

    Not a home, or what holds the whole project, for one file.
    """
    folder = os.path.dirname(place)
    is_too_much = is_wide(folder) or folder.count("/") < _DEEP or contains(folder, root)
    return place if denied.is_folder or is_too_much else folder


def _shorten(path: str, root: str, home: str) -> str:
    if contains(root, path) and path != root:
        return os.path.relpath(path, root)
    return f"~{path[len(home) :]}" if home != "/" and path.startswith(f"{home}/") else path


def _spell(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _name(below: str, order: RunOrder) -> str:
    """A name for a binding that has none yet."""
    stem = re.sub(r"[^a-z0-9]+", "-", os.path.splitext(os.path.basename(below))[0].lower()).strip("-") or "file"
    stem = stem if stem[0].isalpha() else f"file-{stem}"
    names = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
    return next((name for name in names if name not in order.bindings), stem)
