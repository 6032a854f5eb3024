"""`check`, `schema` and `new`: the verbs for specs.

They need no daemon, except `new NAME --from NAME`, which copies the spec of a session without a file. `new --from` asks
a running daemon for the facts of the other session. `check` asks it for MCP servers that did not start.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Any, NamedTuple

import click

from wakeful.cli.client import Options
from wakeful.cli.daemon_location import find_specs
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.progress import Bar
from wakeful.cli.text import count, escape, paint
from wakeful.client.refusals import DaemonAway, DaemonRefused, DaemonUnreachable
from wakeful.client.wire import quote_name
from wakeful.core.deciding.graph import Graph
from wakeful.core.looking.patterns import parse_under
from wakeful.core.spec.agent import AgentSpec, ModelSpec
from wakeful.core.spec.session import TEMPLATE_MARK, SessionSpec, find_template
from wakeful.service.program_reach import (
    ProgramReach,
    declare_written,
    find_search_path,
    list_server_programs,
    list_unbound_files,
    name_derived,
    say_missing_package,
)
from wakeful.settings import (
    SETTINGS_FILE,
    SPECS_FOLDER,
    find_settings_file,
    name_notifiers,
    read_settings,
    warn_about_model_name,
)
from wakeful.specs.check_warnings import Mistakes, UnkeptPromise, find_unkept
from wakeful.specs.command_words import has_shell_sign
from wakeful.specs.file_ownership import find_others
from wakeful.specs.folder_reading import (
    AGENTS,
    INSTANCE,
    SUFFIX,
    FolderReading,
    locate,
    read_folder,
    read_template,
    read_text,
)
from wakeful.specs.model_errors import find_nearest
from wakeful.specs.new_spec import Answers, check_free, put_new, render_copy, write_new
from wakeful.specs.problem import Problem, RefusedSpec
from wakeful.specs.schema import json_schema
from wakeful.specs.spec_builder import Surroundings
from wakeful.specs.value_parsers import find_local_zone
from wakeful.text.display import ReportProgress, ignore_progress

# The most sessions of a template that are named. The others are counted.
MOST_NAMED = 10


class Findings(NamedTuple):
    """The result of a check. `others` are checked files that declare no session: the settings, agents.

    `templates` has the sessions of each template.
    """

    sessions: int
    problems: list[Problem]
    warnings: list[Problem]
    others: tuple[str, ...] = ()
    templates: dict[str, list[str]] = {}
    reach: dict[str, list[str]] = {}


def check_verb(options: Options, files: tuple[str, ...], specs: str | None) -> None:
    if files:
        found = _join(
            [check_folder(Path(file), options) if os.path.isdir(file) else check_file(file) for file in files]
        )
    else:
        found = check_folder(Path(find_specs(specs)), options)
    if options.is_json:
        views = {"problems": [_view(one) for one in found.problems], "warnings": [_view(one) for one in found.warnings]}
        print(
            json.dumps(
                {
                    "ok": not found.problems,
                    "sessions": found.sessions,
                    **views,
                    "templates": found.templates,
                    "reach": found.reach,
                }
            )
        )
    else:
        _print(found)
    if found.problems:
        raise Failure(code=FAILED)


def _join(parts: list[Findings]) -> Findings:
    return Findings(
        sum(part.sessions for part in parts),
        [problem for part in parts for problem in part.problems],
        [warning for part in parts for warning in part.warnings],
        tuple(other for part in parts for other in part.others),
        {name: own for part in parts for name, own in part.templates.items()},
        {name: own for part in parts for name, own in part.reach.items()},
    )


def _view(problem: Problem) -> dict[str, Any]:
    return {"file": problem.file, "line": problem.line, "column": problem.column, "text": problem.text}


def _print(found: Findings) -> None:
    for problem in found.problems:
        print(paint(escape(str(problem)), "bad"))
    for warning in found.warnings:
        print(paint(f"{escape(str(warning))} (a warning)", "warn"))
    for name, own in sorted(found.templates.items()):
        print(escape(_say_template(name, own)))
    for places, names in _group_reach(found.reach):
        print(
            escape(
                f"{', '.join(names)}: {'its' if len(names) == 1 else 'their'} programs also reach {', '.join(places)}"
            )
        )
    if not found.problems:
        sessions = [count(found.sessions, "session")] if found.sessions or not found.others else []
        print(f"{escape(' and '.join([*sessions, *found.others]))}: all good")


def _group_reach(reach: dict[str, list[str]]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Group sessions whose programs reach the same places, so that each group is one line."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, places in sorted(reach.items()):
        groups.setdefault(tuple(places), []).append(name)
    return list(groups.items())


def _say_template(name: str, own: list[str]) -> str:
    if not own:
        return f"{name}: no session yet, because its glob finds no file"
    more = f" and {len(own) - MOST_NAMED:,} more" if len(own) > MOST_NAMED else ""
    return f"{name}: {count(len(own), 'session')}: {', '.join(own[:MOST_NAMED])}{more}"


def _find_templates(reading: FolderReading) -> dict[str, list[str]]:
    """Map each valid template to the sessions it declares now."""
    found: dict[str, list[str]] = {one.name: [] for one in reading.files.values() if one.template is not None}
    for key, one in sorted(reading.files.items()):
        if INSTANCE in key and one.name in reading.sessions and (own := find_template(one.name)) in found:
            found[own].append(one.name)
    return found


def check_folder(specs: Path, options: Options) -> Findings:
    """Check the folder as the daemon would: wakeful.yaml, agents, every session, and the graph of the sessions."""
    if not specs.is_dir():
        raise Failure(f"{escape(str(specs))} is not a folder; name one with --specs, or begin with: wakeful new NAME")
    with Bar(is_shown=not options.is_json) as report_progress:
        reading, problems = _read(specs, report_progress)
    problems += [problem for own in reading.problems.values() for problem in own]
    refused = _judge_graph(reading)
    problems += [Problem(_file_of(reading, name), 1, 1, words) for name, words in refused.items()]
    others = (SETTINGS_FILE,) if find_settings_file(specs).exists() else ()
    unbound, reach = _look_at_programs(reading, reading.sessions)
    mistakes = _find_mistakes(reading, reading.sessions, specs)
    servers = _warn_about_servers(reading, _look_for_mistakes(reading.sessions.values()), specs, options)
    warnings = [
        *reading.warnings,
        *mistakes,
        *_warn_about_writers(specs, reading),
        *_warn_about_promises(specs, reading),
        *_warn_about_models(specs, reading),
        *_warn_about_subagents(reading),
        *unbound,
        *servers,
    ]
    return Findings(len(reading.sessions) - len(refused), problems, warnings, others, _find_templates(reading), reach)


def _look_at_programs(reading: FolderReading, names: Iterable[str]) -> tuple[list[Problem], dict[str, list[str]]]:
    """Warn about files that a program reads but no binding watches.

    Also list the places that programs reach beyond the specs, as seen with the environment of this command.
    """
    programs = ProgramReach(os.environ, declare_written(reading.sessions))
    warnings: dict[Problem, None] = {}
    reach = {}
    for name in _choose_some(names):
        spec = reading.sessions.get(name)
        if spec is None:
            continue
        derived = programs.find(spec, reading.agents.get(spec.agent or ""))
        if derived.places:
            reach[name] = list(name_derived(derived, spec.root))
        unbound = (
            f"the run reads {path}, but a change of it wakes no session; add to bindings: {_offer_binding(spec, path)}"
            for path in list_unbound_files(spec)
        )
        file = _file_of(reading, find_template(name) or name)
        warnings |= {Problem(file, 1, 1, words): None for words in (*unbound, *derived.refused)}
    return list(warnings), reach


def _find_mistakes(reading: FolderReading, names: Iterable[str], specs: Path) -> list[Problem]:
    """Warn about likely mistakes.

    Only the first session of a template is checked, because a warning names a place in the template's file.
    """
    mistakes = _look_for_mistakes(reading.sessions.values())
    found = []
    judged: set[str] = set()
    for name in names:
        owner = find_template(name) or name
        if name not in reading.sessions or owner in judged:
            continue
        judged.add(owner)
        path = str(specs / f"{owner}{SUFFIX}")
        found += [
            Problem(_file_of(reading, owner), *locate(path, place), words)
            for place, _, words in mistakes.find(reading.sessions[name])
        ]
    return found


def _look_for_mistakes(specs: Iterable[SessionSpec]) -> Mistakes:
    return Mistakes(
        find_search_path(os.environ), [parse_under(text, spec.root) for spec in specs for text in spec.written_patterns]
    )


def _choose_some(names: Iterable[str]) -> Iterator[str]:
    """Yield the names, but only the first sessions of each template, because all of them run the same program."""
    counted: Counter[str] = Counter()
    for name in names:
        template = find_template(name)
        counted[template or ""] += 1
        if template is None or counted[template] <= MOST_NAMED:
            yield name


def _offer_binding(spec: SessionSpec, path: str) -> str:
    """Make a line for `bindings`, under a name that is free."""
    stem = re.sub(r"[^a-z0-9]+", "-", os.path.splitext(os.path.basename(path))[0].lower()).strip("-") or "file"
    names = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
    name = next(one for one in names if spec.binding(one) is None)
    return f"{name}: {{file: {json.dumps(path, ensure_ascii=False)}}}"


def _warn_about_promises(specs: Path, reading: FolderReading) -> list[Problem]:
    """Warn about budgets that nothing enforces, and questions that perhaps no person can answer.

    Only the first session of a template is checked.
    """
    judged = {find_template(name) or name: spec for name, spec in reversed(reading.sessions.items())}
    found = find_unkept({spec.name: spec for spec in judged.values()}, reading.agents, read_settings(specs)[0].prices)
    return list(
        dict.fromkeys(_place_promise(specs, reading, find_template(one.file) or one.file, one) for one in found)
    )


def _place_promise(specs: Path, reading: FolderReading, file: str, found: UnkeptPromise) -> Problem:
    place = locate(str(specs / f"{file}{SUFFIX}"), found.key) if found.key else (1, 1)
    return Problem(_file_of(reading, file), *place, found.words)


def _warn_about_models(specs: Path, reading: FolderReading) -> list[Problem]:
    """Warn about model names that are probably misspelt.

    They are not refused, because a provider may know models that our list lacks.
    """
    prices = read_settings(specs)[0].prices
    return [
        Problem(_file_of(reading, f"agents/{name}"), *locate(str(specs / AGENTS / f"{name}{SUFFIX}"), place), words)
        for name, agent in sorted(reading.agents.items())
        for place, model in _place_models(agent)
        if (words := warn_about_model_name(prices, model)) is not None
    ]


def _place_models(agent: AgentSpec) -> Iterator[tuple[tuple[str, ...], ModelSpec]]:
    """Yield each model with the key of the spec that names it."""
    yield from zip(itertools.chain([("model",)], itertools.repeat(("fallback",))), agent.models, strict=False)
    if agent.window.compress_by is not None:
        yield ("context", "compress_by"), agent.window.compress_by


def _warn_about_subagents(reading: FolderReading) -> list[Problem]:
    """Warn about sub-agents that do not exist or have no model. The daemon does not offer them to their agent."""
    found = []
    for agent in reading.agents.values():
        for name in agent.subagents:
            other = reading.agents.get(name)
            if other is not None and other.models:
                continue
            nearest = find_nearest(name, reading.agents)
            why = (
                "has no model, and only an agent with one can be a sub-agent"
                if other is not None
                else "does not exist" + (f"; did you mean '{nearest}'?" if nearest else "")
            )
            found.append(Problem(_file_of(reading, f"agents/{agent.name}"), 1, 1, f"subagents: agent {name} {why}"))
    return found


def _warn_about_writers(specs: Path, reading: FolderReading) -> list[Problem]:
    """Warn about specs that others can write. The daemon follows them only as far as a person has trusted them."""
    found = [Problem(specs.name, 1, 1, words) for words in [find_others(str(specs))] if words is not None]
    found += [
        Problem(one.file, 1, 1, one.others)
        for key, one in reading.files.items()
        if one.others is not None and INSTANCE not in key
    ]
    return [
        Problem(
            one.file,
            one.line,
            one.column,
            f"{one.text}; until this is mended, only the version that you trusted is used: wakeful trust",
        )
        for one in found
    ]


def _warn_about_servers(reading: FolderReading, mistakes: Mistakes, specs: Path, options: Options) -> list[Problem]:
    """Say why MCP servers that are local programs would not start, and why they did not start in the last run.

    The reasons why a server would not start are found in the files; no program is started. The reasons of the last run
    come from a daemon that reads the same folder of specs. Each warning is returned once, with the server's position in
    the agent's file.
    """
    found: dict[Problem, None] = {}
    started = {
        name: servers
        for name, spec in reading.sessions.items()
        if (servers := list_server_programs(spec, reading.agents.get(spec.agent or "")))
    }
    for name, servers in started.items():
        spec = reading.sessions[name]
        for server in servers:
            for words in _judge_server(server.argv, spec, mistakes):
                found[_place_server(specs, spec, server.name, f"MCP server {server.name} will not start: {words}")] = (
                    None
                )
    for name, down in _find_servers_down(started.keys(), specs, options):
        found[
            _place_server(specs, reading.sessions[name], down["name"], f"in the last run of {name}: {down['words']}")
        ] = None
    return list(found)


def _judge_server(argv: tuple[str, ...], spec: SessionSpec, mistakes: Mistakes) -> Iterator[str]:
    yield from mistakes.find_of_server(argv, spec.root)
    if (missing := say_missing_package(argv, spec.root)) is not None and spec.confinement.network is False:
        yield missing


def _place_server(specs: Path, spec: SessionSpec, server: str, words: str) -> Problem:
    file = f"{AGENTS}/{spec.agent}{SUFFIX}"
    return Problem(f"{specs.name}/{file}", *locate(str(specs / file), ("mcp", server)), words)


def _find_servers_down(names: Set[str], specs: Path, options: Options) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the servers that were down in the last runs. The daemon is asked only if a session has a server."""
    if not names:
        return
    try:
        client = options.client()
        if os.path.realpath(client.get("/doctor")["specs"]) != os.path.realpath(specs):
            return
        known = {row["name"] for row in client.get("/sessions")}
        for name in names & known:
            yield from ((name, down) for down in client.get("/why", x=name, path=os.path.abspath(name))["servers_down"])
    except (DaemonUnreachable, DaemonRefused):
        # No daemon answers, so there are no warnings about the last runs.
        return


