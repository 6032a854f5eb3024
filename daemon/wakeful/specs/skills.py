"""Skills of an agent: folders with a SKILL.md each. The model gets the name and description, and reads the text when
needed.

Called by `agents` when a spec is built. Reads only inside the project. The digest of each file is stored, so that a run
gets exactly the content that was read here, or nothing. A SKILL.md begins with YAML between two lines `---`: `name` and
`description`. Other keys are for other programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wakeful.core.looking.patterns import contains
from wakeful.core.spec.agent import Skill
from wakeful.specs.problem import RefusedSpec
from wakeful.specs.prompt_file import PromptFile, find_folder, read_file
from wakeful.specs.spec_builder import Surroundings
from wakeful.specs.yaml_text import read_mapping, shorten

SKILL_FILE = "SKILL.md"
MOST_SKILLS = 100
MOST_FILES = 200
DEEPEST_FOLDER = 4
LONGEST_DESCRIPTION = 1_024
_NAME = re.compile(r"(?=.{1,64}$)[a-z0-9]+(-[a-z0-9]+)*")
_FRONT_MATTER = re.compile(rb"---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
# Folders that programs make, which hold no instructions.
_PASSED_OVER = ("__pycache__", "node_modules")


@dataclass(slots=True)
class FoundSkills:
    """The skills found. `files` and `folders` list the places read, so that a caller can check them for changes.

    A problem or a warning carries the index of its folder in the list of paths.
    """

    skills: list[Skill] = field(default_factory=list)
    files: list[PromptFile] = field(default_factory=list)
    folders: list[PromptFile] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    warnings: list[tuple[int, str]] = field(default_factory=list)


def read_skills(paths: Sequence[str], around: Surroundings) -> FoundSkills:
    """Read skills.

    Blocking. Each path is a skill, or a folder of skills, and starts from the folder that holds sessions.d/.
    """
    found = FoundSkills()
    for place, path in enumerate(paths):
        for folder in _list_skills(path, place, around, found):
            _read_skill(folder, place, around, found)
    _refuse_doubles(found)
    return found


def strip_front_matter(content: bytes) -> str:
    """Return the text that a model reads, without the YAML at its beginning."""
    head = _FRONT_MATTER.match(content.removeprefix(b"\xef\xbb\xbf"))
    return (
        content.removeprefix(b"\xef\xbb\xbf")[head.end() if head is not None else 0 :].decode(errors="replace").strip()
    )


def _list_skills(path: str, place: int, around: Surroundings, found: FoundSkills) -> list[str]:
    whole, shown = os.path.normpath(os.path.join(around.base, path)), shorten(path, 80)
    real = os.path.realpath(whole)
    found.folders.append(find_folder(whole))
    if not contains(os.path.realpath(around.base), real) or (
        around.state is not None and contains(os.path.realpath(around.state), real)
    ):
        found.problems.append(
            (place, f"'{shown}' lies outside of the project; move it into the folder that holds sessions.d/")
        )
        return []
    if not os.path.isdir(whole):
        found.problems.append((place, f"there is no folder '{shown}'; it starts from {shorten(around.base, 80)}"))
        return []
    if os.path.lexists(os.path.join(whole, SKILL_FILE)):
        return [whole]
    inner = sorted(
        entry.path
        for entry in os.scandir(whole)
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    )
    skills = [folder for folder in inner if os.path.lexists(os.path.join(folder, SKILL_FILE))]
    # A folder without SKILL.md is watched, because it may get one.
    found.folders.extend(find_folder(folder) for folder in inner if folder not in skills)
    if not skills:
        found.problems.append(
            (
                place,
                (
                    f"'{shown}' holds no {SKILL_FILE}, and no folder in it does; write {shown}/NAME/{SKILL_FILE}, with "
                    "name and description between two lines ---"
                ),
            )
        )
    if len(skills) > MOST_SKILLS:
        found.problems.append(
            (place, f"'{shown}' holds {len(skills)} skills; at most {MOST_SKILLS} are told to a model")
        )
    return skills[:MOST_SKILLS]


def _read_skill(folder: str, place: int, around: Surroundings, found: FoundSkills) -> None:
    files: dict[str, str] = {}
    content = b""
    for path in _list_files(folder, "", place, around, found):
        shown = os.path.relpath(os.path.join(folder, path), around.base)
        file, data, problem = read_file(os.path.join(folder, path), shorten(shown, 80))
        if problem is not None:
            (found.problems if path == SKILL_FILE else found.warnings).append(
                (place, f"{problem}; it is left out" if path != SKILL_FILE else problem)
            )
            continue
        found.files.append(file)
        files[path] = file.digest
        content = data if path == SKILL_FILE else content
    shown = os.path.relpath(os.path.join(folder, SKILL_FILE), around.base)
    if SKILL_FILE not in files:
        found.problems.append(
            (place, f"{shorten(shown, 80)} cannot be read as a file; symbolic links are not followed here")
        )
        return
    read = _read_head(content, shown)
    if isinstance(read, str):
        found.problems.append((place, read))
    else:
        found.skills.append(Skill(name=read[0], description=read[1], folder=folder, files=files))


def _list_files(
    folder: str, inner: str, place: int, around: Surroundings, found: FoundSkills, depth: int = 0
) -> Iterator[str]:
    """List the files as paths from the skill's folder, sorted. Links are not followed, and hidden files are skipped."""
    here = os.path.join(folder, inner) if inner else folder
    found.folders.append(find_folder(here))
    for number, entry in enumerate(sorted(os.scandir(here), key=lambda entry: entry.name)):
        path = os.path.join(inner, entry.name)
        if entry.name.startswith(".") or entry.name in _PASSED_OVER or entry.name.endswith("~"):
            continue
        if number >= MOST_FILES:
            found.warnings.append(
                (
                    place,
                    (
                        f"{shorten(os.path.relpath(here, around.base), 80)} holds more than {MOST_FILES} files; "
                        "the rest is left out"
                    ),
                )
            )
            return
        if entry.is_symlink():
            found.warnings.append(
                (
                    place,
                    (
                        f"{shorten(os.path.relpath(entry.path, around.base), 80)} is a symbolic link and is left out; "
                        "put the file there"
                    ),
                )
            )
        elif entry.is_dir():
            if depth < DEEPEST_FOLDER:
                yield from _list_files(folder, path, place, around, found, depth + 1)
        elif entry.is_file():
            yield path


