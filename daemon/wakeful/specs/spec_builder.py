"""Turns a valid model into the core's SessionSpec, with every default resolved and the rules between keys checked.

Called by `folder_reading` for each file. Returns findings instead of raising, so that an author sees all of them at
once. From the file system it reads only links, and whether a command's program, root and a worktree's repository exist.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, assert_never

from wakeful.core.deciding.clock_slots import find_cron_problem
from wakeful.core.deciding.rule_of_two import find_untrusted_binding, find_way_out
from wakeful.core.looking.granted_places import find_private
from wakeful.core.looking.patterns import contains, parse_under
from wakeful.core.spec.agent import MCP_TOOL_PREFIX
from wakeful.core.spec.bindings import (
    DEFAULT_SETTLE_SECONDS,
    RESERVED_BINDINGS,
    AnyBinding,
    CommitsBinding,
    CronBinding,
    EveryBinding,
    FileBinding,
    MessageBinding,
    ProbeBinding,
    ServiceBinding,
    SessionBinding,
    WebhookBinding,
    find_settle_max,
)
from wakeful.core.spec.budget import Amounts, Budget
from wakeful.core.spec.session import (
    AnyRun,
    CommandRun,
    Confinement,
    PromptRun,
    Retention,
    RunLimits,
    ScriptRun,
    SessionSpec,
    Window,
)
from wakeful.specs.command_words import find_program
from wakeful.specs.model_errors import Finding, find_tool_problem
from wakeful.specs.models import (
    AmountKeys,
    AnyBindingKeys,
    BindingKeys,
    BudgetKeys,
    ClockKeys,
    CommitsKeys,
    CronKeys,
    EveryKeys,
    FileKeys,
    MessageKeys,
    PeriodKeys,
    ProbeKeys,
    RetentionKeys,
    RunKeys,
    RunLimitKeys,
    ServiceKeys,
    SessionBindingKeys,
    SessionKeys,
    WebhookKeys,
)
from wakeful.specs.value_parsers import find_binding_name_problem, is_zone
from wakeful.specs.yaml_text import Path, shorten

MESSAGE = "message"
# The value of `secret` for a webhook whose deliveries are not signed.
UNSIGNED = "none"
# A run has exactly one of these keys.
RUN_KINDS = ("command", "script", "prompt")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings of a spec: the folder that holds sessions.d/, the machine's zone, the pools and notifiers of
    wakeful.yaml.

    `state` is the daemon's own folder, into which no template looks. No run ever writes to `state` or `specs`.
    """

    base: str
    local_zone: str | None = "UTC"
    pools: frozenset[str] = frozenset()
    state: str | None = None
    specs: str | None = None
    notifiers: frozenset[str] = frozenset()


@dataclass(slots=True)
class Built:
    """The result of building a session. `spec` is set exactly if `findings` is empty."""

    spec: SessionSpec | None = None
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def refuse(self, path: Path, text: str, *, is_key: bool = False) -> None:
        self.findings.append((path, is_key, text))

    def warn(self, path: Path, text: str, *, is_key: bool = False) -> None:
        self.warnings.append((path, is_key, text))