def _read(specs: Path, report_progress: ReportProgress = ignore_progress) -> tuple[FolderReading, list[Problem]]:
    settings, defaults, problems = read_settings(specs)
    around = Surroundings(
        os.path.dirname(os.path.abspath(specs)),
        find_local_zone(os.environ),
        frozenset(settings.pools),
        notifiers=name_notifiers(settings),
    )
    return read_folder(specs, around, defaults, report_progress=report_progress), list(problems)


def _judge_graph(reading: FolderReading) -> dict[str, str]:
    return Graph().admit(reading.sessions.values(), ())


def _file_of(reading: FolderReading, name: str) -> str:
    return next((one.file for one in reading.files.values() if one.name == name), name)


def check_file(file: str) -> Findings:
    """Check one file.

    Inside a sessions.d it is checked together with the other files, as the daemon does; else by itself.
    """
    path = Path(os.path.abspath(file))
    if not path.is_file():
        raise Failure(f"{escape(file)} is not a file")
    if path.name == SETTINGS_FILE:
        return Findings(0, list(read_settings(path.parent / SPECS_FOLDER)[2]), [], (file,))
    top = next((above for above in path.parents if above.name == SPECS_FOLDER), None)
    if top is None or path.suffix != ".yaml":
        return _check_alone(path, file)
    reading, _ = _read(top)
    own = reading.files.get(str(path.relative_to(top)))
    if own is None:
        return Findings(0, [Problem(file, 1, 1, "the daemon would not read this file: it is hidden or too deep")], [])
    problems = list(reading.problems.get(own.file, ()))
    templates = {name: sessions for name, sessions in _find_templates(reading).items() if name == own.name}
    names = templates.get(own.name, [own.name])
    refused = _judge_graph(reading)
    problems += [Problem(own.file, 1, 1, refused[name]) for name in names if name in refused]
    sessions = sum(name in reading.sessions and name not in refused for name in names)
    others = () if sessions or templates else (file,)
    unbound, reach = _look_at_programs(reading, names)
    misspelt = [warning for warning in _warn_about_models(top, reading) if warning.file == own.file]
    warnings = [*own.warnings, *_find_mistakes(reading, names, top), *misspelt, *unbound]
    return Findings(0 if problems and not templates else sessions, problems, warnings, others, templates, reach)


