"""Finds, from the error messages of a denied program, the line of a spec that would allow the access.

`find_complaints` parses messages and finds the path or address in them; it is pure. `find_hint` compares the findings
with the run's reach, at the run's end, in a thread. A program chooses every word that it prints, so the messages decide
nothing: they only lead to a line that a person reads. There is a test for each program in
tests/runners/test_denial_messages.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.looking.granted_places import find_cache
from wakeful.core.looking.patterns import contains
from wakeful.core.record.observations import Denied, Traced
from wakeful.runners.contract import RunOrder
from wakeful.runners.isolation.reach import is_wide
from wakeful.runners.isolation.reach_check import BY_SYSTEM, NETWORK, Judge, JudgedRun
from wakeful.runners.isolation.strace import Access, Asked
from wakeful.runners.isolation.system_places import is_of_system

# Messages for EACCES, EPERM and EROFS: those of the C library, and those of runtimes with their own texts.
_DENIED = re.compile(
    r"permission denied|operation not permitted|read-only file system|\bE(?:ACCES|PERM|ROFS)\b|AccessDenied"
    r"|readonly database|unable to open database"
    r"|(?:is )?not (?:owned or is not )?writable",
    re.IGNORECASE,
)
# Messages for a missing file. In a private view, a path that the run may not touch does not exist.
_ABSENT = re.compile(
    r"no such file or directory|\bENOENT\b|NoSuchFile|FileNotFound|cannot find module|not found", re.IGNORECASE
)
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"|‘([^’]+)’|`([^`']+)['`]")
# `cat: X: Permission denied`, `open X: permission denied` (Go), `X (Permission denied)` (Java).
_BEFORE = re.compile(r"(?:^|[\s:=])((?:\\ |[^\s:'\"‘’`()])+)(?: \(|: ?(?:cannot open: )?)$", re.IGNORECASE)
# `AccessDeniedException: X` (Java), `Permission denied @ rb_sysopen - X` (Ruby).
_AFTER = re.compile(r"^\w*: ([^\s:'\"]+)")
_AFTER_SIGN = re.compile(r"^ @ \w+ - (\S+)")
# Text in quotes or before a colon that is not a path: Java's thread, Ruby's method, Rust's chain of causes, and the
# apostrophe of "can't".
_UNMEANT = re.compile(
    r"in thread \"[^\"]*\"|in [`'][^']*': |^\s*caused by: |\b(?:can|could|don|would)n?'t (?=open|read|write|create"
    r"|find|load|access)",
    re.IGNORECASE,
)
# Rust names the path in one line and the reason in another.
_FAILED = re.compile(r"failed to (?:open|create|read|write|remove|rename|lock|copy)\b", re.IGNORECASE)
# Python's multiprocessing puts its locks in /dev/shm, and its error does not name the path.
_LOCK = re.compile(r"_multiprocessing\.SemLock|sem_open")
_LOCKS = "/dev/shm/lock"
_WRITING = re.compile(
    r"creat|writ|mkdir|make directory|remov|unlink|delet|renam|mov|touch|sav|readonly|read-only|trunc|temporary file",
    re.IGNORECASE,
)
_ERRNO = re.compile(r"E[A-Z]{3,}")
_TEMPORARY = re.compile(r"temporary file|tempfile", re.IGNORECASE)
_DATABASE = re.compile(r"readonly database|unable to open database", re.IGNORECASE)
_DATABASE_NAME = re.compile(r"[^\s'\"=:,;()]+\.(?:db3?|sqlite[23]?|duckdb)\b")

# Messages about a host name that was not found: git, cargo and curl; wget; node; Java; Go; Python's urllib3.
_NAMES = re.compile(
    r"(?:could not resolve host(?:name)?:? |unable to resolve host address [‘'\"]|getaddrinfo E\w+ "
    r"|UnknownHostException: |\blookup |Failed to resolve ['\"]|name or service not known: )"
    r"([A-Za-z0-9](?:[\w-]*\.)*[\w-]+)",
    re.IGNORECASE,
)
_UNNAMED = re.compile(
    r"temporary failure in name resolution|name or service not known|nodename nor servname|network is unreachable"
    r"|EAI_AGAIN|could not create socket: permission denied"
    r"|SocketException: (?:permission denied|operation not permitted)|BindException: permission denied"
    r"|IO::Socket::\w+: (?:connect: )?permission denied"
    r"|failed to establish a new connection|socket: (?:permission denied|operation not permitted)"
    r"|socket\.py\", line \d+, in (?:__init__|create_connection)",
    re.IGNORECASE,
)
# Messages with a host and a port: curl and ssh; node; Go; psql; mysql; Redis; Ruby; Python's urllib3.
_ADDRESSES = tuple(
    re.compile(text, re.IGNORECASE)
    for text in (
        r"connect to (?:host )?\[?([\w.:-]+?)\]? port (\d+)",
        r"connect E(?:ACCES|PERM) ([\w.:]+):(\d+)",
        r"dial tcp \[?([\w.:-]+?)\]?:(\d+): ",
        r"connection to server at \"([^\"]+)\"(?: \([^)]*\))?, port (\d+) failed",
        r"can't connect to (?:mysql|mariadb|local) server on '([\w.-]+):(\d+)'",
        r"could not connect to redis at ([\w.-]+):(\d+)",
        r"failed to open tcp connection to ([\w.-]+):(\d+)",
        r"connectionpool\(host='([\w.-]+)', port=(\d+)\)",
    )
)
_URL = re.compile(
    r"\b(https?|ssh|git|ftp|wss?|postgres(?:ql)?|redis"
    r"|mysql)://(?:[^@/\s'\"]+@)?([A-Za-z0-9](?:[\w-]*\.)*[\w-]+)(?::(\d+))?"
)
_GIT_OVER_SSH = re.compile(r"\b[\w-]+@([\w.-]+):")
_PORTS = {
    "http": 80,
    "https": 443,
    "ssh": 22,
    "git": 9418,
    "ftp": 21,
    "ws": 80,
    "wss": 443,
    "postgres": 5432,
    "postgresql": 5432,
    "redis": 6379,
    "mysql": 3306,
}
_UNIX = re.compile(
    r"dial unix (/[^\s:]+)|unix:(?://)?(/[^\s:'\"]+)|connect to local \w+ server through socket '(/[^']+)'",
    re.IGNORECASE,
)
# The last lines of an output that are read, the longest line (in characters), and the most complaints taken.
_MOST_LINES = 2000
_LONGEST_LINE = 2000
_MOST_FOUND = 50


class Complaint(Struct, frozen=True, kw_only=True):
    """A path or an address that a program reports as denied.

    - `access`: None if the message does not say whether the program read or wrote.
    - `what`: the path or address as printed. Empty stands for the network as a whole.
    - `is_absent`: reported as not found, not as denied.
    - `is_temporary`: a temporary file, whose name is of no use in a spec.
    - `is_word`: a plain word, which counts as a path only if that path exists.
    """

    access: Access | None
    what: str = ""
    is_absent: bool = False
    is_temporary: bool = False
    is_word: bool = False


def speaks_of_denial(text: str) -> bool:
    return _DENIED.search(text) is not None


def find_complaints(text: str, command: str = "") -> list[Complaint]:
    """List the complaints in a program's output, each once, in the order in which they were printed.

    `command` is the command that was run. It may name an address or a database that the message leaves out.
    """
    found: dict[Complaint, None] = {}
    for line in text.splitlines()[-_MOST_LINES:]:
        if len(found) >= _MOST_FOUND:
            break
        if len(line) <= _LONGEST_LINE:
            found |= dict.fromkeys(_read_line(_UNMEANT.sub("", line), text, command))
    if any(one.access == "connect" and one.what for one in found):
        # If addresses are known, the complaint about the network as a whole adds nothing.
        found.pop(Complaint(access="connect"), None)
    elif Complaint(access="connect") in found and (addresses := _list_addresses(command)):
        found.pop(Complaint(access="connect"))
        found |= {Complaint(access="connect", what=address, is_absent=True): None for address in addresses}
    return list(found)


def _read_line(line: str, text: str, command: str) -> Iterator[Complaint]:
    addresses = list(_read_addresses(line, text, command))
    yield from addresses
    if _LOCK.search(line) is not None and speaks_of_denial(text):
        yield Complaint(access="write", what=_LOCKS)
    if (socket := _UNIX.search(line)) is not None and (_DENIED.search(line) or _ABSENT.search(line)):
        yield Complaint(
            access="write", what=next(filter(None, socket.groups())), is_absent=_DENIED.search(line) is None
        )
    elif not addresses:
        yield from _read_paths(line, command, is_denied=speaks_of_denial(text))


def _read_addresses(line: str, text: str, command: str) -> Iterator[Complaint]:
    for pattern in _ADDRESSES:
        for found in pattern.finditer(line):
            yield Complaint(access="connect", what=_join(found[1], int(found[2])))
    for found in _NAMES.finditer(line):
        port = 22 if line.startswith("ssh:") else _find_port(found[1], f"{text}\n{command}")
        yield Complaint(access="connect", what=_join(found[1], port), is_absent=True)
    if _UNNAMED.search(line) is not None and _NAMES.search(line) is None:
        yield Complaint(access="connect")


def _find_port(host: str, text: str) -> int:
    return next(
        (int(found[3]) if found[3] else _PORTS[found[1]] for found in _URL.finditer(text) if found[2] == host),
        _PORTS["https"],
    )


def _list_addresses(command: str) -> list[str]:
    named = [_join(found[2], int(found[3]) if found[3] else _PORTS[found[1]]) for found in _URL.finditer(command)]
    return list(dict.fromkeys(named + [_join(found[1], 22) for found in _GIT_OVER_SSH.finditer(command)]))


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _read_paths(line: str, command: str, *, is_denied: bool) -> Iterator[Complaint]:
    denied = _DENIED.search(line)
    phrase = denied or _FAILED.search(line) or _ABSENT.search(line)
    if phrase is None or (phrase.re is _FAILED and not is_denied):
        return
    before, after = line[: phrase.start()], line[phrase.end() :]
    access: Access | None = "write" if _WRITING.search(line) is not None else None
    quoted = (next(filter(None, groups)) for groups in _QUOTED.findall(line))
    named, is_quoted = [name for name in quoted if _DENIED.search(name) is None], True
    if _DATABASE.search(line) is not None:
        # A program can read a database only if it can write a journal next to it.
        access, named = "write", named or _DATABASE_NAME.findall(command)
    elif not named:
        near, is_quoted = _AFTER_SIGN.search(after) or _BEFORE.search(before) or _AFTER.search(after), False
        named = [near[1]] if near is not None else []
    is_temporary = _TEMPORARY.search(before) is not None
    for name in named:
        is_word = not is_quoted and access is None and "/" not in name and "." not in name
        # In `me@host: Permission denied (publickey)` and in `code: 'EACCES'` there is no file name.
        if ("@" not in name or "/" in name) and _ERRNO.fullmatch(name) is None:
            yield Complaint(
                access=access, what=name, is_absent=phrase.re is _ABSENT, is_temporary=is_temporary, is_word=is_word
            )


# The most denials that a hint names. The others are only counted.
_TOLD = 3
# Text that needs no quotes in YAML.
_PLAIN = re.compile(r"[A-Za-z_./~][A-Za-z0-9_./~+-]*")
# The least depth of a folder that is opened for one of its files: /home/me and /var are too high.
_DEEP = 3
_DONE = {"read": "reading", "write": "writing", "run": "running", "connect": "connecting to"}
_TEMPORARY_WORDS = "it is a temporary file: declare the file that it replaces as an output"


def find_hint(order: RunOrder, standards: JudgedRun | None, cwd: str, text: str) -> str:
    """Return a hint for a run that failed after printing `text`. Blocking.

    `standards` is None if the run's reach is no longer known.
    """
    denied = (
        list(_judge_all(standards, find_complaints(text, tell_command(order)), cwd)) if standards is not None else []
    )
    trace = f"`wakeful trace {shlex.quote(order.name)}`"
    if denied:
        rest = f"; and {len(denied) - _TOLD} more: {trace} lists all" if len(denied) > _TOLD else ""
        # A link may lead to a name that is not UTF-8.
        return os.fsencode("; ".join(_say(one, order) for one in denied[:_TOLD]) + rest).decode(
            errors="backslashreplace"
        )
    if speaks_of_denial(text):
        return f"it may have been denied something undeclared: {trace} finds out what, and prints what to declare"
    return f"isolation is on ({order.confinement.level}): {trace} shows whether it was denied anything"


def name_addresses(trace: Traced, text: str, command: str) -> Traced:
    """Replace "the network" in a trace by the addresses that the program's messages name.

    Without a network the kernel already refuses the socket, so the trace has no address.
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