def build_spec(name: str, keys: SessionKeys, around: Surroundings) -> Built:
    built = Built()
    root = os.path.normpath(os.path.join(around.base, keys.root)) if keys.root else around.base
    zone = keys.timezone or around.local_zone
    _check_binding_names(keys, built)
    if keys.timezone is not None and not is_zone(keys.timezone):
        built.refuse(
            ("timezone",),
            f"time zone '{shorten(keys.timezone)}' is not known; write a name such as Asia/Shanghai or UTC",
        )
    made = [_build_binding(bound, binding, zone, keys, built) for bound, binding in keys.bindings.items()]
    # None: a finding reports the problem of this binding.
    bindings = [binding for binding in made if binding is not None]
    run = _build_run(keys.run, built) if keys.run is not None else None
    _check_agent(keys, built)
    window = _build_window(keys, zone, built)
    _check_whole(name, keys, built)
    _check_reach(keys, root, around, built)
    _check_workspace(keys, root, built)
    if built.findings:
        return built
    if run is not None and not any(isinstance(binding, MessageBinding) for binding in bindings):
        bindings.append(MessageBinding(name=MESSAGE))
    built.spec = SessionSpec(
        name=name,
        root=root,
        agent=keys.agent,
        objective=keys.objective.strip() if keys.objective else None,
        priority=keys.priority,
        tags=keys.tags,
        enabled=keys.enabled,
        bindings=tuple(bindings),
        when=keys.when,
        pace_seconds=keys.pace,
        window=window,
        first=keys.first,
        run=run,
        conversation=keys.conversation,
        pool=keys.concurrency.pool if keys.concurrency else None,
        program=find_program(run.argv, root, run.cwd) if isinstance(run, CommandRun) else None,
        secrets=keys.secrets,
        people=keys.people,
        retention=build_retention(keys.retention),
        confinement=_build_confinement(keys),
        fetch=keys.fetch,
        budget=build_budget(keys.budget, zone or "UTC"),
        is_approved_first=keys.approve == "before_run",
        ask_timeout_seconds=keys.ask_timeout,
        tools=dict(keys.tools),
        notify=keys.notify,
    )
    _refuse_rule_of_two_breach(built.spec, built)
    if built.findings:
        built.spec = None
        return built
    _warn_about(built.spec, keys, around, built)
    return built


def build_retention(keys: RetentionKeys | None) -> Retention | None:
    return None if keys is None else Retention(keep_seconds=keys.keep, runs=keys.runs, size_bytes=keys.size)


def build_budget(keys: BudgetKeys | None, zone: str) -> Budget | None:
    if keys is None:
        return None
    run = _build_amounts(keys.run) or Amounts()
    return Budget(
        run=run,
        hour=_build_amounts(keys.hour),
        day=_build_amounts(keys.day),
        month=_build_amounts(keys.month),
        timezone=zone,
    )


def _build_amounts(keys: AmountKeys | None) -> Amounts | None:
    if keys is None:
        return None
    runs = keys.runs if isinstance(keys, PeriodKeys) else None
    return Amounts(
        runs=runs,
        wall_seconds=keys.wall,
        cpu_seconds=keys.cpu,
        written_bytes=keys.written,
        tokens=keys.tokens,
        usd=keys.usd,
    )


# -- bindings -------------------------------------------------------------------------------------


def _build_binding(
    name: str, keys: AnyBindingKeys, zone: str | None, session: SessionKeys, built: Built
) -> AnyBinding | None:
    common = _build_common(name, keys, built)
    match keys:
        case FileKeys():
            return FileBinding(
                pattern=keys.file,
                access=keys.access,
                exclude=keys.exclude,
                compare=keys.compare,
                missing=keys.missing,
                **common,
            )
        case CommitsKeys():
            if keys.line is not None and not keys.each_commit:
                built.refuse(
                    ("bindings", name, "line"),
                    "line says which commits get a run of their own; add each_commit: true, or remove line",
                )
            return CommitsBinding(
                path=keys.commits, repo=keys.repo, branch=keys.branch, each_commit=keys.each_commit, export=keys.export,
                line=keys.line or "first-parent", **common,
            )  # fmt: skip
        case CronKeys():
            return _build_cron(name, keys, zone, session, common, built)
        case EveryKeys():
            _check_clock(name, keys, keys.every, session, built)
            return EveryBinding(period_seconds=keys.every, **_clock_options(keys), **common)
        case MessageKeys():
            return MessageBinding(**common)
        case SessionBindingKeys():
            return SessionBinding(session=keys.session, on=keys.on, **common)
        case ProbeKeys():
            return ProbeBinding(
                argv=keys.probe, check_every_seconds=keys.check_every, timeout_seconds=keys.timeout, **common
            )
        case ServiceKeys():
            if keys.wake:
                built.refuse(
                    ("bindings", name, "wake"),
                    "a service is a condition and wakes nothing; remove wake, or use a probe",
                )
            if keys.service.startswith(MCP_TOOL_PREFIX) and session.agent is None:
                built.refuse(
                    ("bindings", name, "service"),
                    f"{shorten(keys.service)} is a server of the session's agent, and this session has none; "
                    "add agent: NAME",
                )
            return ServiceBinding(url=keys.service, check_every_seconds=keys.check_every, **common)
        case WebhookKeys():
            return _build_webhook(name, keys, common, built)
        case _:
            assert_never(keys)


