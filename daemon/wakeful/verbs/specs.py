"""The verbs about specs: judge and write them, trace what a run needs, secrets, and whose specs count."""

from __future__ import annotations

from wakeful.verbs.answers import ATTACHED, DELIVERED, TRACE, TRUST_LIST, TRUST_SHOWN, TRUSTED
from wakeful.verbs.verb import ANSWER, HELD, NAME, Argument, Field, Route, Verb, calls, reads

WEBHOOKS = (
    reads("/webhooks")._replace(
        words="every webhook binding, with its address and its latest deliveries",
        takes=(),
        gives=(
            Field("webhooks", "list", "one for each binding"),
            Field("unknown_addresses", "number", "deliveries to addresses that nobody has"),
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
            Argument("binding", is_required=False, help="Which binding, where there are several."),
            Argument("event", is_required=False, help="What the sender calls it, such as push."),
            Argument("delivery", is_required=False, help="The id of the delivery."),
        ),
        gives=DELIVERED,
    ),
)
# A person says which specs count, never a token.
TRUST = (
    Route("GET", "/trust", "owner", words="folders of specs, and what waits for a person", takes=(), gives=TRUST_LIST),
    Route(
        "GET",
        "/trust/{name}",
        "owner",
        words="what would be trusted, and how it differs from what was",
        takes=(NAME,),
        gives=TRUST_SHOWN,
    ),
    Route(
        "POST",
        "/trust/accept",
        "owner",
        words="trust what was shown",
        takes=(NAME, Argument("digest", help="That of what was shown.")),
        gives=TRUSTED,
    ),
    Route(
        "POST",
        "/trust/follow",
        "owner",
        words="follow a project's folder as it is edited, or pin it",
        takes=(
            Argument("folder", "folder"),
            Argument("is_followed", "flag", default=True, is_required=False, help="False: pin it."),
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
            Argument("project", is_required=False, help="The name its sessions begin with."),
            Argument("digest", is_required=False, help="That of what was shown."),
        ),
        gives=ATTACHED,
    ),
    Route(
        "POST",
        "/trust/detach",
        "owner",
        words="let a project go",
        takes=(Argument("project"),),
        gives=TRUSTED,
    ),
)

