"""Makes a copy of a session's root that contains only the files that a recorded run found. `replay` runs in it.

These files come from blobs, so the copy shows the project as it was then. Files that are not available are listed with
the reason, for the first lines of the report. Only the scratch folder and the programs of another command are copied as
they are today. Every call blocks, and is made in a thread.
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

# The largest scratch folder that is copied for a replay. Some sessions fill theirs without end.
LARGEST_SCRATCH_BYTES = 256 << 20


class Missing(Struct, frozen=True):
    """An input that the recorded run had and the replay does not have."""

    what: str
    reason: str


def refuse_outside(spec: SessionSpec) -> None:
    """Raise CallerError if an output lies outside of root, because the replay would overwrite the real file."""
    lead = f"{spec.root.rstrip('/')}/"
    for binding in spec.files:
        base = parse_under(binding.pattern, spec.root).base
        if binding.access != "read" and not f"{base}/".startswith(lead):
            raise CallerError(
                f"{spec.name} writes {binding.pattern}, which is outside of its root: "
                "a replay would overwrite the present files"
            )


def write_recorded_files(
    blobs: Blobs, files: RunFiles, spec: SessionSpec, versions: dict[str, str], copy: str
) -> list[Missing]:
    """Write the files that the run found into `copy`, an empty folder. Returns the inputs that are not available."""
    missing = [_miss_commits(binding) for binding in spec.bindings if isinstance(binding, CommitsBinding)]
    for one in files.bindings:
        binding = spec.binding(one.name)
        identity = "program" if binding is None else binding.identity
        if one.before is None:
            missing.append(Missing(one.name, "was not read at the start of the run"))
            continue
        # A look without a version was taken by an earlier release, right before the start.
        if one.before.version not in (None, versions.get(identity, one.before.version)):
            missing.append(Missing(one.name, "changed between the wake and the start of the run"))
        missing += [lack for entry in read_entries(blobs, one.before) if (lack := _put(blobs, copy, entry)) is not None]
    make_folders(spec, copy)
    return missing


def _miss_commits(binding: CommitsBinding) -> Missing:
    return Missing(binding.name, "commits are not kept, they are in their repository")


def _put(blobs: Blobs, copy: str, entry: Entry) -> Missing | None:
    if entry.name.startswith("/"):
        return Missing(entry.path, "is outside of root; the run reads the present content")
    address = address_of(bytes.fromhex(entry.digest)) if entry.digest else None
    try:
        if address is not None and blobs.is_kept(address):
            # Write the file that the link led to, because the link may lead to another file now.
            write_file(copy, entry.name, blobs.get(address), entry.mode & 0o777, is_flushed=False)
            return None
        if entry.kind == "l" and entry.not_kept is None and entry.link is not None and not entry.digest:
            write_link(copy, entry.name, entry.link)
            return None
    except (OSError, PathBlocked, WakefulError) as problem:
        return Missing(entry.path, str(problem))
    return Missing(entry.path, f"not kept: {entry.not_kept or GONE}")


def make_folders(spec: SessionSpec, copy: str) -> None:
    """Make the folders of outputs and the working folder in the copy, if they exist in root today.

    The record of a run has no folders.
    """
    wanted = [
        parse_under(binding.pattern, spec.root).literal_prefix for binding in spec.files if binding.access != "read"
    ]
    wanted.append(os.path.join(spec.root, (spec.run.cwd or "") if spec.run is not None else ""))
    for folder in wanted:
        inside = os.path.relpath(folder, spec.root)
        if not inside.startswith("..") and os.path.isdir(folder):
            make_plain(os.path.join(copy, inside))


def copy_scratch(scratch: str, copy: str) -> Missing | None:
    """Copy the session's scratch folder as it is today, because its contents at that time are not recorded."""
    if not os.path.isdir(scratch):
        return None
    total = sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(scratch) for name in names)
    if total > LARGEST_SCRATCH_BYTES:
        return Missing("scratch folder", f"has {total} bytes, more than the {LARGEST_SCRATCH_BYTES} that are copied")
    shutil.copytree(scratch, copy, symlinks=True, dirs_exist_ok=True)
    return None


def make_path_replacer(root: str, copy: str) -> Callable[[str], str]:
    """Return a function that replaces every mention of root in a text by the path of the copy."""
    mention = re.compile(re.escape(root.rstrip("/")) + r"(?![^/\s'\":;,)])")
    return lambda text: mention.sub(lambda _: copy, text)


def redirect(spec: SessionSpec, copy: str, command: tuple[str, ...] | None) -> SessionSpec:
    """Return the spec for the copy. Every mention of root in command, script, prompt, check and environment is
    replaced by the path of the copy."""
    run = spec.run
    if run is None:
        raise CallerError(f"{spec.name} had nothing to run")
    lead = make_path_replacer(spec.root, copy)
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


def copy_programs(spec: SessionSpec, command: Iterable[str], copy: str) -> list[str]:
    """Copy the present files of root that another command names, except bound files. Returns their names.

    So a changed program is tried on the recorded data, and not on today's.
    """
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
            raise CallerError(f"{name}: {problem}; use the real path of the program") from problem
        brought.append(name)
    return brought
