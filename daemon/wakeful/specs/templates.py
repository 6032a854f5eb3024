"""Templates: one spec for every file that matches a glob (`ticket@.yaml` with `for_each: tickets/*.md`).

Called by `folder_reading`, which reads the template's text and caches the reading of each file. This module fills the
placeholders in braces, walks the glob, and names the sessions. A file's name is untrusted data. It is put only into
parsed values, never into YAML or a script, and in a path pattern it matches only itself.
"""

from __future__ import annotations

import errno
import os
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from wakeful.core.looking.patterns import Excludes, Pattern
from wakeful.core.spec.session import DEFAULT_EXCLUDES, TEMPLATE_MARK
from wakeful.specs.command_words import find_code, takes_code
from wakeful.specs.model_errors import Finding
from wakeful.specs.problem import show_name
from wakeful.specs.value_parsers import find_name_problem
from wakeful.specs.yaml_text import Path, Value, shorten
from wakeful.text.display import count

FOR_EACH = "for_each"
PLACEHOLDERS = ("path", "stem")
# The most sessions of a template. A glob with more matches is a mistake (`**` in a home folder), and would slow every
# reading.
MOST_SESSIONS = 10_000
MOST_FOLDERS = 10_000
# The most files for which it is reported why they cannot be sessions. Further files are only counted.
MOST_REPORTED = 20

_BRACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
# Characters that must not be in a line, a log or a spec. Bytes that are not UTF-8 arrive as lone surrogates.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NOT_IN_NAMES = re.compile(r"[^\w.@-]+")
_WILDCARDS = re.compile(r"[*?\[]")
_RIGHTS = ("secrets", "network", "fetch", "people", "tools", "isolation")
_ADVICE = 'pass it by a variable, env: {FILE: "{path}"}, and use that there'
# Keys in which braces are not replaced, because their text is executed or given to a model.
_UNFILLED: tuple[Path, ...] = (("run", "script"), ("run", "prompt"))


class Template(Struct, frozen=True, kw_only=True):
    """The content of a template's file. `value` has its keys without for_each; `place` is the position of for_each."""

    pattern: str
    root: str
    value: dict[str, Any]
    place: tuple[int, int]


class Match(Struct, frozen=True):
    """One match of a glob: the values of `{path}` and `{stem}`, and the session's name."""

    path: str
    stem: str
    name: str


class Glob(Struct, frozen=True, kw_only=True):
    """The result of a template's glob: the files it found and the folders it listed.

    For a missing folder, `folders` has the nearest existing folder above it.
    """

    pattern: Pattern
    files: frozenset[str] = frozenset()
    folders: tuple[str, ...] = ()
    # Why the walk was not finished. The earlier result is kept then.
    problem: str | None = None

    def is_news(self, folder: str, name: str) -> bool:
        """Did this name appear or disappear since? A change inside a file does not matter here."""
        path = f"{folder.rstrip('/')}/{name}"
        if self.pattern.matches(path) and os.path.isfile(path) != (path in self.files):
            return True
        return self.pattern.enters(path) and os.path.isdir(path) != (path in self.folders)


# -- words in braces ------------------------------------------------------------------------------


def find_brace_problems(value: dict[str, Any]) -> list[Finding]:
    """Find unknown placeholders, and placeholders where a file's name is not allowed."""
    findings: list[Finding] = []
    for path, text in _walk_texts(value, ()):
        if path in (*_UNFILLED, ("root",)):
            findings += _refuse_here(path, text)
            continue
        for found in _BRACE.finditer(text):
            if problem := _judge_brace(found):
                findings.append((path, False, problem))
                break
    return findings + _refuse_code(value) + _refuse_variables(value) + _refuse_rights(value)


def has_placeholder(text: object) -> bool:
    return isinstance(text, str) and any(found[1] in PLACEHOLDERS for found in _BRACE.finditer(text))


