"""`wakeful show`: prints everything about one session on a page, now or at an earlier seq."""

from __future__ import annotations

import json
from typing import Any

from wakeful.cli.client import Options
from wakeful.cli.text import (
    Colour,
    count,
    escape,
    escape_lines,
    find_colour,
    format_ago,
    format_both,
    format_folded_table,
    format_span,
    format_table,
    paint,
    quote_prose,
    wrap,
)
from wakeful.cli.verbs.diff import say_conflict
from wakeful.client.wire import quote_name
from wakeful.core.record.todo import MARKS
from wakeful.core.spec.budget import UNITS
from wakeful.views.times import shorten

PLAIN_KINDS = ("file", "program", "message")


def show_verb(options: Options, name: str, at: str | None) -> None:
    found = options.client().get(f"/sessions/{quote_name(name)}", at=at)
    if options.is_json:
        print(json.dumps(found))
        return
    for block in (_head(found), _bindings(found), _runs(found), _participants(found), _keeps(found)):
        if block:
            print("\n".join(block))


def _head(found: dict[str, Any]) -> list[str]:
    name, state = escape(found["name"]), found["state"] + (f": {found['reason']}" if found["reason"] else "")
    title, *more = wrap(f"{name}  {escape(state)}")
    lines = [
        paint(title[: len(name)], "bold") + paint(title[len(name) :], find_colour(found["state"])),
        *(paint(line, find_colour(found["state"])) for line in more),
    ]
    lines += _paragraphs(found["objective"] or "")
    pairs = [
        # The words of the hold are already printed after the state.
        ("queued", found.get("queued") if found.get("queued") != found["reason"] else None),
        ("new", ", ".join(found.get("owed", ()))),
        (
            "denied" if found["hold"] and found["hold"]["kind"] == "asking" else "held until",
            format_both(found["hold"]["until"]) if found["hold"] and found["hold"]["until"] else None,
        ),
        ("running", _say_running(found["run"]) if found["run"] else None),
        ("woken by", _say_causes(found["wake"]["causes"]) if found["wake"] else None),
        ("retry", format_both(found["wake"]["retry_at"]) if found["wake"] and found["wake"]["retry_at"] else None),
        ("fork of", f"{found['origin']['name']} at seq {found['origin']['seq']}" if found["origin"] else None),
        ("workspace", found["workspace"]),
        ("detached", ", ".join(found["detached"])),
        ("agent", " ".join(part for part in (found["agent"], found["model"]) if part)),
        ("priority", str(found["priority"])),
        ("tags", ", ".join(found["tags"])),
        ("budget", _say_budget(found["budget"])),
        ("approve", "a person is asked before every run" if found["approve"] else ""),
        ("root", found["root"]),
        ("here now", _say_present(found.get("present", []))),
        ("isolation", _say_confinement(found["confinement"]) if found.get("confinement") else None),
        *(("server down", one["words"]) for one in found.get("servers_down", ())),
        *(
            ("conflict", f"{one['path']}: {one['words']}" + (f"; the run's is {one['kept']}" if one["kept"] else ""))
            for one in found["kept_outputs"]
        ),
        ("upstream", ", ".join(found.get("upstream", ()))),
        ("readers", ", ".join(found.get("readers", ()))),
        ("on failure", ", ".join(found.get("wakes_on_failure", ()))),
        ("opened", format_both(found["opened_at"])),
        ("last active", format_both(found["last_active_at"])),
        ("id", f"{found['id']}, seq {found['seq']}"),
        # The hash by which the states of two hosts, or of a replay, are compared.
        ("state", found.get("state_hash")),
    ]
    for label, value in pairs:
        if value:
            first, *rest = wrap(escape(value), " " * 15)
            lines += [f"  {paint(f'{label:<11}', 'dim')}  {first.lstrip()}", *rest]
    if found.get("problem"):
        lines += [paint(line, "bad") for line in wrap(f"spec: {escape(found['problem'])}", "  ")]
    return lines


