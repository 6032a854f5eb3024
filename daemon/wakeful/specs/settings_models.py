"""Every key of wakeful.yaml, as pydantic models. The keys of sessions and agents are in models.py."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from wakeful.specs.models import Keys, RetentionKeys, describe, short_for
from wakeful.specs.notify_scalars import (
    Headers,
    MailAddress,
    MailAddresses,
    MailServer,
    NotifyEvents,
    NotifyUrl,
)
from wakeful.specs.value_parsers import (
    Argv,
    BaseUrl,
    Boolean,
    Count,
    Duration,
    FilledText,
    FolderPath,
    HostNames,
    ListenAddress,
    PathPatterns,
    PositiveDuration,
    Rate,
    SecretName,
    Size,
    WholeNumber,
)


class ConcurrencyKeys(Keys):
    commands: WholeNumber | None = describe(
        None, "Runs of commands at a time. Default: number of cores.", ge=1, le=10_000
    )
    agents: WholeNumber | None = describe(None, "Runs of agents at a time. Default: 2.", ge=1, le=10_000)


class PriceKeys(Keys):
    input: Rate = describe(..., "USD for a million tokens that go in.")
    output: Rate = describe(..., "USD for a million tokens that come out.")
    cached: Rate | None = describe(
        None, "USD for a million tokens that go in and that the provider still had. Default: as input."
    )
    cache_write: Rate | None = describe(
        None, "USD for a million tokens that go in and that the provider puts into its cache. Default: as input."
    )


class SizeLevels(Keys):
    warn: Size | None = describe(None, "Above this `doctor` says so.", ge=1)
    hard: Size | None = describe(None, "More than this is refused.", ge=1024)


class CountLevels(Keys):
    warn: Count | None = describe(None, "Above this `doctor` says so.", ge=1)
    hard: Count | None = describe(None, "More than this is refused.", ge=1)


class KeptSize(Keys):
    hard: Size = Field(description="More than this is not kept; 0: nothing is.", ge=0)


class KeptCount(Keys):
    hard: Count = Field(description="More than this is not kept; 0: nothing is.", ge=0)


class MostCount(Keys):
    hard: Count = Field(description="A run that has more is ended.", ge=1)


_SizeLimit = Annotated[SizeLevels, *short_for("hard", {"type": "string"})] | None
_CountLimit = Annotated[CountLevels, *short_for("hard", {"type": "integer", "minimum": 1})] | None
_MostLimit = Annotated[MostCount, *short_for("hard", {"type": "integer", "minimum": 1})] | None
_KeptSizeLimit = Annotated[KeptSize, *short_for("hard", {"anyOf": [{"type": "string"}, {"const": 0}]})] | None
_KeptCountLimit = Annotated[KeptCount, *short_for("hard", {"type": "integer", "minimum": 0})] | None


class LimitKeys(Keys):
    payload: _SizeLimit = describe(None, "Payload of one record. Default: {warn: 256KiB, hard: 1MiB}.")
    message: _SizeLimit = describe(None, "One message. Default: {warn: 64KiB, hard: 256KiB}.")
    note: _SizeLimit = describe(None, "One hand-off. Default: {warn: 16KiB, hard: 256KiB}.")
    fact: _SizeLimit = describe(None, "One fact's value. Default: {warn: 16KiB, hard: 256KiB}.")
    facts: _CountLimit = describe(None, "Facts of a session. Default: {warn: 1000, hard: 10000}.")
    conversation: _SizeLimit = describe(None, "A session's conversation. Default: {warn: 4MiB, hard: 64MiB}.")
    output: _SizeLimit = describe(None, "Output kept of a run: head and tail. Default: {warn: 1MiB, hard: 2MiB}.")
    records: _CountLimit = describe(None, "Records of a session. Default: {warn: 1000000, hard: 10000000}.")
    mailbox: _CountLimit = describe(None, "Messages a session has not seen. Default: {warn: 1000, hard: 10000}.")
    deliveries: _CountLimit = describe(
        None, "Deliveries to a webhook that its session has not seen. Default: {warn: 1000, hard: 10000}."
    )
    tokens: _CountLimit = describe(
        None,
        "Tokens that an agent's model reads to continue; above `warn`, `list` suggests a fresh start. Default: {warn: "
        "100000, hard: 10000000}.",
    )
    kept_file: _KeptSizeLimit = describe(None, "One file whose content is kept. Default: 8MiB; 0: none is.")
    kept_run: _KeptSizeLimit = describe(None, "New contents of files kept of one run. Default: 64MiB; 0: none are.")
    kept_files: _KeptCountLimit = describe(
        None, "Files of one run whose contents are new and kept. Default: 2000; 0: none are."
    )
    processes: _MostLimit = describe(
        None, "Processes of one run at a time, where run.limits.processes of its spec does not say. Default: 1000."
    )


class HttpKeys(Keys):
    listen: ListenAddress = describe(..., "HOST:PORT such as 127.0.0.1:8420, or off. Port 0: any free one.")
    hosts: HostNames = describe(
        (), "Further names under which browsers reach it, such as a reverse proxy's; exact, with the port."
    )
    beyond_loopback: Boolean = describe(False, "true: listen may be an address that other machines reach.")
    certificate: FolderPath | None = describe(None, "The TLS certificate, a PEM file; from the folder of this file.")
    key: FolderPath | None = describe(None, "Its private key, a PEM file that others cannot read.")


class PeopleKeys(Keys):
    """`people` in wakeful.yaml: which accounts of the machine may use the control socket, and who they are."""

    accounts: dict[str, str] = describe(
        {}, "Account of this machine -> the person it is (wakeful people), such as {ben: ben}. Default: none."
    )
    socket_group: str | None = describe(
        None, "The group whose members may reach the control socket. Default: only the daemon's own account."
    )


class EmailKeys(Keys):
    to: MailAddresses = describe(..., "Who gets it: one address or a list.")
    from_: MailAddress = Field(alias="from", description="The address it comes from.")
    server: MailServer = describe(..., "smtp://HOST:PORT, with TLS by STARTTLS, or smtps://HOST:PORT.")
    user: FilledText | None = describe(None, "The account at the server. Default: none, nobody logs in.")
    secret: SecretName | None = describe(None, "The name of the secret that is the password of user.")
    tls: Boolean = describe(
        True, "false: a server without TLS is used all the same. A server on this machine needs none."
    )


class NotifierKeys(Keys):
    command: Argv | None = describe(None, "A program that gets the message as JSON on standard input.")
    webhook: NotifyUrl | None = describe(None, "An address that gets it as JSON, signed by Standard Webhooks.")
    email: EmailKeys | None = describe(None, "Mail by SMTP: {to, from, server, user, secret}.")
    ntfy: NotifyUrl | None = describe(None, "A topic of ntfy, such as https://ntfy.sh/TOPIC.")
    url: NotifyUrl | None = describe(None, "Any address; {secret} in it stands for the secret.")
    desktop: Boolean | None = describe(None, "true: the desktop of the daemon's user, by notify-send.")
    secret: SecretName | None = describe(
        None, "The name of a secret: it signs a webhook, and is the token of ntfy and url."
    )
    method: Literal["POST", "PUT", "PATCH"] | None = describe(None, "With url. Default: POST.")
    headers: Headers | None = describe(None, "With url: further headers, such as {X-Team: ops}.")
    body: Any = describe(
        None,
        "With url: what is sent instead of wakeful's JSON, such as {text: '{title}: {words} {link}'}; filled in are "
        "{title}, {words}, {session}, {event}, {seq}, {look}, {link}, {id}.",
    )
    on: NotifyEvents | None = describe(None, "When: failed, asks, sleeping, budget, recovered. Default: all.")
    digest: PositiveDuration | None = describe(
        None, "Gather messages so long, such as 5m, and send them as one. Default: at once; a flood becomes one."
    )


class MetricsKeys(Keys):
    """The optional numbers of `/metrics`."""

    sessions: PathPatterns = describe(
        (), "Sessions that are told one by one, at most 500: names, or patterns such as hr/*."
    )


class OtelKeys(Keys):
    endpoint: BaseUrl = describe(..., "A collector that takes OTLP over HTTP, such as http://127.0.0.1:4318.")
    service_name: FilledText = describe("wakeful", "Our name there. Default: wakeful.")


class DaemonKeys(Keys):
    """wakeful.yaml: the daemon's own settings."""

    concurrency: Annotated[ConcurrencyKeys, *short_for("commands", {"type": "integer", "minimum": 1})] | None = (
        describe(None, "Runs at a time: a number for commands, or {commands: 4, agents: 2}.")
    )
    defaults: dict[str, Any] = describe({}, "Merged under every spec.")
    pools: dict[str, Annotated[WholeNumber, Field(ge=1, le=10_000)]] = describe({}, "Name -> runs at a time.")
    prices: dict[str, PriceKeys] = describe(
        {},
        "What models cost, such as {anthropic:claude-sonnet-4-5: {input: 3, output: 15}}; "
        "a * at the end stands for all that begin so.",
    )
    limits: LimitKeys | None = describe(None, "What is kept and what is taken at most.")
    retention: RetentionKeys | None = describe(None, "For sessions that say nothing of their own, such as {keep: 90d}.")
    loop_depth: WholeNumber = describe(8, "Longest chain of sessions waking each other. Default: 8.", ge=1, le=1000)
    stop_grace: Duration = describe(30.0, "How long runs may go on when the daemon stops. Default: 30s.")
    hints: Literal["auto", "inotify", "watchfiles", "poll"] = describe("auto", "How changes are noticed sooner.")
    notify: dict[str, NotifierKeys] = describe(
        {},
        "Who is told when a person should look: name -> {command}, {webhook, secret}, {email}, {ntfy}, {url} or "
        "{desktop: true}, with on and digest.",
    )
    trust: Literal["followed", "pinned"] = describe(
        "followed", "pinned: no spec counts before `wakeful trust NAME`. Default: followed as they are edited."
    )
    people: PeopleKeys | None = describe(
        None, "Other accounts of this machine that may use the control socket, as people. Default: none."
    )
    allow_unisolated: Boolean = describe(False, "true: sessions may say isolation: none or observe. Default: false.")
    http: Annotated[HttpKeys, *short_for("listen", {"type": "string"})] | None = describe(
        None, "Where the HTTP API listens on TCP, such as 127.0.0.1:8420. off: never. Default: until you open it."
    )
    metrics: MetricsKeys | None = describe(None, "What Prometheus is told of single sessions.")
    otel: Annotated[OtelKeys, *short_for("endpoint", {"type": "string"})] | None = describe(
        None, "Where traces are sent, such as http://127.0.0.1:4318; needs pip install 'wakeful[otel]'."
    )