def _check_alone(path: Path, file: str) -> Findings:
    around = Surroundings(str(path.parent), find_local_zone(os.environ))
    try:
        if path.stem.endswith(TEMPLATE_MARK):
            return Findings(0, [], list(read_template(path.read_bytes(), path.stem, file, around)[1]), (file,))
        spec, warnings = read_text(path.read_bytes(), path.stem, file, around)
    except RefusedSpec as refusal:
        return Findings(0, list(refusal.problems), [])
    except OSError as error:
        return Findings(0, [Problem(file, 1, 1, f"cannot be read: {error.strerror}")], [])
    mistakes = [
        Problem(file, *locate(str(path), place), words) for place, _, words in _look_for_mistakes([spec]).find(spec)
    ]
    return Findings(1, _judge_alone(spec, file), [*warnings, *mistakes])


def _judge_alone(spec: SessionSpec, file: str) -> list[Problem]:
    return [Problem(file, 1, 1, words) for words in Graph().admit([spec], ()).values()]


def schema_verb(options: Options, kind: Any) -> None:
    print(json.dumps(json_schema(kind), indent=None if options.is_json else 2))


def new_verb(
    options: Options, name: str, origin: str | None, specs: str | None, command: str | None, **flags: Any
) -> None:
    # The default is ./sessions.d, because a daemon that is started in this folder looks there first.
    folder = Path(find_specs(specs or os.environ.get("WAKEFUL_SPECS") or "sessions.d"))
    if origin is not None:
        if command is not None or any(value not in (None, ()) for value in flags.values()):
            raise click.UsageError(
                "--from copies the spec of another session; give no other keys, and edit the file afterwards"
            )
        _begin_from(options, folder, name, origin)
        return
    if not any(flags.values()) and command is None and sys.stdin.isatty():
        check_free(folder, name)
        flags, command = _ask(flags)
    is_script = command is not None and not flags["script"] and has_shell_sign(command)
    if is_script:
        # A command with a pipe or a glob needs a shell, so it becomes a `script`.
        flags, command = {**flags, "script": command}, None
    try:
        words = tuple(shlex.split(command)) if command else ()
    except ValueError as error:
        raise click.UsageError(f"--command {command!r}: {error}") from None
    path = write_new(folder, name, Answers(command=words, **flags))
    if options.is_json:
        print(json.dumps({"name": name, "file": str(path)}))
        return
    if is_script:
        print("the command needs a shell, so it is written as a script, which sh -eu runs")
    # Print the whole path, and the folder to which the spec's paths are relative.
    print(
        f"{escape(str(path))} is written; its paths are relative to {escape(str(folder.parent))}; "
        "edit it, then: wakeful check"
    )