def _say_budget(budget: dict[str, Any] | None) -> str:
    """Format a budget, such as `run: 600 s; hour: 2 of 6 runs`: the limits of a run, and the use of each period."""
    told = []
    for period, amounts in (budget or {}).items():
        if period == "timezone":
            continue
        parts = [_say_amount(period, name, one) for name, one in amounts.items() if name != "since"]
        told.append(f"{period}: {', '.join(parts)}")
    return "; ".join(told)


def _say_amount(period: str, name: str, amount: dict[str, float]) -> str:
    spent = "" if period == "run" else f"{amount['spent']:g} of "
    return f"{spent}{amount['limit']:g} {UNITS[name]}"


def _paragraphs(text: str) -> list[str]:
    """Wrap a person's text, and keep its own line breaks."""
    return [part for line in escape_lines(text).strip().split("\n") if line for part in wrap(line.strip(), "  ")]


def _say_confinement(confinement: dict[str, Any]) -> str:
    """Format the isolation, such as `standard, network api.example.com:443, may also read ~/.netrc`."""
    network, allow = confinement["network"], confinement["allow"]
    parts = [
        f"{confinement['isolation']}: its runs reach everything that you can"
        if confinement["isolation"] in ("none", "observe")
        else confinement["isolation"]
    ]
    parts += [f"in a workspace of its own ({confinement['workspace']})"] if confinement.get("workspace") else []
    parts += [f"network {'open' if network is True else ', '.join(network)}"] if network else []
    parts += [f"fetches from {', '.join(confinement['fetch'])}"] if confinement.get("fetch") else []
    parts += [f"may also {verb} {', '.join(allow[verb])}" for verb in ("read", "write") if allow[verb]]
    # The paths that a command, script, check or probe names. The run may read them, but no binding watches them.
    reads = [(one["path"], one["by"].split()[0]) for one in confinement.get("reads", ())]
    bound = {path for path, by in reads if by in ("binding", "output")}
    named = dict.fromkeys(
        path for path, by in reads if by in ("command", "script", "check", "probe") and path not in bound
    )
    parts += [f"reads by name {', '.join(named)}"] if named else []
    return "; ".join(parts)


def _say_running(run: dict[str, Any]) -> str:
    stopping = f", {run['stopping']['why']} asked for by {run['stopping']['by']}" if run["stopping"] else ""
    # An earlier state has only recorded figures. Between two processes of a run nothing can be measured.
    used = run.get("usage")
    spent = (
        f", {format_span(used['cpu_seconds'])} of CPU, {used['max_rss_bytes'] / 1e6:.0f} MB of memory" if used else ""
    )
    return f"run {run['run']} since {format_both(run['started_at'])}{spent}{stopping}{_say_subagents(run)}"


def _say_subagents(run: dict[str, Any]) -> str:
    """Format the cost of a run's sub-agents, as the end of a sentence."""
    return "".join(
        f"; sub-agent {name}: {count(one['tokens'], 'token')}"
        for name, one in sorted((run.get("subagents") or {}).items())
    )


def _say_causes(causes: list[dict[str, Any]]) -> str:
    return "; ".join(say_cause(cause) for cause in causes)


def say_cause(cause: dict[str, Any]) -> str:
    paths = [path["path"] for path in cause["paths"]]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    told = ": " + ", ".join(paths[:3]) + more if paths else f": {cause['reason']}" if cause.get("reason") else ""
    return f"{cause['binding']}{told}"


def _bindings(found: dict[str, Any]) -> list[str]:
    bindings = found["bindings"]
    if not bindings:
        return []
    rows = [(f"  {escape(one['name'])}", _say_version(one), _say_look(one), _say_binding(one)) for one in bindings]
    notes = [_say_marks(one) for one in bindings]
    remarks = [line for one in bindings for line in _remarks(one)]
    return ["", *format_folded_table(("  BINDING", "VERSION", "LOOKED", "WHAT"), rows, notes), *remarks]