VERBS = (
    Verb(
        name="check",
        section="Specs",
        words="judge specs without a daemon",
        help=(
            "Judge specs as the daemon would, with file:line:column. Without a file: the whole folder. Exit 1 on a "
            "problem."
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
                help="The folder to check when no file is named.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
        ),
    ),
    Verb(
        name="schema",
        section="Specs",
        words="the JSON Schema of specs, for editors",
        help="The JSON Schema of a session's, an agent's or the daemon's file, for editors.",
        examples=(
            "wakeful schema > wakeful.schema.json",
            "wakeful schema daemon",
        ),
        arguments=(
            Argument("kind", "choice", default="session", choices=("session", "agent", "daemon"), only="terminal"),
        ),
    ),
    Verb(
        name="new",
        section="Specs",
        words="write a commented spec that checks",
        help="Write a commented spec that checks. Asks, when it is given no flags and somebody is there to answer.",
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
                help="Wakes when files that match change; may be repeated.",
                metavar="PATTERN",
                is_repeated=True,
                only="terminal",
            ),
            Argument(
                "commits",
                option="--commits",
                help="Wakes on commits that touch this path.",
                metavar="PATH",
                only="terminal",
            ),
            Argument(
                "branch",
                option="--branch",
                help="The branch of --commits; the one checked out unless told.",
                only="terminal",
            ),
            Argument(
                "cron",
                option="--cron",
                help='Wakes by the clock, such as "0 6 * * *".',
                metavar="EXPRESSION",
                only="terminal",
            ),
            Argument(
                "every",
                option="--every",
                help="Wakes every so often, such as 30m.",
                metavar="DURATION",
                only="terminal",
            ),
            Argument(
                "webhook",
                "choice",
                "--webhook",
                help="Wakes when this sender delivers.",
                choices=("standard", "github", "gitlab", "stripe", "slack"),
                metavar="SENDER",
                only="terminal",
            ),
            Argument(
                "secret",
                option="--secret",
                help="The name of the secret that signs deliveries to --webhook, or none.",
                metavar="NAME",
                completion="secret",
                only="terminal",
            ),
            Argument(
                "writes",
                option="--writes",
                help="What it writes; may be repeated.",
                metavar="PATTERN",
                is_repeated=True,
                only="terminal",
            ),
            Argument(
                "command",
                option="--command",
                help="The program and its words; a line that needs a shell becomes a script.",
                metavar="WORDS",
                only="terminal",
            ),
            Argument(
                "script",
                option="--script",
                help="Several lines for sh -eu, instead of a command.",
                metavar="TEXT",
                only="terminal",
            ),
            Argument(
                "prompt",
                option="--prompt",
                help="What its --agent is asked, instead of a command.",
                metavar="TEXT",
                only="terminal",
            ),
            Argument("objective", option="--objective", help="One sentence.", metavar="TEXT", only="terminal"),
            Argument("agent", option="--agent", help="The owner.", metavar="NAME", only="terminal"),
            Argument("priority", "number", "--priority", help="Higher first.", least=0, most=100, only="terminal"),
            Argument(
                "origin",
                option="--from",
                help="Begin from another session: a copy of its spec, its facts and its hand-off.",
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
        routes=(
            reads("/sessions/{name}/spec", "path")._replace(
                words="the text of a spec that has no file",
                takes=(NAME,),
                gives=(
                    Field("name", "text", "the session's name"),
                    Field("id", "text", "its id"),
                    Field("is_filed", "flag", "does a file declare it?"),
                    Field("text", "text", "the text it was opened with; null: a file declares it"),
                ),
            ),
        ),
    ),
    Verb(
        name="trace",
        section="Specs",
        words="run once under strace: what was denied, and the lines of a spec that allow it",
        help="""Run a session once under strace, list what it was denied, and print the lines of a spec that would
        allow it.

        It is a run as any other: it is recorded, does its work and counts in budgets. Look at the lines before you
        paste them: a program that was fooled asks for things, too. Exit 0: the run succeeded; 1: it did not.""",
        examples=(
            "wakeful trace report",
            "wakeful trace report --observe     # to its end, with nothing denied",
            "wakeful trace report --run 7       # what was recorded",
        ),
        arguments=(
            NAME,
            Argument(
                "observe",
                "flag",
                "--observe",
                help="Deny nothing, so that one trace sees everything. Needs allow_unisolated in wakeful.yaml.",
            ),
            Argument(
                "run",
                "number",
                "--run",
                help="Run nothing: show what was recorded of this run.",
                metavar="N",
                least=1,
                completion="run",
                only="terminal",
            ),
        ),
        is_repeatable=True,
        routes=(
            calls("trace", "admin"),
            reads("/sessions/{name}/trace", "path")._replace(
                words="what the latest traced run was denied",
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
        words="names of secrets; set or remove one, never shown",
        help="""List secrets, set one or remove one.

        A session names those it needs under `secrets`; a run finds each as a file, whose path is in
        WAKEFUL_SECRET_<NAME>. `set` reads the value from standard input, or asks for it; it is never an argument,
        which others could see and the shell would remember. It counts from the next run on.""",
        examples=(
            "wakeful secret list",
            "wakeful secret set gh-token                  # asks for the value, unseen",
            "pass show github | wakeful secret set gh-token",
            "wakeful secret remove gh-token",
        ),
        arguments=(
            Argument("what", "choice", choices=("list", "set", "remove"), only="terminal"),
            Argument("name", is_required=False, completion="secret"),
            Argument("rest", metavar="", is_repeated=True, only="terminal"),
        ),
        routes=(
            Route(
                "GET",
                "/secrets",
                "admin",
                words="the names of secrets, and the sessions that need them",
                takes=(),
                gives=(
                    Field("folder", "text", "the folder of secrets that are files"),
                    Field("secrets", "list", "name, source, problem and sessions of each; never a value"),
                ),
            ),
        ),
    ),
    Verb(
        name="webhook",
        section="Specs",
        words="the addresses at which other programs knock, and a delivery by hand",
        help="""List the webhooks of all sessions, or deliver a file to one by hand.

        `list` shows the address that a sender is told, what was accepted, what its filter stopped, what came twice
        and what was refused. `test` signs FILE (`-`: standard input) as the sender would, with the secret that the
        daemon knows, and takes it the way that every delivery goes: signature, filter, log, wake.""",
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
                help="Which webhook of the session; needed where it has several.",
                metavar="NAME",
                only="terminal",
            ),
            Argument(
                "event",
                option="--event",
                help="What the sender calls it, such as push; where it says so in a header.",
                metavar="NAME",
                only="terminal",
            ),
            Argument(
                "delivery",
                option="--id",
                help="The id of the delivery: the same id again is a duplicate.",
                metavar="ID",
                only="terminal",
            ),
        ),
        routes=(*WEBHOOKS,),
    ),
    Verb(
        name="trust",
        section="Specs",
        words="look at specs that changed where they are pinned, and trust them",
        help=(
            "Look at a spec that changed where specs are pinned, and trust it as it stands; or name a project's folder"
            " that is to be followed."
        ),
        examples=(
            "wakeful trust                       # folders, and what waits",
            "wakeful trust shop/payroll          # the difference, and a question",
            "wakeful trust ~/src/shop            # follow this project as it is edited",
        ),
        arguments=(
            Argument("what", metavar="[NAME|DIR]", is_required=False, completion="session", only="terminal"),
            Argument(
                "is_sure",
                "flag",
                "--yes",
                help="Trust it without asking; what is trusted is printed all the same.",
                only="terminal",
            ),
            Argument("is_all", "flag", "--all", help="Everything that waits, one after the other.", only="terminal"),
            Argument(
                "is_pinned",
                "flag",
                "--pin",
                help="With DIR: what changes there waits for your word again.",
                only="terminal",
            ),
        ),
        routes=(*TRUST,),
    ),
    Verb(
        name="add",
        section="Specs",
        words="attach a project that has a sessions.d of its own",
        help=(
            "Attach a project that has a sessions.d/ of its own. Its specs are pinned: one that changes waits for "
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
                help="What its sessions begin with. Default: the name of the folder.",
                metavar="PROJECT",
                only="terminal",
            ),
            Argument(
                "is_sure",
                "flag",
                "--yes",
                help="Attach it without asking; what it brings is printed all the same.",
                only="terminal",
            ),
            Argument(
                "remove",
                option="--remove",
                help="Let a project go; its sessions keep their records.",
                metavar="PROJECT",
                only="terminal",
            ),
        ),
        routes=(*PROJECTS,),
        undo="add --remove",
    ),
)