def _build_webhook(name: str, keys: WebhookKeys, common: dict[str, Any], built: Built) -> WebhookBinding | None:
    secrets = keys.secret or ()
    if not secrets:
        built.refuse(
            ("bindings", name, "webhook"),
            f"webhook '{name}' has no secret, so any program that can reach its address could wake this session; "
            "add secret: NAME (wakeful secret set NAME), or say secret: none",
        )
        return None
    if UNSIGNED in secrets and len(secrets) > 1:
        built.refuse(("bindings", name, "secret"), "secret: none cannot be combined with names; give names, or none")
        return None
    if secrets == (UNSIGNED,):
        secrets = ()
        built.warn(
            ("bindings", name, "secret"),
            f"deliveries to webhook '{name}' are not signed: any program that can reach it can wake this session",
        )
    return WebhookBinding(
        sender=keys.webhook,
        secrets=secrets,
        only=dict(keys.only),
        tolerance_seconds=keys.tolerance,
        max_size_bytes=keys.max_size,
        **common,
    )


def _build_common(name: str, keys: BindingKeys, built: Built) -> dict[str, Any]:
    is_waking = not isinstance(keys, ServiceKeys) and not (isinstance(keys, FileKeys) and keys.access == "write")
    settle = DEFAULT_SETTLE_SECONDS if keys.settle is None else keys.settle
    longest = find_settle_max(settle) if keys.settle_max is None else keys.settle_max
    if longest < settle:
        words = f"settle_max ({longest:g}s) is shorter than settle ({settle:g}s); make it longer"
        built.refuse(("bindings", name, "settle_max"), words)
    return {
        "name": name,
        "wake": is_waking if keys.wake is None else keys.wake,
        "stale_allowed": keys.stale == "allow",
        "settle_seconds": settle,
        "settle_max_seconds": longest,
        "is_untrusted": getattr(keys, "trust", None) == "untrusted",
    }


def _build_cron(
    name: str, keys: CronKeys, zone: str | None, session: SessionKeys, common: dict[str, Any], built: Built
) -> CronBinding | None:
    chosen = keys.timezone or zone
    path = ("bindings", name, "timezone" if keys.timezone else "cron")
    if chosen is None:
        built.refuse(path, "this machine's time zone has no name; add a timezone such as Asia/Shanghai or UTC")
        return None
    if not is_zone(chosen):
        # A problem of the session's own zone was reported before.
        if keys.timezone:
            built.refuse(path, f"time zone '{shorten(chosen)}' is not known; write a name such as Asia/Shanghai or UTC")
        return None
    if problem := _cron_problem(keys.cron, chosen):
        built.refuse(("bindings", name, "cron"), problem)
        return None
    _check_clock(name, keys, None, session, built)
    return CronBinding(expression=" ".join(keys.cron.split()), timezone=chosen, **_clock_options(keys), **common)


_cron_problem = lru_cache(maxsize=1024)(find_cron_problem)


def _clock_options(keys: ClockKeys) -> dict[str, Any]:
    return {
        "catch_up": keys.catch_up,
        "catch_up_window_seconds": keys.catch_up_window,
        "overlap": keys.overlap,
        "jitter_seconds": keys.jitter,
    }