def _say_binding(binding: dict[str, Any]) -> str:
    """Describe a binding. A path is shown without its kind. A binding without a description shows its kind."""
    access = {"write": "> ", "both": "<> "}.get(binding["access"], "")
    quiet = "" if binding["wake"] or access else " (quiet)"
    kind = "" if binding["what"] and binding["kind"] in PLAIN_KINDS else f"{binding['kind']} "
    return f"{kind}{access}{escape(binding['what'])}{quiet}".strip()


def _say_version(binding: dict[str, Any]) -> str:
    """Return the present version; for an earlier state, the version last dealt with."""
    return _short(binding["version"] if "version" in binding else binding["seen"])


def _say_marks(binding: dict[str, Any]) -> str:
    """Return the versions last seen and last good, if they differ from the version shown."""
    shown = binding.get("version", binding["seen"])
    marks = [f"{mark} {_short(binding[mark])}" for mark in ("seen", "good") if binding[mark] != shown]
    return ", ".join(marks)


def _short(version: str | None) -> str:
    return "-" if version is None else escape(shorten(version))


def _say_look(binding: dict[str, Any]) -> str:
    if binding.get("next_due"):
        return f"next {format_ago(binding['next_due'])}"
    return format_ago(binding["looked_at"]) if "looked_at" in binding else ""


def _remarks(binding: dict[str, Any]) -> list[str]:
    """List the remarks about a binding that no column shows."""
    name = escape(binding["name"])
    told: list[tuple[Colour, str | None]] = [
        ("bold", "is new" if binding.get("owed") else None),
        ("bad", f"cannot be seen: {binding['problem']}" if binding.get("problem") else None),
        ("warn", binding.get("degraded")),
        ("warn", f"is held: {binding['held']}" if binding.get("held") else None),
        ("dim", "is not there" if binding.get("absent") else None),
        ("warn", "was changed by somebody else since its run wrote it" if binding.get("drift") else None),
    ]
    return [paint(line, colour) for colour, words in told if words for line in wrap(f"{name} {escape(words)}", "  ")]


def _runs(found: dict[str, Any]) -> list[str]:
    runs = found.get("last_runs", ())
    if not runs:
        return []
    # Without an agent's work the columns of tokens would be empty.
    has_spent = any((run.get("usage") or {}).get("tokens") for run in runs)
    rows = [
        (
            f"  {run['run']}",
            run["outcome"] or "running",
            format_ago(run["started_at"]),
            format_span(run["seconds"]) if run.get("seconds") is not None else "",
            *(_say_spending(run.get("usage") or {}) if has_spent else ()),
            escape((f"{run['reason']}; " if run.get("reason") else "") + _say_causes(run["causes"])),
        )
        for run in runs
    ]
    head = ("  RUN", "OUTCOME", "STARTED", "TOOK", *(("TOKENS", "USD") if has_spent else ()), "CAUSES")
    colours = [tuple(find_colour(cell if place == 1 else "") for place, cell in enumerate(row)) for row in rows]
    remarks = [line for words in _remarks_of_run(found["name"], runs[0]) for line in wrap(escape(words), "  ")]
    return [
        "",
        *format_table(head, rows, colours),
        *(paint(line, "warn") for line in remarks),
        *_say_last_subagents(runs[0]),
    ]


def _say_spending(usage: dict[str, Any]) -> tuple[str, str]:
    """Format tokens, marked if some of them are estimated, and US dollars."""
    if not usage.get("tokens"):
        return "", ""
    return f"{'~' if usage.get('estimated_tokens') else ''}{usage['tokens']}", f"{usage['usd']:.4f}" if usage.get(
        "usd"
    ) else ""


def _say_last_subagents(run: dict[str, Any]) -> list[str]:
    words = _say_subagents(run).removeprefix("; ")
    return [paint(line, "dim") for line in wrap(escape(f"run {run['run']}: {words}"), "  ")] if words else []


def _say_trace(name: str, run: dict[str, Any]) -> list[str]:
    trace = run.get("trace")
    if trace is None:
        return []
    would = "it asked for {} that its isolation would deny" if trace["observed"] else "{} denied it"
    found = (
        [f"{would.format(count(trace['denied'], 'thing'))}: `wakeful trace {name} --run {run['run']}` lists them"]
        if trace["denied"]
        else []
    )
    return [*found, *((f"not all was recorded: {trace['words']}",) if trace["words"] else ())]


