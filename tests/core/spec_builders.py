"""Short constructors for specs in the tests of the core: each binding takes one line."""

from __future__ import annotations

from wakeful.core.spec.bindings import (
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
)
from wakeful.core.spec.session import CommandRun, SessionSpec

ROOT = "/project"


def session(name: str, *bindings: AnyBinding, run: CommandRun | None | str = "", **keys: object) -> SessionSpec:
    """Return the spec of a session that runs a command and has a mailbox. With `run=None` it has neither."""
    retries = keys.pop("retries", 0)
    objective = keys.pop("objective", None)
    if run == "":
        run = CommandRun(argv=("work", name), retries=retries)
    mailbox = () if run is None else (MessageBinding(name="mailbox"),)
    return SessionSpec(name=name, root=ROOT, bindings=(*bindings, *mailbox), run=run, objective=objective, **keys)


def read(pattern: str, name: str | None = None, **options: object) -> FileBinding:
    return FileBinding(name=name or plain(pattern), pattern=pattern, **options)


def write(pattern: str, name: str | None = None, wake: bool = False) -> FileBinding:
    return FileBinding(name=name or plain(pattern), pattern=pattern, access="write", wake=wake)


def plain(pattern: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in pattern)


def commits(path: str, **options: object) -> CommitsBinding:
    return CommitsBinding(name="commits", path=path, **options)


def cron(expression: str, timezone: str = "UTC", **options: object) -> CronBinding:
    return CronBinding(name="clock", expression=expression, timezone=timezone, **options)


def every(seconds: float, **options: object) -> EveryBinding:
    return EveryBinding(name="clock", period_seconds=seconds, **options)


def after(name: str, **options: object) -> SessionBinding:
    word = f"after_{plain(name)}" + (f"_{options['on']}" if "on" in options else "")
    return SessionBinding(name=word, session=name, **options)


def probe(*argv: str, **options: object) -> ProbeBinding:
    return ProbeBinding(name="probe", argv=argv, **options)


def hook(**options: object) -> WebhookBinding:
    return WebhookBinding(name="hook", sender="github", secrets=("gh",), is_untrusted=True, **options)


def service(url: str) -> ServiceBinding:
    return ServiceBinding(name="service", url=url, wake=False)
