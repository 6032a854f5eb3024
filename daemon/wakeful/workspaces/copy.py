"""Copies the files that a parent's bindings match into its fork's workspace, in their present state, committed or not.

Into a checkout only the differences are copied. Without a repository everything is copied. The size is checked first: a
copy that would be too large is refused, with its size. This module reads the parent's files and never writes there.
Every call is blocking.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator

from wakeful.core.looking.patterns import Excludes, Pattern, contains, parse_under
from wakeful.core.spec.bindings import FileBinding
from wakeful.core.spec.session import DEFAULT_EXCLUDES, SessionSpec
from wakeful.errors import CallerError
from wakeful.run_files.present_files import PathBlocked, look_at, open_folder, remove_file, write_link
from wakeful.run_files.replay_folder import make_folders
from wakeful.run_files.restore import is_same
from wakeful.system.openat2 import open_beneath
from wakeful.system.private_files import make_plain

MOST_FILES = 50_000
MOST_BYTES = 2 << 30
_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def copy_present(
    spec: SessionSpec,
    destination: str,
    unseen: str,
    named: Iterable[str] = (),
    hidden: Iterable[str] = (),
    is_given_up: Callable[[], bool] = lambda: False,
) -> None:
    """Copy the files of the spec's bindings below its root to `destination`.

    `unseen` is the state folder, which is skipped. `named` are more files by name. Raises CallerError if a file is in a
    place of `hidden`, or if the copy is given up.
    """
    make_plain(destination)
    wanted = dict.fromkeys(name for meant in _find_meant(spec) for name in _list(spec.root, meant, unseen))
    wanted |= dict.fromkeys(named)
    _refuse_hidden(spec, wanted, hidden)
    there = dict.fromkeys(name for meant in _find_meant(spec, destination) for name in _list(destination, meant, ""))
    changed = [name for name in wanted if not _is_same(spec.root, destination, name)]
    _refuse_too_much(spec, changed)
    for name in there:
        # The file is in the checked-out commit, but was removed since.
        if name not in wanted:
            remove_file(destination, name)
    for name in changed:
        if is_given_up():
            raise CallerError("the daemon stops")
        _copy(spec, destination, name)
    make_folders(spec, destination)


def _find_meant(spec: SessionSpec, root: str | None = None) -> Iterator[tuple[Pattern, Excludes]]:
    """Find the patterns inside root: those of bindings, and the program that the command names."""
    root = spec.root if root is None else root
    patterns: list[tuple[str, tuple[str, ...]]] = [
        (one.pattern, one.exclude) for one in spec.bindings if isinstance(one, FileBinding)
    ]
    if spec.program is not None:
        patterns.append((spec.program, ()))
    for text, exclude in patterns:
        relative = text.removeprefix(f"{spec.root.rstrip('/')}/")
        pattern = parse_under(relative, root)
        if contains(root, pattern.base):
            yield pattern, Excludes.build(root, DEFAULT_EXCLUDES, exclude)


def _list(root: str, meant: tuple[Pattern, Excludes], unseen: str) -> Iterator[str]:
    pattern, excludes = meant
    start, cut = len(pattern.base) + 1, len(root.rstrip("/")) + 1
    if os.path.isfile(pattern.base) or os.path.islink(pattern.base):
        if pattern.matches(pattern.base):
            yield pattern.base[cut:]
        return
    for folder, folders, names in os.walk(pattern.base):
        inside = [(name, os.path.join(folder, name)) for name in folders]
        links = [name for name, path in inside if os.path.islink(path)]
        folders[:] = sorted(
            name for name, path in inside
            if name not in links and path != unseen and pattern.enters(path) and not excludes.prunes(path, start)
        )  # fmt: skip
        for name in sorted((*names, *links)):
            path = os.path.join(folder, name)
            if pattern.matches(path) and excludes.covers(path, start) is None:
                yield path[cut:]


def _is_same(root: str, destination: str, name: str) -> bool:
    # Usually the destination is empty. Then a large file need not be read.
    if not os.path.lexists(os.path.join(destination, name)):
        return not os.path.lexists(os.path.join(root, name))
    try:
        return is_same(look_at(root, name), look_at(destination, name))
    except PathBlocked:
        return False


def _refuse_too_much(spec: SessionSpec, names: list[str]) -> None:
    size = sum(_measure(os.path.join(spec.root, name)) for name in names)
    if len(names) > MOST_FILES or size > MOST_BYTES:
        raise CallerError(
            f"the bindings of {spec.name} mean {len(names)} files with {size} bytes that would have to be copied, "
            f"more than {MOST_FILES} files or {MOST_BYTES} bytes; commit what is large, or give it narrower bindings"
        )


def _measure(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        # The file was removed after it was listed. `_copy` finds that as well.
        return 0


def _refuse_hidden(spec: SessionSpec, names: Iterable[str], hidden: Iterable[str]) -> None:
    places = [os.path.realpath(place) for place in hidden]
    folders = {os.path.dirname(name): name for name in names} if places else {}
    for folder, name in folders.items():
        real = os.path.realpath(os.path.join(spec.root, folder))
        if any(contains(place, real) for place in places):
            raise CallerError(
                f"{os.path.join(spec.root, name)} belongs to the daemon, which gives a run only the secrets that its "
                "spec lists; list those that the run needs under secrets"
            )


def _copy(spec: SessionSpec, destination: str, name: str) -> None:
    try:
        with open_folder(spec.root, name) as (folder, last):
            mode = os.stat(last, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISREG(mode):
                _copy_content(os.open(last, _READ_FLAGS | os.O_NOFOLLOW, dir_fd=folder), destination, name)
                return
            words = os.readlink(last, dir_fd=folder) if stat.S_ISLNK(mode) else None
    except FileNotFoundError:
        return
    if words is not None and _leads_inside(spec.root, name, words):
        write_link(destination, name, words)
    elif words is not None:
        # A link that leads outside becomes a copy of the file it led to, so that nothing is written through the link.
        _copy_led_to(spec, destination, name)


def _copy_led_to(spec: SessionSpec, destination: str, name: str) -> None:
    """Copy the file behind a link, only if the session may read it.

    A run may leave a link to a file that it cannot read, and the daemon is not confined.
    """
    target = os.path.realpath(os.path.join(spec.root, name))
    allow = spec.confinement
    named = ("/",) if not allow.is_enforced else (*allow.allow_read, *allow.allow_write)
    reached = (os.path.realpath(os.path.join(spec.root, one)) for one in named)
    place = next((one for one in reached if contains(one, target)), None)
    if place is None or not os.path.isfile(target):
        return
    # The kernel checks that the file is beneath the folder, even if a name above was changed meanwhile. `allow` may
    # name a file itself.
    folder = place if target != place else os.path.dirname(place)
    _copy_content(open_beneath(folder, os.path.relpath(target, folder), _READ_FLAGS | os.O_NOFOLLOW), destination, name)


def _leads_inside(root: str, name: str, words: str) -> bool:
    target = os.path.normpath(os.path.join(root, os.path.dirname(name), words))
    return not words.startswith("/") and contains(root, target)


def _copy_content(descriptor: int, destination: str, name: str) -> None:
    with os.fdopen(descriptor, "rb") as content, open_folder(destination, name, is_made=True) as (folder, last):
        try:
            os.unlink(last, dir_fd=folder)
        except FileNotFoundError:
            pass
        with os.fdopen(os.open(last, _NEW_FLAGS, 0o600, dir_fd=folder), "wb") as copy:
            shutil.copyfileobj(content, copy, 1 << 20)
            copy.flush()
            found = os.fstat(descriptor)
            os.fchmod(copy.fileno(), found.st_mode & 0o777)
            # Programs that compare times (make) find the same times as in the parent.
            os.utime(copy.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
