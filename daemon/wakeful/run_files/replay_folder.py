"""A copy of a session's root with nothing in it but what a recorded run found there: where `replay` runs.

The copy is made from blobs alone, so it is yesterday's project, however the real one looks today. Files that could not
be put there are listed with the reason, for the report's first lines. Every call blocks: off the loop, in a thread.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wakeful.core.looking.patterns import parse_under
from wakeful.core.spec.bindings import CommitsBinding
from wakeful.core.spec.session import CommandRun, PromptRun, RunSpec, ScriptRun, SessionSpec
from wakeful.errors import CallerError, WakefulError
from wakeful.run_files.file_record import GONE, Entry, RunFiles
from wakeful.run_files.path_lists import read_entries
from wakeful.run_files.present_files import PathBlocked, read_content, write_file, write_link
from wakeful.system.blobs import Blobs, address_of
from wakeful.system.private_files import make_plain

# A scratch folder that a session fills without end is not copied for a replay.
LARGEST_SCRATCH_BYTES = 256 << 20


class Missing(Struct, frozen=True):
    """Something the recorded run found and a replay does not."""

    what: str
    reason: str


def refuse_outside(spec: SessionSpec) -> None:
    """A replay must not touch what is real: no output may lie where the copy does not reach."""
    lead = f"{spec.root.rstrip('/')}/"
    for binding in spec.files:
        base = parse_under(binding.pattern, spec.root).base
        if binding.access != "read" and not f"{base}/".startswith(lead):
            raise CallerError(
                f"{spec.name} writes {binding.pattern}, which lies outside of its root: "
                "a replay would overwrite what is there now"
            )


def lay_out(blobs: Blobs, files: RunFiles, spec: SessionSpec, versions: dict[str, str], copy: str) -> list[Missing]:
    """Put what the run found into `copy`, an empty folder; what cannot be had is returned."""
    missing = [_miss_commits(binding) for binding in spec.bindings if isinstance(binding, CommitsBinding)]
    for one in files.bindings:
        binding = spec.binding(one.name)
        identity = "program" if binding is None else binding.identity
        if one.before is None:
            missing.append(Missing(one.name, "was not looked at"))
            continue
        # A look without a version was taken by an earlier release, right before the start.
        if one.before.version not in (None, versions.get(identity, one.before.version)):
            missing.append(Missing(one.name, "moved on between the wake and the start of the run"))
        missing += [lack for entry in read_entries(blobs, one.before) if (lack := _put(blobs, copy, entry)) is not None]
    make_folders(spec, copy)
    return missing


def _miss_commits(binding: CommitsBinding) -> Missing:
    return Missing(binding.name, "commits are in their repository, not among what is kept")


def _put(blobs: Blobs, copy: str, entry: Entry) -> Missing | None:
    if entry.name.startswith("/"):
        return Missing(entry.path, "lies outside of root; the run reads what is there now")
    address = address_of(bytes.fromhex(entry.digest)) if entry.digest else None
    try:
        if address is not None and blobs.is_kept(address):
            # A link becomes the file it led to: where it leads now is another matter.
            write_file(copy, entry.name, blobs.get(address), entry.mode & 0o777, is_flushed=False)
            return None
        if entry.kind == "l" and entry.not_kept is None and entry.link is not None and not entry.digest:
            write_link(copy, entry.name, entry.link)
            return None
    except (OSError, PathBlocked, WakefulError) as problem:
        return Missing(entry.path, str(problem))
    return Missing(entry.path, f"not kept: {entry.not_kept or GONE}")


def make_folders(spec: SessionSpec, copy: str) -> None:
    """Folders are not recorded: those that outputs go to, and that commands begin in,
    are there if they are there today."""
    wanted = [
        parse_under(binding.pattern, spec.root).literal_prefix for binding in spec.files if binding.access != "read"
    ]
    wanted.append(os.path.join(spec.root, (spec.run.cwd or "") if spec.run is not None else ""))
    for folder in wanted:
        inside = os.path.relpath(folder, spec.root)
        if not inside.startswith("..") and os.path.isdir(folder):
            make_plain(os.path.join(copy, inside))


def copy_scratch(scratch: str, copy: str) -> Missing | None:
    """The session's scratch folder as it is today: what it held then is not recorded."""
    if not os.path.isdir(scratch):
        return None
    total = sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(scratch) for name in names)
    if total > LARGEST_SCRATCH_BYTES:
        return Missing("scratch folder", f"has {total} bytes, more than is copied")
    shutil.copytree(scratch, copy, symlinks=True, dirs_exist_ok=True)
    return None


def lead_from(root: str, copy: str) -> Callable[[str], str]:
    """Turns every mention of root in a text into one of the copy."""
    mention = re.compile(re.escape(root.rstrip("/")) + r"(?![^/\s'\":;,)])")
    return lambda text: mention.sub(lambda _: copy, text)


def redirect(spec: SessionSpec, copy: str, command: tuple[str, ...] | None) -> SessionSpec:
    """The same spec in the copy: every mention of root in command, script, prompt,
    check and environment leads there."""
    run = spec.run
    if run is None:
        raise CallerError(f"{spec.name} had nothing to run")
    lead = lead_from(spec.root, copy)
    moved: dict[str, Any] = {"env": {name: lead(value) for name, value in run.env.items()}}
    moved["check"] = None if run.check is None else tuple(lead(word) for word in run.check)
    match run:
        case _ if command is not None:
            shared = {field: getattr(run, field) for field in RunSpec.__struct_fields__} | moved
            run = CommandRun(argv=tuple(lead(word) for word in command), **shared)
        case CommandRun(argv=argv):
            run = replace(run, argv=tuple(lead(word) for word in argv), **moved)
        case ScriptRun(text=text):
            run = replace(run, text=lead(text), **moved)
        case PromptRun(prompt=prompt):
            run = replace(run, prompt=lead(prompt), **moved)
    return replace(spec, root=copy, run=run)


def bring_programs(spec: SessionSpec, command: Iterable[str], copy: str) -> list[str]:
    """Files of today's root that another command names: a changed program is to be tried on what was recorded,
    not on today's data."""
    data = [parse_under(binding.pattern, spec.root) for binding in spec.files]
    lead, cwd = f"{spec.root.rstrip('/')}/", (spec.run.cwd or "") if spec.run is not None else ""
    brought = []
    for word in command:
        path = os.path.normpath(os.path.join(spec.root, cwd, word))
        if not path.startswith(lead) or not os.path.isfile(path) or any(pattern.matches(path) for pattern in data):
            continue
        name = path.removeprefix(lead)
        try:
            write_file(copy, name, read_content(spec.root, name), os.stat(path).st_mode & 0o777, is_flushed=False)
        except PathBlocked as problem:
            raise CallerError(f"{name}: {problem}; name the program by its own path") from problem
        brought.append(name)
    return brought
