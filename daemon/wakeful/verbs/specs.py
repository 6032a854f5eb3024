"""The verbs about specs: check and write them, trace runs, secrets, webhooks, trust and projects."""

from __future__ import annotations

from wakeful.verbs.answer_fields import ATTACHED, DELIVERED, TRACE, TRUST_LIST, TRUST_SHOWN, TRUSTED
from wakeful.verbs.verb import ANSWER, HELD, NAME, Argument, Field, Route, Verb, calls, reads

WEBHOOKS = (
    reads("/webhooks", is_from_log=False)._replace(
        words="list every webhook binding, with its address and latest deliveries",
        takes=(),
        gives=(
            Field("webhooks", "list", "one entry for each binding"),
            Field("unknown_addresses", "number", "how many deliveries went to unknown addresses"),
        ),
    ),
    Route(
        "POST",
        "/webhooks/test",
        "run",
        "body",
        words="deliver a payload by hand, signed as its sender would",
        takes=(
            NAME,
            Argument("payload", help="The body of the delivery."),
            Argument("binding", is_required=False, help="The binding, if there are several."),
            Argument("event", is_required=False, help="The type that the sender gives it, such as push."),
            Argument("delivery", is_required=False, help="The id of the delivery."),
        ),
        gives=DELIVERED,
    ),
)
# Only the daemon's owner may trust specs; no token is enough.
TRUST = (
    Route("GET", "/trust", "owner", words="list folders of specs, and specs to trust", takes=(), gives=TRUST_LIST),
    Route(
        "GET",
        "/trust/{name}",
        "owner",
        words="show the text to trust, and its difference from the trusted text",
        takes=(NAME,),
        gives=TRUST_SHOWN,
    ),
    Route(
        "POST",
        "/trust/accept",
        "owner",
        words="trust the text that was shown",
        takes=(NAME, Argument("digest", help="The digest of the text that was shown.")),
        gives=TRUSTED,
    ),
    Route(
        "POST",
        "/trust/follow",
        "owner",
        words="trust all edits in a project's folder, or pin it",
        takes=(
            Argument("folder", "folder"),
            Argument("is_followed", "flag", default=True, is_required=False, help="False: pin the folder."),
        ),
        gives=TRUSTED,
    ),
)
PROJECTS = (
    Route(
        "POST",
        "/trust/attach",
        "owner",
        words="attach a project; without digest, only show it",
        takes=(
            Argument("folder", "folder"),
            Argument("project", is_required=False, help="The prefix of its sessions' names."),
            Argument("digest", is_required=False, help="The digest of the text that was shown."),
        ),
        gives=ATTACHED,
    ),
    Route(
        "POST",
        "/trust/detach",
        "owner",
        words="detach a project",
        takes=(Argument("project"),),
        gives=TRUSTED,
    ),
)