def _read_head(content: bytes, shown: str) -> tuple[str, str] | str:
    """Read name and description, or return the problem and its place."""
    head = _FRONT_MATTER.match(content.removeprefix(b"\xef\xbb\xbf"))
    if head is None:
        return (
            f"{shown}:1:1: it does not begin with a line --- and end its keys with another; write name: and "
            "description: between two such lines"
        )
    try:
        # A comment replaces the first line `---`, so that line numbers are those of the file.
        keys = read_mapping(b"#\n" + head[1], shown)
    except RefusedSpec as refusal:
        return str(refusal.problems[0])
    name, description = keys.get("name"), keys.get("description")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return (
            f"{shown}:2:1: name is {shorten(str(name)) if name else 'missing'}; write 1 to 64 small letters and "
            "digits, with single - between, such as name: release-notes"
        )
    if not isinstance(description, str) or not description.strip():
        return (
            f"{shown}:2:1: description is missing; say in one line what the skill is for and when to use it: "
            "the model chooses by it"
        )
    if len(description) > LONGEST_DESCRIPTION:
        return (
            f"{shown}:2:1: description has {len(description):,} characters, and at most {LONGEST_DESCRIPTION:,} "
            "are told; put the rest below the second ---"
        )
    if not content[head.end() :].strip():
        return f"{shown}:1:1: it has no instructions; write them below the second line ---"
    return name, " ".join(description.split())


def _refuse_doubles(found: FoundSkills) -> None:
    first: dict[str, str] = {}
    for skill in found.skills:
        if skill.name in first:
            found.problems.append(
                (
                    0,
                    (
                        f"two skills are called '{skill.name}': in {shorten(first[skill.name], 80)} and "
                        f"{shorten(skill.folder, 80)}; rename one of them"
                    ),
                )
            )
        first.setdefault(skill.name, skill.folder)