def _walk_texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk_texts(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk_texts(inner, (*path, index))


def _judge_brace(found: re.Match[str]) -> str | None:
    if found[0] in ("{{", "}}") or found[1] in PLACEHOLDERS:
        return None
    if found[1] is None:
        return f"a single {found[0]} means nothing in a template; write {found[0] * 2} for the character itself"
    shown = shorten(found[0])
    return f"{shown} is not known; a template has {{path}} and {{stem}}, and {{{{ stands for a brace itself"


def _refuse_here(path: Path, text: str) -> list[Finding]:
    if not has_placeholder(text):
        return []
    if path == ("root",):
        return [
            (
                path,
                False,
                "root is where for_each looks, so it holds no {path} or {stem}; use run.cwd for a folder of each",
            )
        ]
    if path == ("run", "prompt"):
        return [
            (
                path,
                False,
                (
                    "a file's name never becomes part of a prompt, where it could give orders; bind the file, "
                    "which the agent is told of as data"
                ),
            )
        ]
    words = (
        'a file\'s name never becomes part of a script; pass it on with env: {FILE: "{path}"} and write "$FILE" here'
    )
    return [(path, False, words)]


def _refuse_code(value: dict[str, Any]) -> list[Finding]:
    """Refuse a placeholder in code: `sh -c "cat {path}"` would execute the file's name."""
    findings: list[Finding] = []
    for path, words in _list_commands(value):
        named = [index for index, word in enumerate(words) if has_placeholder(word)]
        for index, what in find_code(words, named):
            told = f"a file's name would become {what} here, and whoever names a file would say what is run; {_ADVICE}"
            findings.append(((*path, index), False, told))
    return findings


def _list_commands(value: dict[str, Any]) -> Iterator[tuple[Path, list[str]]]:
    """List all commands: those of the run, the check and the probes."""
    run, bindings = value.get("run"), value.get("bindings")
    found: list[tuple[Path, object]] = (
        [(("run", key), run.get(key)) for key in ("command", "check")] if isinstance(run, dict) else []
    )
    if isinstance(bindings, dict):
        found += [
            (("bindings", name, "probe"), one.get("probe")) for name, one in bindings.items() if isinstance(one, dict)
        ]
    for path, words in found:
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            yield path, words


def _refuse_variables(value: dict[str, Any]) -> list[Finding]:
    run = value.get("run")
    env = run.get("env") if isinstance(run, dict) else None
    told = (
        "programs take this variable for code, or for where code lies, so it holds no {path} or {stem}; use a "
        "name of your own, such as FILE"
    )
    return (
        [
            (("run", "env", name), False, told)
            for name, text in env.items()
            if has_placeholder(text) and takes_code(name)
        ]
        if isinstance(env, dict)
        else []
    )


def _refuse_rights(value: dict[str, Any]) -> list[Finding]:
    """Refuse placeholders that decide a session's rights, because other people may be able to add files there."""
    texts = ((path, text) for path, text in _walk_texts(value, ()) if path[0] in _RIGHTS)
    return [
        (path, False, f"a file's name does not say what a session may do, so {path[0]} holds no {{path}} or {{stem}}")
        for path, text in texts
        if has_placeholder(text)
    ]


def fill(value: dict[str, Any], path: str, stem: str) -> dict[str, Any]:
    """Fill the placeholders of a template for one session. Defaults are not filled."""
    return {key: _fill(inner, (key,), {"path": path, "stem": stem}) for key, inner in value.items()}


def _fill(value: Any, path: Path, words: dict[str, str]) -> Value:
    if isinstance(value, dict):
        return {key: _fill(inner, (*path, key), words) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, path, words) for inner in value]
    if path in _UNFILLED or ("{" not in value and "}" not in value):
        return str(value)
    is_pattern = len(path) == 3 and path[0] == "bindings" and path[2] in ("file", "exclude")
    return _BRACE.sub(lambda found: _replace(found, words, is_pattern), value)


def _replace(found: re.Match[str], words: dict[str, str], is_pattern: bool) -> str:
    if found[1] is None:
        return found[0][0]
    text = words[found[1]]
    return _WILDCARDS.sub(lambda wild: f"[{wild[0]}]", text) if is_pattern else text