def _check_clock(name: str, keys: ClockKeys, period_seconds: float | None, session: SessionKeys, built: Built) -> None:
    # Rule 36: either every slot gets a run of its own, or a newer slot may replace it, but not both.
    if keys.catch_up == "all" and keys.overlap != "queue_one":
        built.refuse(
            ("bindings", name, "catch_up"),
            f"catch_up: all gives every slot its run, and overlap: {keys.overlap} takes it away again; "
            "choose one of them",
        )
    timeout = session.run.timeout if session.run is not None else 0.0
    period = period_seconds if period_seconds is not None else _shortest_step(keys)
    if keys.overlap == "replace" and period is not None and timeout > period:
        built.warn(
            ("bindings", name, "overlap"),
            f"overlap: replace with a timeout ({timeout:g}s) longer than the period ({period:g}s) may stop every run"
            " before it ends; shorten the timeout",
        )


def _shortest_step(keys: ClockKeys) -> float | None:
    """Estimate a cron's shortest period from its minutes and hours. Precise enough for a warning."""
    fields = keys.cron.split() if isinstance(keys, CronKeys) else []
    if len(fields) != 5:
        return None
    for text, unit in ((fields[0], 60.0), (fields[1], 3600.0)):
        if step := re.fullmatch(r"\*(?:/(\d{1,2}))?", text):
            return unit * int(step[1] or 1)
        if "," in text or "-" in text:
            return unit
    return 86400.0


# -- the rest -------------------------------------------------------------------------------------


def _check_binding_names(keys: SessionKeys, built: Built) -> None:
    variables: dict[str, str] = {}
    has_mailbox = any(isinstance(binding, MessageKeys) for binding in keys.bindings.values())
    for name, binding in keys.bindings.items():
        path = ("bindings", name)
        if problem := find_binding_name_problem(name):
            built.refuse(path, problem, is_key=True)
        elif name in RESERVED_BINDINGS:
            built.refuse(path, f"'{name}' is a name that wakeful gives itself; choose another", is_key=True)
        elif name == MESSAGE and keys.run is not None and not has_mailbox and not isinstance(binding, MessageKeys):
            built.refuse(
                path, "'message' names the mailbox that every session with a run has; choose another", is_key=True
            )
        variable = name.upper().replace("-", "_")
        if (other := variables.setdefault(variable, name)) != name:
            words = f"bindings '{other}' and '{name}' would both be $WAKEFUL_BINDING_{variable}; rename one"
            built.refuse(path, words, is_key=True)


def _build_run(keys: RunKeys, built: Built) -> AnyRun | None:
    common: dict[str, Any] = {
        "cwd": keys.cwd,
        "env": dict(keys.env),
        "timeout_seconds": keys.timeout,
        "grace_seconds": keys.grace,
        "check": keys.check,
        "limits": _build_limits(keys.limits),
        "workspace": keys.workspace,
    }
    if keys.retries is not None:
        common["retries"] = keys.retries
    given = [kind for kind in RUN_KINDS if getattr(keys, kind) is not None]
    if len(given) > 1:
        built.refuse(("run", given[-1]), f"run has a {' and a '.join(given)}; keep one of them", is_key=True)
        return None
    if keys.command is not None:
        return CommandRun(argv=keys.command, **common)
    if keys.script is not None:
        return ScriptRun(text=keys.script, **common)
    if keys.prompt is not None:
        return PromptRun(prompt=keys.prompt, **common)
    built.refuse(("run",), "run has neither a command, a script nor a prompt; add one", is_key=True)
    return None


def _check_agent(keys: SessionKeys, built: Built) -> None:
    """Check the keys for an agent.

    `folder_reading`, which knows all files, checks whether the agent exists and has a model.
    """
    if keys.run is not None and keys.run.prompt is not None and keys.agent is None:
        words = "a prompt is put to an agent, and this session has none; add agent: NAME, declared in agents/NAME.yaml"
        built.refuse(("run", "prompt"), words, is_key=True)
    for name in keys.tools:
        if problem := find_tool_problem(name):
            built.refuse(("tools", name), problem, is_key=True)