def _judge_all(standards: JudgedRun, complaints: Iterable[Complaint], cwd: str) -> Iterator[Denied]:
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
        # The text is not a path, or the path is relative to another folder.
        if complaint.is_absent or complaint.is_word or not os.path.isdir(os.path.dirname(path)):
            return None
        return _find_first(judge, ("write",), path, complaint)
    # If the message names neither reading nor writing, writing is not suggested for the system's own files.
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
        return Denied(access="write", what=denied.what, words=_TEMPORARY_WORDS)
    return denied or (found[0] if found and os.path.lexists(path) else None)


def _say(denied: Denied, order: RunOrder) -> str:
    what = f"it was denied {_DONE[denied.access]} {denied.what}"
    if denied.words is not None or denied.place is None:
        return f"{what} ({denied.words})" if denied.words is not None else what
    return f"{what}; to allow it: {_spell_line(denied, denied.place, order)}"


def _spell_line(denied: Denied, place: str, order: RunOrder) -> str:
    """Write the line of YAML that would allow the access if it were added to the spec."""
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
    """Return the place to open for a denied write: the file's folder, so that the file can be made or replaced.

    If the folder is too wide for one file (a home, the folder around the project), the file itself is returned.
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
    """Make a name for a new binding, from the file's name."""
    stem = re.sub(r"[^a-z0-9]+", "-", os.path.splitext(os.path.basename(below))[0].lower()).strip("-") or "file"
    stem = stem if stem[0].isalpha() else f"file-{stem}"
    names = (stem, *(f"{stem}-{number}" for number in range(2, 1000)))
    return next((name for name in names if name not in order.bindings), stem)