VERBS = (
    Verb(
        name="check",
        section="Specs",
        words="check specs without a daemon",
        help=(
            "Check specs as the daemon would, and print each problem with file:line:column. Without a file: check the "
            "whole folder. Exit 1 on a problem."
        ),
        examples=(
            "wakeful check                   # the whole folder",
            "wakeful check sessions.d/payroll.yaml",
        ),
        arguments=(
            Argument("files", metavar="[FILE|DIR]...", is_repeated=True, completion="file", only="terminal"),
            Argument(
                "specs",
                option="--specs",
                help="The folder to check if no file is named.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
        ),
        cli_module="verbs.specs",
    ),
    Verb(
        name="schema",
        section="Specs",
        words="print the JSON Schema of specs, for editors",
        help="Print the JSON Schema of the file of a session, an agent or the daemon, for editors.",
        examples=(
            "wakeful schema > wakeful.schema.json",
            "wakeful schema daemon",
        ),
        arguments=(
            Argument("kind", "choice", default="session", choices=("session", "agent", "daemon"), only="terminal"),
        ),
        cli_module="verbs.specs",
    ),
    Verb(
        name="new",
        section="Specs",
        words="write a commented, valid spec",
        help="Write a commented spec that passes `check`. Without options, it asks for them on a terminal.",
        examples=(
            "wakeful new words --file 'notes/*.md' --command 'wc -w notes/a.md'",
            "wakeful new nightly --cron '0 2 * * *' --script 'make report'",
            "wakeful new page --agent docs --commits src/ --prompt 'Keep page.md true.'",
            "wakeful new triage --webhook github --secret gh --command 'python3 triage.py'",
            "wakeful new trial --from payroll",
            "wakeful new trip --from trip    # the file of an open session without one",
        ),
        arguments=(
            Argument("name", only="terminal"),
            Argument(
                "files",
                option="--file",
                help="Wake if files that match change. May be repeated.",
                metavar="PATTERN",
                is_repeated=True,
                only="terminal",
            ),
            Argument(
                "commits",
                option="--commits",
                help="Wake on commits that touch this path.",
                metavar="PATH",
                only="terminal",
            ),
            Argument(
                "branch",
                option="--branch",
                help="The branch of --commits. Default: the one checked out.",
                only="terminal",
            ),
            Argument(
                "cron",
                option="--cron",
                help='Wake at these times, such as "0 6 * * *".',
                metavar="EXPRESSION",
                only="terminal",
            ),
            Argument(
                "every",
                option="--every",
                help="Wake at this interval, such as 30m.",
                metavar="DURATION",
                only="terminal",
            ),
            Argument(
                "webhook",
                "choice",
                "--webhook",
                help="Wake on a delivery of this sender.",
                choices=("standard", "github", "gitlab", "stripe", "slack"),
                metavar="SENDER",
                only="terminal",
            ),
            Argument(
                "secret",
                option="--secret",
                help="The name of the secret that signs deliveries to --webhook, or `none`.",
                metavar="NAME",
                completion="secret",
                only="terminal",
            ),
            Argument(
                "writes",
                option="--writes",
                help="Files it writes. May be repeated.",
                metavar="PATTERN",
                is_repeated=True,
                only="terminal",
            ),
            Argument(
                "command",
                option="--command",
                help="The program and its arguments. A line that needs a shell becomes a script.",
                metavar="WORDS",
                only="terminal",
            ),
            Argument(
                "script",
                option="--script",
                help="A script for sh -eu, instead of a command.",
                metavar="TEXT",
                only="terminal",
            ),
            Argument(
                "prompt",
                option="--prompt",
                help="The prompt for --agent, instead of a command.",
                metavar="TEXT",
                only="terminal",
            ),
            Argument(
                "objective",
                option="--objective",
                help="The objective, in one sentence.",
                metavar="TEXT",
                only="terminal",
            ),
            Argument("agent", option="--agent", help="The agent of the session.", metavar="NAME", only="terminal"),
            Argument(
                "priority",
                "number",
                "--priority",
                help="0 to 100; higher runs first.",
                least=0,
                most=100,
                only="terminal",
            ),
            Argument(
                "origin",
                option="--from",
                help="Copy the spec, facts and hand-off of this session.",
                metavar="SESSION",
                completion="session",
                only="terminal",
            ),
            Argument(
                "specs",
                option="--specs",
                help="The folder to write to.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
        ),
        cli_module="verbs.specs",
        routes=(
            reads("/sessions/{name}/spec", "path")._replace(
                words="return the text of a spec that has no file",
                takes=(NAME,),
                gives=(
                    Field("name", "text", "the session's name"),
                    Field("id", "text", "its id"),
                    Field("is_filed", "flag", "does a file declare it?"),
                    Field("text", "text", "the text of its spec; null: a file declares it"),
                ),
            ),
        ),
        not_a_tool="it writes a file: wakeful_show shows the spec of a session",
    ),
    Verb(
        name="trace",
        section="Specs",
        words="run once under strace; print what was denied and how to allow it",
        help="""Run a session once under strace, list what it was denied, and print the lines of a spec that would
        allow it.

        The run is a normal one: it is recorded, does its work and counts in budgets. Review the lines before you
        paste them, because a compromised program asks for access, too. Exit code 0: the run succeeded. 1: it did
        not.""",
        examples=(
            "wakeful trace report",
            "wakeful trace report --observe     # to its end, with nothing denied",
            "wakeful trace report --run 7       # the trace of an earlier run",
        ),
        arguments=(
            NAME,
            Argument(
                "observe",
                "flag",
                "--observe",
                help="Deny nothing, so that one trace is complete. Needs allow_unisolated in wakeful.yaml.",
            ),
            Argument(
                "run",
                "number",
                "--run",
                help="Show the recorded trace of this run; start no run.",
                metavar="N",
                least=1,
                completion="run",
                only="terminal",
            ),
        ),
        cli_module="verbs.trace",
        is_repeatable=True,
        routes=(
            calls("trace", "admin"),
            reads("/sessions/{name}/trace", "path")._replace(
                words="return what the latest traced run was denied",
                takes=(NAME, Argument("run", "number", least=1, is_required=False)),
                gives=TRACE,
            ),
        ),
        role="maintainer",
        answer=(*ANSWER, *HELD),
    ),
    Verb(
        name="secret",
        section="Specs",
        words="list, set and remove secrets; values are never shown",
        help="""List, set or remove secrets.

        A session names its secrets under `secrets`. A run gets each one as a file, whose path is in
        WAKEFUL_SECRET_<NAME>. `set` reads the value from standard input, or asks for it. The value is never an
        argument, which other users could see and the shell would save. A new value is used from the next run on.""",
        examples=(
            "wakeful secret list",
            "wakeful secret set gh-token                  # asks for the value, hidden",
            "pass show github | wakeful secret set gh-token",
            "wakeful secret remove gh-token",
        ),
        arguments=(
            Argument("what", "choice", choices=("list", "set", "remove"), only="terminal"),
            Argument("name", is_required=False, completion="secret"),
            Argument("rest", metavar="", is_repeated=True, only="terminal"),
        ),
        cli_module="verbs.secret",
        routes=(
            Route(
                "GET",
                "/secrets",
                "admin",
                words="list the names of secrets, and the sessions that need them",
                takes=(),
                gives=(
                    Field("folder", "text", "the folder of secrets that are files"),
                    Field("secrets", "list", "name, source, problem and sessions of each; never a value"),
                ),
            ),
        ),
        not_a_tool="secrets are for people",
    ),
    Verb(
        name="webhook",
        section="Specs",
        words="list webhook addresses, or deliver a payload by hand",
        help="""List the webhooks of all sessions, or deliver a file to one by hand.

        `list` prints the address to give to a sender, and the number of deliveries that were accepted, filtered,
        duplicate and refused. `test` signs FILE (`-`: standard input) as the sender would, with the daemon's secret,
        and processes it like any delivery: signature, filter, log, wake.""",
        examples=(
            "wakeful webhook list",
            "wakeful webhook test triage issue.json --event issues",
            "wakeful webhook test deploy push.json --binding github",
        ),
        arguments=(
            Argument("what", "choice", choices=("list", "test"), default="list", only="terminal"),
            Argument("name", is_required=False, completion="session", only="terminal"),
            Argument("file", metavar="FILE", is_required=False, completion="file", only="terminal"),
            Argument(
                "binding",
                option="--binding",
                help="The webhook binding. Required if the session has several.",
                metavar="NAME",
                only="terminal",
            ),
            Argument(
                "event",
                option="--event",
                help="The type that the sender would give in a header, such as push.",
                metavar="NAME",
                only="terminal",
            ),
            Argument(
                "delivery",
                option="--id",
                help="The id of the delivery. A repeated id is a duplicate.",
                metavar="ID",
                only="terminal",
            ),
        ),
        cli_module="verbs.webhooks",
        routes=(*WEBHOOKS,),
    ),
    Verb(
        name="trust",
        section="Specs",
        words="review changed specs in pinned folders, and trust them",
        help=(
            "Review a changed spec in a pinned folder, and trust its present text. With DIR: follow a project, so that "
            "all edits in its folder are trusted."
        ),
        examples=(
            "wakeful trust                       # folders, and specs that wait",
            "wakeful trust shop/payroll          # show the difference, and ask",
            "wakeful trust ~/src/shop            # trust all edits in this project",
        ),
        arguments=(
            Argument("what", metavar="[NAME|DIR]", is_required=False, completion="session", only="terminal"),
            Argument(
                "is_sure",
                "flag",
                "--yes",
                help="Print the text and trust it without asking.",
                only="terminal",
            ),
            Argument("is_all", "flag", "--all", help="Review every spec that waits, in turn.", only="terminal"),
            Argument(
                "is_pinned",
                "flag",
                "--pin",
                help="With DIR: pin the project. Its changed specs wait for `wakeful trust` again.",
                only="terminal",
            ),
        ),
        cli_module="verbs.trust",
        routes=(*TRUST,),
        not_a_tool="a person decides which specs are trusted",
    ),
    Verb(
        name="add",
        section="Specs",
        words="attach a project that has its own sessions.d",
        help=(
            "Attach a project that has its own sessions.d/. Its specs are pinned: a changed spec waits for "
            "`wakeful trust NAME`."
        ),
        examples=(
            "wakeful add ~/src/shop              # its sessions are shop/NAME",
            "wakeful add ~/src/shop --as eshop --yes",
            "wakeful add --remove shop",
        ),
        arguments=(
            Argument("folder", metavar="[DIR]", is_required=False, completion="folder", only="terminal"),
            Argument(
                "project",
                option="--as",
                help="The prefix of its sessions' names. Default: the name of the folder.",
                metavar="PROJECT",
                only="terminal",
            ),
            Argument(
                "is_sure",
                "flag",
                "--yes",
                help="Print its sessions and attach it without asking.",
                only="terminal",
            ),
            Argument(
                "remove",
                option="--remove",
                help="Detach a project. Its sessions keep their records.",
                metavar="PROJECT",
                only="terminal",
            ),
        ),
        cli_module="verbs.trust",
        routes=(*PROJECTS,),
        undo="add --remove",
        not_a_tool="a person decides which folders are trusted",
    ),
)