def _build_limits(keys: RunLimitKeys | None) -> RunLimits:
    if keys is None:
        return RunLimits()
    return RunLimits(
        memory_bytes=keys.memory,
        processes=keys.processes,
        cpu_seconds=keys.cpu,
        open_files=keys.files,
        file_bytes=keys.file_size,
    )


def _build_confinement(keys: SessionKeys) -> Confinement:
    allow = keys.allow
    return Confinement(
        level=keys.isolation,
        network=keys.network,
        allow_read=allow.read if allow is not None else (),
        allow_write=allow.write if allow is not None else (),
    )


def _build_window(keys: SessionKeys, zone: str | None, built: Built) -> Window | None:
    if keys.window is None:
        return None
    if zone is None:
        built.refuse(("window",), "this machine's time zone has no name; add a timezone such as Asia/Shanghai or UTC")
        return None
    return Window(start_minute=keys.window[0], end_minute=keys.window[1], timezone=zone)


def _check_whole(name: str, keys: SessionKeys, built: Built) -> None:
    for bound, binding in keys.bindings.items():
        # The daemon can tell a run's writes from those of others only if the run writes into its own area (rules 27,
        # 28).
        is_staged = keys.isolation == "strict" or (keys.run is not None and keys.run.workspace is not None)
        # A prompt run may also write through our tools alone. `folder_reading`, which knows the agent, checks for other
        # tools.
        is_prompt = keys.run is not None and keys.run.prompt is not None
        if isinstance(binding, FileKeys) and binding.access == "both" and not is_staged and not is_prompt:
            words = (
                "access 'both' needs isolation: strict or run.workspace, "
                "where a run's own writes can be told apart from others;"
                " add one of them, or read one path and write another"
            )
            built.refuse(("bindings", bound, "access"), words)
        elif (
            isinstance(binding, FileKeys)
            and binding.access == "both"
            and not is_staged
            and binding.compare != "content"
        ):
            words = (
                "access 'both' tells an agent's own writes from those of others by their content, and compare is "
                f"{binding.compare}; remove compare, or use isolation: strict"
            )
            built.refuse(("bindings", bound, "compare"), words)
        if isinstance(binding, SessionBindingKeys) and binding.session == name:
            built.refuse(
                ("bindings", bound, "session"), "a session cannot wait for itself; name another, or remove the binding"
            )


def _check_workspace(keys: SessionKeys, root: str, built: Built) -> None:
    """Refuse writes outside of root. A workspace is a copy of root, so such writes would not go through it."""
    kind = keys.run.workspace if keys.run is not None else None
    if kind is None:
        return
    for bound, binding in keys.bindings.items():
        if (
            isinstance(binding, FileKeys)
            and binding.access != "read"
            and not contains(root, parse_under(binding.file, root).base)
        ):
            words = (
                f"'{shorten(binding.file)}' lies outside of root, and a workspace replaces only root; write "
                "inside root, or remove workspace"
            )
            built.refuse(("bindings", bound, "file"), words)
    for index, place in enumerate(keys.allow.write if keys.allow is not None else ()):
        real, real_root = os.path.realpath(os.path.join(root, place)), os.path.realpath(root)
        if contains(real_root, real) or contains(real, real_root):
            words = (
                f"'{shorten(place)}' would be written outside of the workspace, which replaces {shorten(root, 80)}; "
                "bind it with access: write instead"
            )
            built.refuse(("allow", "write", index), words)