def _begin_from(options: Options, folder: Path, name: str, origin: str) -> None:
    """Make a spec from that of another session.

    The fork is made before the file. The daemon opens a session for each new file at once, and must find the fork then.
    """
    if name == origin:
        _write_file_of_open(options, folder, name)
        return
    text = render_copy(folder, name, origin)
    words = _take_over(options, folder, name, origin)
    path = put_new(folder, name, text)
    if options.is_json:
        print(json.dumps({"name": name, "file": str(path), "from": origin, "taken_over": words is None}))
        return
    print(f"{escape(str(path))} is written; the outputs of {escape(origin)} are commented out in it")
    print(escape(words or f"facts and hand-off of {origin} came with it; it sleeps until: wakeful activate {name}"))


def _write_file_of_open(options: Options, folder: Path, name: str) -> None:
    """Write the file of a session that was opened without a file.

    The daemon finds it, and the session continues from it.
    """
    check_free(folder, name)
    client = options.client()
    specs = client.get("/version")["specs"]
    if specs != str(folder):
        raise Failure(
            f"the daemon of {escape(name)} reads its specs from {escape(specs)}; name that folder with --specs"
        )
    text = client.get(f"/sessions/{quote_name(name)}/spec")["text"]
    if text is None:
        raise Failure(f"{escape(name)} was not opened without a file; --from copies the spec of another session")
    path = put_new(folder, name, text)
    if options.is_json:
        print(json.dumps({"name": name, "file": str(path), "from": name, "taken_over": True}))
    else:
        print(f"{escape(str(path))} is written; {escape(name)} goes on from it, with its history")


def _take_over(options: Options, folder: Path, name: str, origin: str) -> str | None:
    """Ask the daemon of this folder to fork the facts. Returns a message if there is no such daemon."""
    client = options.client()
    try:
        is_ours = client.get("/doctor")["specs"] == str(folder)
    except DaemonAway:
        is_ours = False
    if not is_ours:
        return f"no daemon reads {folder} now, so it begins without the facts of {origin}"
    client.call("fork", name=origin, new=name, fresh=True)
    return None


def _ask(flags: dict[str, Any]) -> tuple[dict[str, Any], str]:
    objective = click.prompt("What is it for, in one sentence", default="", show_default=False)
    files = click.prompt(
        "Which files wake it (patterns, split by spaces; empty for none)", default="", show_default=False
    )
    every = "" if files else click.prompt("How often, such as 30m (empty for never)", default="", show_default=False)
    writes = click.prompt("What does it write (patterns; empty for nothing)", default="", show_default=False)
    command = click.prompt("Which command", default="", show_default=False)
    given = {
        "objective": objective or None,
        "files": tuple(files.split()),
        "every": every or None,
        "writes": tuple(writes.split()),
    }
    return {**flags, **given}, command