def _remarks_of_run(name: str, run: dict[str, Any]) -> list[str]:
    """List the remarks about the newest run that no column shows."""
    remarks = [f"run {run['run']}: {run['hint']}"] if run.get("hint") else []
    remarks += [f"run {run['run']}: {words}" for words in _say_trace(name, run)]
    isolation = run.get("isolation") or {}
    if isolation.get("derived"):
        remarks.append(f"run {run['run']}: its programs also reached {', '.join(isolation['derived'])}")
    remarks += [f"run {run['run']}: not opened: {words}" for words in isolation.get("not_derived", ())]
    if run.get("daemons", 1) > 1:
        outlived = "the daemon that started it" if run["daemons"] == 2 else f"{run['daemons'] - 1} daemons"
        remarks.append(f"run {run['run']} outlived {outlived}")
    if run.get("undeclared"):
        remarks.append(
            f"run {run['run']}: these changed meanwhile, and no binding declares them: {', '.join(run['undeclared'])}"
        )
    return remarks


def _say_present(present: list[dict[str, Any]]) -> str:
    """List the people who are here. Empty if only the person who asks is here."""
    return ", ".join(f"{one['person']} {one['doing']}" for one in present) if len(present) > 1 else ""


def _participants(found: dict[str, Any]) -> list[str]:
    """List the people and runs that took part, and the people to whom the spec gives a role."""
    rows = [
        (f"  {escape(one['author'])}", one["role"] or "-", str(one["records"]), format_ago(one["last_at"]))
        for one in found["participants"]
    ]
    return ["", *format_table(("  PARTICIPANT", "ROLE", "RECORDS", "LAST"), rows)] if rows else []


def _keeps(found: dict[str, Any]) -> list[str]:
    talk = found["conversation"]
    said = f"{count(talk['messages'], 'message')}, {count(talk['bytes'], 'byte')}" if talk["messages"] else ""
    said += f", {count(found['tokens'], 'token')} for its model" if said and found["tokens"] else ""
    blocks = {
        "FACTS": [f"{fact['key']} = {fact['value']}" for fact in found["facts"]],
        "CONFLICTS, to be settled with wakeful resolve": [say_conflict(conflict) for conflict in found["conflicts"]],
        "MEMORY of this conversation": [f"{key} = {value}" for key, value in sorted(found["memory"].items())],
        "TO-DO LIST": [f"{MARKS[item['status']]} {item['text']}" for item in found["todo"]],
        "CONVERSATION": [said] if said else [],
        "CHECKPOINTS": [
            f"{mark['name']}  seq {mark['seq']}, {mark['author']}" + (f": {mark['note']}" if mark["note"] else "")
            for mark in found["checkpoints"]
        ],
    }
    lines = []
    for title, texts in blocks.items():
        if texts:
            lines += ["", paint(f"  {title}", "dim"), *(line for text in texts for line in _hang(text))]
    for title, prose in (("HAND-OFF", found["handoff"]), ("SUMMARY of the conversation before", talk["summary"])):
        if prose:
            lines += ["", paint(f"  {title}", "dim"), *quote_prose(prose)]
    return lines + _forks(found)


def _hang(text: str) -> list[str]:
    """Wrap one entry. Its further lines are indented."""
    first, *rest = wrap(escape(text), "    ")
    return [first[2:], *rest]


def _forks(found: dict[str, Any]) -> list[str]:
    if not found.get("forks"):
        return []
    return ["", paint("  FORKS", "dim"), *(escape(line) for line in _branch(found["forks"], "  "))]


def _branch(forks: list[dict[str, Any]], indent: str) -> list[str]:
    lines = []
    for fork in forks:
        merged = f", merged at its seq {fork['merged']}" if fork["merged"] else ""
        lines.append(f"{indent}{fork['name']}  from seq {fork['at']}, now at {fork['seq']}{merged}")
        lines += _branch(fork["forks"], f"{indent}  ")
    return lines