def _check_reach(keys: SessionKeys, root: str, around: Surroundings, built: Built) -> None:
    """Refuse a spec that asks to write into the specs folder or the state folder. No run may change those."""
    guarded = [os.path.realpath(place) for place in (around.specs, around.state) if place is not None]
    writes: list[tuple[Path, str]] = [
        (("allow", "write", index), place)
        for index, place in enumerate(keys.allow.write if keys.allow is not None else ())
    ]
    writes += [
        (("bindings", name, "file"), binding.file)
        for name, binding in keys.bindings.items()
        if isinstance(binding, FileKeys) and binding.access != "read"
    ]
    for path, place in writes:
        real = os.path.realpath(os.path.join(root, place))
        if found := next((guard for guard in guarded if contains(guard, real)), None):
            built.refuse(
                path, f"'{shorten(place)}' lies in {shorten(found, 80)}, which no run may change; write elsewhere"
            )


def _refuse_rule_of_two_breach(spec: SessionSpec, built: Built) -> None:
    """Apply the rule of two.

    Refuse a session that acts on untrusted text, has secrets and can send them out, because the text could make it do
    so.
    """
    binding, way_out = find_untrusted_binding(spec), find_way_out(spec)
    private = find_private(spec) if binding is not None and way_out is not None else None
    if binding is None or private is None:
        return
    words = (
        f"untrusted input ({binding}), {private} and a way out ({way_out}) do not go together; drop one of them, "
        "or part the session in two"
    )
    is_bound = any(one.name == binding and one.is_untrusted for one in spec.bindings)
    built.refuse(("bindings", binding, "trust") if is_bound else ("fetch",), words)


def _warn_about(spec: SessionSpec, keys: SessionKeys, around: Surroundings, built: Built) -> None:
    if spec.objective is None:
        built.warn((), "no objective; say in one sentence what this session is for")
    if spec.fetch and spec.run is not None and not isinstance(spec.run, PromptRun):
        built.warn(
            ("fetch",),
            "fetch is a tool of agents, and this session runs a program; list what that connects to under network",
            is_key=True,
        )
    if spec.run is None and any(binding.wake for binding in spec.bindings):
        built.warn(("bindings",), "bindings may wake this session, but it has no run; add one", is_key=True)
    if spec.when == "changed" and not any(isinstance(binding, CronBinding | EveryBinding) for binding in spec.bindings):
        built.warn(("when",), "when: changed is about the clock, and no binding is one; add cron or every")
    if keys.concurrency is not None and spec.pool not in around.pools:
        built.warn(
            ("concurrency",), f"pool '{shorten(spec.pool or '')}' is not in wakeful.yaml, so it holds one run at a time"
        )
    unknown = [name for name in spec.notify or () if name not in around.notifiers]
    if unknown:
        rest = "only the others are used" if len(unknown) < len(spec.notify or ()) else "all notifiers are used"
        built.warn(("notify",), f"notifier '{shorten(unknown[0])}' is not in wakeful.yaml; {rest}")
    if keys.root is not None and not os.path.isdir(spec.root):
        built.warn(("root",), f"the folder '{shorten(spec.root, 80)}' does not exist")
    if spec.run is not None and spec.run.workspace == "worktree" and not _has_repository(spec.root):
        built.warn(
            ("run", "workspace"), "workspace: worktree needs a git repository around root, and there is none; use copy"
        )
    _warn_about_duplicate_bindings(spec, built)


def _has_repository(root: str) -> bool:
    folder = os.path.realpath(root)
    while not os.path.lexists(f"{folder}/.git"):
        if (above := os.path.dirname(folder)) == folder:
            return False
        folder = above
    return True


def _warn_about_duplicate_bindings(spec: SessionSpec, built: Built) -> None:
    first: dict[str, AnyBinding] = {}
    for binding in spec.bindings:
        meant = f"file {binding.pattern} {binding.exclude}" if isinstance(binding, FileBinding) else binding.identity
        other = first.setdefault(meant, binding)
        if other is binding:
            continue
        is_own_output = getattr(other, "access", "read") != getattr(binding, "access", "read")
        words = (
            "mean the same paths; what a session writes never wakes it"
            if is_own_output
            else "are the same; one is enough"
        )
        built.warn(("bindings", binding.name), f"bindings '{other.name}' and '{binding.name}' {words}", is_key=True)