# -- files of a glob ------------------------------------------------------------------------------


def find_files(template: Template, unseen: str | None = None) -> Glob:
    """Walk to the files that match.

    The walk skips `unseen` (the state folder), hidden names and the default excludes.
    """
    pattern = Pattern.parse(template.pattern).under(template.root)
    excludes = Excludes.build(template.root, DEFAULT_EXCLUDES)
    start = len(pattern.base.rstrip("/")) + 1
    files: list[str] = []
    waiting, folders = [pattern.base], _stand_in(pattern.base)
    entered: set[tuple[int, int]] = set()
    while waiting:
        folder = waiting.pop()
        try:
            own = os.stat(folder)
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                continue
            return Glob(
                pattern=pattern,
                folders=tuple(folders),
                problem=f"{folder} cannot be listed: {error.strerror}; check its permissions",
            )
        # Do not follow a link to a folder above: the walk would never end.
        if (own.st_dev, own.st_ino) in entered or folder == unseen:
            continue
        entered.add((own.st_dev, own.st_ino))
        folders.append(folder)
        lead = f"{folder.rstrip('/')}/"
        for entry in entries:
            path = lead + entry.name
            is_folder = entry.is_dir()
            if entry.name.startswith(".") or not (pattern.enters(path) if is_folder else pattern.matches(path)):
                continue
            if excludes.covers(path, start) is None and (is_folder or entry.is_file()):
                (waiting if is_folder else files).append(path)
        if len(files) > MOST_SESSIONS or len(folders) > MOST_FOLDERS:
            words = f"finds more than {MOST_SESSIONS:,} files or folders; narrow it, such as tickets/*.md"
            return Glob(pattern=pattern, folders=tuple(folders[:1]), problem=words)
    return Glob(pattern=pattern, files=frozenset(files), folders=tuple(dict.fromkeys(folders)))


def _stand_in(folder: str) -> list[str]:
    """Return the nearest existing folder above a missing folder. A change in it shows when the folder is made."""
    if os.path.isdir(folder):
        return []
    while folder != "/" and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return [folder]


def judge_files(template: Template, name: str, files: frozenset[str]) -> tuple[list[Match], dict[str, str]]:
    """Return the sessions for these files, and the refused files by the name they would have had, with the reason."""
    matches: dict[str, Match] = {}
    twins: dict[str, list[str]] = {}
    refused: dict[str, str] = {}
    for file in sorted(files):
        path = os.path.relpath(file, template.root) if not os.path.isabs(template.pattern) else file
        stem = os.path.splitext(os.path.basename(file))[0]
        session = name + _NOT_IN_NAMES.sub("-", unicodedata.normalize("NFC", stem)).strip("-.")
        if problem := _find_unfit(path, stem, session):
            refused[name + show_name(stem)] = f"'{show_name(path)}' cannot be a session: {problem}; rename the file"
            continue
        twins.setdefault(session, []).append(path)
        matches[session] = Match(path, stem, session)
    for session, paths in twins.items():
        if len(paths) > 1:
            del matches[session]
            refused[session] = f"'{paths[0]}' and '{paths[1]}' would both be session {session}; rename one of the files"
    return list(matches.values()), _shorten_refused(name, refused)


def _find_unfit(path: str, stem: str, session: str) -> str | None:
    if _UNFIT.search(path):
        return "its name holds a control character, or bytes that are not UTF-8"
    if path.startswith(("-", "~")) or stem.startswith("-"):
        return "its name begins with a character that a command may take for an option or a home folder"
    if session.endswith(TEMPLATE_MARK):
        return "its name has no letter or digit"
    return find_name_problem(session)


def _shorten_refused(name: str, refused: dict[str, str]) -> dict[str, str]:
    if len(refused) <= MOST_REPORTED:
        return refused
    kept = dict(sorted(refused.items())[:MOST_REPORTED])
    return {
        **kept,
        f"{name}…": f"{count(len(refused) - MOST_REPORTED, 'more file')} cannot be sessions; rename those above first",
    }
