"""`trust` and `add`: show a person what a spec asks for, and record that the person trusts it.

The text comes from other people's files, so all of it is escaped. Characters that reorder or hide text are shown as
escapes.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click

from wakeful.cli.client import Client, Options
from wakeful.cli.exit_codes import FAILED, Failure
from wakeful.cli.text import count, escape, paint, paint_diff
from wakeful.client.wire import quote_name


def trust_verb(options: Options, what: str | None, is_sure: bool, is_all: bool, is_pinned: bool) -> None:
    client = options.client()
    found = client.get("/trust")
    names = [one["name"] for one in found["waiting"]]
    if what is None and not is_all:
        print(json.dumps(found)) if options.is_json else _print_all(found)
        return
    if what is not None and is_all:
        raise click.UsageError("give a NAME, or --all for everything that waits")
    if what is not None and what not in names and os.path.isdir(os.path.expanduser(what)):
        folder = os.path.abspath(os.path.expanduser(what))
        _say(options, client.post("/trust/follow", folder=folder, is_followed=not is_pinned))
        return
    if is_pinned:
        raise click.UsageError("--pin goes with the folder of a project")
    if is_all and not names and not options.is_json:
        print("nothing waits")
    for name in names if is_all else [str(what)]:
        trust_one(options, client, name, is_sure=is_sure)


def trust_one(options: Options, client: Client, name: str, *, is_sure: bool) -> None:
    shown = client.get(f"/trust/{quote_name(name)}")
    if options.is_json and not is_sure:
        print(json.dumps(shown))
        return
    if not options.is_json:
        if shown["spec"] is not None:
            print_session(name, shown["spec"], shown["reach"])
        elif shown["agent"] is not None:
            print(paint(escape(name), "bold"))
            _print_agent(shown["agent"])
        for file in shown["files"]:
            _print_file(file)
    if shown["reason"] is None:
        if not options.is_json:
            print(f"{escape(name)}: already trusted as it is now")
        return
    if not is_sure and not _ask(f"trust {escape(name)} as it is now?"):
        raise Failure(f"{escape(name)} is not trusted, and still sleeps", FAILED)
    _say(options, client.post("/trust/accept", name=name, digest=shown["digest"]))


def accept(client: Client, name: str) -> None:
    """Trust the session as it is now, without a question."""
    client.post("/trust/accept", name=name, digest=client.get(f"/trust/{quote_name(name)}")["digest"])


def add_verb(options: Options, folder: str | None, project: str | None, is_sure: bool, remove: str | None) -> None:
    if (folder is None) == (remove is None):
        raise click.UsageError("give the DIR of a project, or --remove PROJECT")
    client = options.client()
    if remove is not None:
        _say(options, client.post("/trust/detach", project=remove))
        return
    place = os.path.abspath(os.path.expanduser(folder or ""))
    shown = client.post("/trust/attach", folder=place, project=project)
    if options.is_json and not is_sure:
        print(json.dumps(shown))
        return
    if not options.is_json:
        _print_project(shown)
    if not is_sure and not _ask(f"attach {escape(shown['project'])} and trust it as it is now?"):
        raise Failure(f"{escape(shown['folder'])} was not attached", FAILED)
    _say(options, client.post("/trust/attach", folder=place, project=project, digest=shown["digest"]))


def _ask(question: str) -> bool:
    if not sys.stdin.isatty():
        raise Failure("cannot ask without a terminal; --yes trusts everything shown above", FAILED)
    return click.confirm(question, default=False)


def _say(options: Options, answer: dict[str, Any]) -> None:
    if options.is_json:
        print(json.dumps(answer))
        return
    more = f" ({count(len(answer['sessions']), 'session')})" if "sessions" in answer else ""
    print(f"{escape(answer['name'])}: {escape(answer['words'])}{more}")


def _print_all(found: dict[str, Any]) -> None:
    for one in found["folders"]:
        project = f"{one['project']}: " if one["project"] else ""
        print(
            escape(
                f"{project}{one['folder']}: "
                + (f"pinned, {one['pinned']}" if one["pinned"] else "followed as it is edited")
            )
        )
    if not found["waiting"]:
        print("nothing waits to be trusted")
    for one in found["waiting"]:
        print(paint(escape(f"{one['name']} {one['reason']}"), "warn"))


def _print_project(shown: dict[str, Any]) -> None:
    print(escape(f"{shown['folder']} as {shown['project']}: {count(len(shown['sessions']), 'session')}"))
    for one in shown["sessions"]:
        print_session(one["name"], one, one["reach"])
        print(f"  files: {escape(', '.join(one['files']))}")
    for one in shown["agents"]:
        print(paint(escape(one["name"]), "bold"))
        _print_agent(one["agent"])
        print(f"  files: {escape(', '.join(one['files']))}")
    for name, words in sorted(shown["refused"].items()):
        print(paint(f"{escape(name)} is refused: {escape(words)}", "bad"))


def print_session(name: str, spec: dict[str, Any], reach: Sequence[str] = ()) -> None:
    """Print a spec. Unusual lines are coloured, so that the person notices them."""
    print(paint(escape(name), "bold"))
    for label in ("runs", "check"):
        if spec[label]:
            print(f"  {label}: {escape(shlex.join(spec[label]))}")
    for probe in spec["probes"]:
        print(f"  probes: {escape(shlex.join(probe))}")
    if spec.get("webhooks"):
        print(paint(f"  woken by deliveries to: {escape(', '.join(spec['webhooks']))}", "warn"))
    for label in ("reads", "writes"):
        if spec[label]:
            print(f"  {label}: {escape(', '.join(spec[label]))} (below {escape(spec['root'])})")
    if reach:
        print(paint(f"  its programs also reach: {escape(', '.join(reach))}", "warn"))
    network = spec["network"]
    if network:
        print(paint(f"  network: {'anywhere' if network is True else escape(', '.join(network))}", "warn"))
    if spec.get("fetch"):
        print(paint(f"  fetches from: {escape(', '.join(spec['fetch']))}", "warn"))
    if spec["secrets"]:
        print(paint(f"  secrets: {escape(', '.join(spec['secrets']))}", "warn"))
    if spec["isolation"] in ("none", "observe"):
        print(paint(f"  isolation: {spec['isolation']}: it reaches everything you can", "bad"))
    if spec["agent"] is not None:
        _print_agent(spec["agent"])


def _print_agent(agent: dict[str, Any]) -> None:
    """Print the models, programs, servers and tools of an agent."""
    if agent["models"]:
        print(paint(f"  agent asks: {escape(', '.join(agent['models']))}", "warn"))
    if agent["acp"]:
        print(f"  agent is: {escape(shlex.join(agent['acp']))}")
    for server, words in agent["servers"].items():
        print(f"  server {escape(server)}: {escape(shlex.join(words))}")
    if agent["tools"]:
        print(f"  tools: {escape(', '.join(f'{tool} {policy}' for tool, policy in agent['tools'].items()))}")
    if agent.get("skills"):
        print(f"  skills: {escape(', '.join(agent['skills']))}")
    if agent["subagents"]:
        print(f"  gives work to: {escape(', '.join(agent['subagents']))}")
    if agent["keys"]:
        print(paint(f"  keys: {escape(', '.join(agent['keys']))}", "warn"))


def _print_file(file: dict[str, Any]) -> None:
    if file["state"] == "same":
        print(paint(f"  {escape(file['file'])}: as it was trusted", "dim"))
        return
    print(f"  {escape(file['file'])}: {'changed' if file['state'] == 'changed' else 'new'}")
    for line in file["diff"]:
        print(paint_diff(escape(line), "    "))
