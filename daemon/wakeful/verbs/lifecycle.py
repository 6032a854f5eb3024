"""The calls that move a session through its life: it runs, is held, is stopped, is closed, is named."""

from __future__ import annotations

from wakeful.verbs.verb import ANSWER, HELD, KEY, NAME, Argument, Field, Verb, calls, reads

QUESTION = reads("/sessions/{name}/question", "path")._replace(
    words="the question that waits for a person, and what changed since the last success",
    takes=(NAME,),
    gives=(
        Field("session", "text", "the session's name"),
        Field("asks", "text", "question, permission or run; null: nothing is asked"),
        Field("words", "text", "the question, or null"),
        Field("until", "moment", "when it is denied by itself, or null"),
        Field("causes", "list", "of a run: what would wake it"),
        Field("changes", "list", "of a run: what changed, with the difference"),
        Field("call", "object", "of a permission: the call of a tool, or null"),
        Field("last_answer", "object", "who answered last, and why, or null"),
    ),
)

VERBS = (
    Verb(
        name="activate",
        section="Act",
        words="run now, whatever is owed",
        help="Run a session now, whatever is owed: past settle, pace and holds, not past slots.",
        examples=(
            "wakeful activate payroll",
            "wakeful activate payroll --note 'month end' --wait",
            "wakeful activate ticket@        # every session of a template",
            "wakeful activate 'hr/*'         # those that a pattern matches",
        ),
        arguments=(
            Argument("name", completion="sessions"),
            Argument("note", option="--note", help="Why, for the record and for the run.", metavar="TEXT"),
            Argument("fresh", "flag", "--fresh", help="Start without the present conversation."),
            Argument(
                "is_waiting",
                "flag",
                "--wait",
                help="Follow the run to its end; exit 1 if it did not succeed.",
                only="terminal",
            ),
            KEY,
        ),
        routes=(calls("activate", "run"),),
        role="contributor",
        is_repeatable=True,
        answer=(*ANSWER, *HELD),
    ),
    Verb(
        name="resume",
        section="Act",
        words="lift a hold; runs only if something is owed",
        help="Lift a hold; the session runs only if something is owed. --all releases the brake.",
        examples=(
            "wakeful resume payroll",
            "wakeful resume 'ticket@*'     # those that a pattern matches",
            "wakeful resume --all          # after wakeful sleep --all",
        ),
        arguments=(
            Argument("name", completion="sessions", on_terminal="optional"),
            Argument("is_all", "flag", "--all", help="Every session, those declared later included.", only="terminal"),
            KEY,
        ),
        routes=(calls("resume", "run"),),
        undo="sleep",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="suspend",
        section="Act",
        words="start nothing more of this run; its causes are parked",
        help="Start nothing more of this run: a command may end. Its causes are parked.",
        examples=("wakeful suspend payroll",),
        arguments=(
            Argument("name", completion="sessions"),
            KEY,
        ),
        routes=(calls("suspend", "run"),),
        undo="activate",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="sleep",
        section="Act",
        words="hold until a time, or until resumed",
        help="""Hold a session until a time, or until it is resumed. Changes are remembered, none is lost.

        --all is the brake: every session sleeps, runs under way are stopped (and owed again), until `resume --all`
        releases it.""",
        examples=(
            "wakeful sleep payroll --for 2h --reason 'server move'",
            "wakeful sleep payroll --until 2026-01-31T06:00:00Z",
            "wakeful sleep --all --reason 'the bill is too high'",
        ),
        arguments=(
            Argument("name", completion="sessions", on_terminal="optional"),
            Argument("is_all", "flag", "--all", help="Every session, those declared later included.", only="terminal"),
            Argument("seconds", "duration", "--for", help="Such as 30s, 5m, 2h, 7d.", metavar="DURATION"),
            Argument("until", "moment", "--until", help="RFC 3339, such as 2026-01-31T06:00:00Z.", metavar="TIME"),
            Argument("words", option="--reason", help="The words `list` shows.", metavar="TEXT"),
            KEY,
        ),
        routes=(calls("sleep", "run"),),
        undo="resume",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="answer",
        section="Act",
        words="answer what a session asks",
        help="""Answer what a session asks: whether it may run (`approve: before_run`), or what its agent wants to know.

        Without TEXT: show the question, and what changed since the last success, or what the agent would write. The
        first answer counts; whoever comes later is told who was first.""",
        examples=(
            "wakeful answer payroll                      # the question, and the diff",
            "wakeful answer payroll yes",
            "wakeful answer payroll no --because 'the rates are old'",
            "wakeful answer api-docs 'the new scheme, from May on'",
        ),
        arguments=(
            NAME,
            Argument("text", on_terminal="optional"),
            Argument(
                "rationale",
                option="--because --why",
                help="Why, for the record, and for the agent that asked.",
                metavar="TEXT",
            ),
            KEY,
        ),
        routes=(calls("answer", "admin"), QUESTION),
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="interrupt",
        section="Act",
        words="stop the present step now; its causes are parked",
        help="Stop the present step now and keep its progress. Its causes are parked.",
        examples=("wakeful interrupt payroll       # wakeful activate goes on",),
        arguments=(
            Argument("name", completion="sessions"),
            KEY,
        ),
        routes=(calls("interrupt", "run"),),
        undo="activate",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="cancel",
        section="Act",
        words="abandon the run; its causes count as seen",
        help="Abandon the run, or the queued wake; its causes count as seen.",
        examples=("wakeful cancel payroll",),
        arguments=(
            Argument("name", completion="sessions"),
            KEY,
        ),
        routes=(calls("cancel", "run"),),
        undo="activate",
        role="contributor",
        is_repeatable=True,
        is_dangerous=True,
        answer=ANSWER,
    ),
    Verb(
        name="terminate",
        section="Act",
        words="close a session for good",
        help="""Close a session for good. Its record is kept; `open --again` reopens it.

        A template (ticket@) or a pattern closes all it means, undeclared ones included; it asks first if that is
        more than one.""",
        examples=(
            "wakeful terminate payroll --reason 'the year is closed'",
            "wakeful terminate 'ticket@*' --yes",
        ),
        arguments=(
            Argument("name", completion="sessions"),
            Argument("reason", option="--reason", help="Why, for the record.", metavar="TEXT"),
            Argument("is_sure", "flag", "--yes", help="Close several sessions without asking.", only="terminal"),
            KEY,
        ),
        routes=(calls("terminate", "admin"),),
        undo="open --again",
        role="maintainer",
        is_repeatable=True,
        is_dangerous=True,
        answer=ANSWER,
    ),
    Verb(
        name="open",
        section="Act",
        words="open a session without a file; reopen one with --again",
        help="""Open a session without a file: its spec stands in the log. Talk to it with `send`, `ask` and `talk`.

        `wakeful new NAME --from NAME` writes the file later, and the session goes on from it. With --again: reopen a
        terminated session. Only the daemon's own user opens a new one.""",
        examples=(
            "wakeful open trip --agent helper --objective 'Plan the trip.'",
            "wakeful open reading --agent helper --file 'papers/*.md'",
            "wakeful open payroll --again",
        ),
        arguments=(
            NAME,
            Argument("again", "flag", "--again", help="Reopen a terminated session with its history."),
            Argument("agent", option="--agent", help="Who answers there.", metavar="NAME"),
            Argument("objective", option="--objective", help="One sentence.", metavar="TEXT"),
            Argument(
                "root",
                "folder",
                "--root",
                help="Where its paths begin. Default: the folder you are in.",
                metavar="DIR",
                completion="folder",
            ),
            Argument(
                "files",
                option="--file",
                help="It reads files that match, and they wake it if it has a run; may be repeated.",
                metavar="PATTERN",
                is_repeated=True,
            ),
            Argument(
                "writes",
                option="--writes",
                help="What it writes; may be repeated.",
                metavar="PATTERN",
                is_repeated=True,
            ),
            Argument("every", option="--every", help="Wakes every so often, such as 30m.", metavar="DURATION"),
            Argument("cron", option="--cron", help='Wakes by the clock, such as "0 6 * * *".', metavar="EXPRESSION"),
            Argument("prompt", option="--prompt", help="What its --agent is asked when it wakes.", metavar="TEXT"),
            Argument(
                "script", option="--script", help="Several lines for sh -eu, instead of a prompt.", metavar="TEXT"
            ),
            KEY,
        ),
        routes=(calls("open", "admin"),),
        undo="terminate",
        role="maintainer",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="rename",
        section="Act",
        words="another name, the same identity and history",
        help="Give a session and its file another name; identity and history stay.",
        examples=("wakeful rename payroll hr/payroll",),
        arguments=(
            NAME,
            Argument("new"),
            KEY,
        ),
        routes=(calls("rename", "admin", None),),
        undo="rename",
        role="maintainer",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="sleep_all",
        section=None,
        words="the brake: every session sleeps, those declared later included",
        help=(
            "Hold every session until `resume_all`. Runs under way are stopped, and owed again. On the command line: "
            "sleep --all."
        ),
        arguments=(
            Argument("words", help="The words `list` shows.", only="http"),
            Argument("name", default="", only="http"),
        ),
        routes=(calls("sleep_all", "admin", None, is_machine_wide=True),),
        undo="resume_all",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="resume_all",
        section=None,
        words="release the brake",
        help="Release the brake; a session that slept before sleeps on. On the command line: resume --all.",
        arguments=(Argument("name", default="", only="http"),),
        routes=(calls("resume_all", "admin", None, is_machine_wide=True),),
        undo="sleep_all",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
)
