"""The contents of a workspace, path by path: at its start, stored as the base of the merge, and at each comparison.

A base is a record of files like a run's (run_files/file_record.py). It stores the contents of files that the fork may
write, and only the digests of all other files, so that a change is noticed. Every call is blocking.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from wakeful.core.looking.patterns import Excludes, parse_under
from wakeful.core.spec.session import DEFAULT_EXCLUDES, SessionSpec
from wakeful.errors import CallerError
from wakeful.run_files.file_record import BindingFiles, Entry, Found, RunFiles, read_record
from wakeful.run_files.present_files import PathBlocked, look_at, read_content
from wakeful.system.blobs import Blobs, SecretContent
from wakeful.workspaces.moved_spec import is_written

# The most files of a workspace, enough for a monorepo's checkout. Comparing more would take minutes.
MOST_FILES = 200_000
# The largest file whose content is stored, because it is held in memory meanwhile.
LARGEST_KEPT_BYTES = 64 << 20
NOT_WRITTEN = "no write binding matches it"
TOO_LARGE = "too large"
SECRET = "holds a secret"

Meant = Callable[[str], bool]


def find_meant(spec: SessionSpec, root: str) -> Meant:
    """Return a function that tests whether a write binding of this spec matches a name below `root`."""
    bindings = [binding for binding in spec.files if is_written(binding)]
    meant = [
        (parse_under(binding.pattern, root), Excludes.build(root, DEFAULT_EXCLUDES, binding.exclude))
        for binding in bindings
    ]

    def is_meant(name: str) -> bool:
        path = f"{root.rstrip('/')}/{name}"
        return any(
            pattern.matches(path) and excludes.covers(path, len(pattern.base) + 1) is None
            for pattern, excludes in meant
        )

    return is_meant


def scan(root: str, is_meant: Meant) -> dict[str, Entry]:
    """List every file and link below root by its name.

    Files that are excluded by default are left out, unless a binding matches them.
    """
    found: dict[str, Entry] = {}
    for name in _list(root, is_meant):
        if len(found) >= MOST_FILES:
            raise CallerError(
                f"{root} has more than {MOST_FILES} files, too many to be compared; give the session a smaller root"
            )
        try:
            entry = look_at(root, name)
        except PathBlocked:
            # A folder became a link meanwhile.
            continue
        if entry is not None:
            found[name] = write_name(entry, name)
    return found


def _list(root: str, is_meant: Meant) -> Iterator[str]:
    excludes = Excludes.build(root, DEFAULT_EXCLUDES)
    start = len(root.rstrip("/")) + 1
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = sorted(
            name for name in folders if name not in links and not excludes.prunes(os.path.join(folder, name), start)
        )
        for name in sorted((*names, *links)):
            path = os.path.join(folder, name)
            if excludes.covers(path, start) is None or is_meant(path[start:]):
                yield path[start:]


def write_name(entry: Entry, name: str) -> Entry:
    """Convert an entry for a record: its path becomes text, and `raw` has the bytes if they are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return replace(entry, path=os.fsencode(name).decode("utf-8", "backslashreplace"), raw=os.fsencode(name).hex())
    return replace(entry, path=name)


def keep_base(blobs: Blobs, root: str, is_meant: Meant) -> str:
    """Store the present contents below root. Returns the address of the list."""
    entries = scan(root, is_meant)
    kept = {
        name: _keep_or_say_why(blobs, root, name, entry) if is_meant(name) else entry for name, entry in entries.items()
    }
    return write_base(blobs.add, root, kept, is_meant)


def _keep_or_say_why(blobs: Blobs, root: str, name: str, entry: Entry) -> Entry:
    try:
        return keep_entry(blobs.add, root, name, entry)
    except SecretContent:
        return replace(entry, not_kept=SECRET)


def keep_entry(keep: Callable[[bytes], str], root: str, name: str, entry: Entry) -> Entry:
    """Store the content of this entry. If it cannot be stored, the returned entry has the reason."""
    if entry.kind not in ("f", "x"):
        return entry
    if entry.size > LARGEST_KEPT_BYTES:
        return replace(entry, not_kept=TOO_LARGE)
    content = read_content(root, name)
    if not keep(content).endswith(entry.digest):
        raise CallerError(f"{root}/{entry.path} changed while it was read; ask again when nobody writes there")
    return entry


def write_base(keep: Callable[[bytes], str], root: str, entries: dict[str, Entry], is_meant: Meant) -> str:
    ordered = [entries[name] for name in sorted(entries)]
    written = tuple(entry for entry in ordered if is_meant(entry.name))
    others = tuple(replace(entry, not_kept=NOT_WRITTEN) for entry in ordered if not is_meant(entry.name))
    bindings = (
        BindingFiles(name="written", access="write", before=Found(entries=written)),
        BindingFiles(name="others", access="read", before=Found(entries=others)),
    )
    return keep(msgspec.json.encode(RunFiles(run_id="workspace", root=root, bindings=bindings)))


def read_base(blobs: Blobs, address: str) -> dict[str, Entry]:
    found = [one.before for one in read_record(blobs, address).bindings if one.before is not None]
    return {entry.name: entry for one in found for entry in one.entries}
