"""The verbs that change the state of a session: run, hold, stop, close, open and rename it."""

from __future__ import annotations

from wakeful.verbs.verb import ANSWER, HELD, KEY, NAME, Argument, Field, Verb, calls, reads

QUESTION = reads("/sessions/{name}/question", "path")._replace(
    words="return the open question, and the changes since the last success",
    takes=(NAME,),
    gives=(
        Field("session", "text", "the session's name"),
        Field("asks", "text", "question, permission or run; null: nothing is asked"),
        Field("words", "text", "the question, or null"),
        Field("until", "moment", "when it is denied automatically, or null"),
        Field("causes", "list", "of a run: its causes"),
        Field("changes", "list", "of a run: the changes since the last success, as diffs"),
        Field("call", "object", "of a permission: the tool call, or null"),
        Field("last_answer", "object", "the author and reason of the last answer, or null"),
    ),
)

VERBS = (
    Verb(
        name="activate",
        section="Act",
        words="run a session now, even if nothing is owed",
        help=(
            "Run a session now, even if nothing is owed. Settle time, pace and most holds are ignored. The run still "
            "waits for a free slot."
        ),
        examples=(
            "wakeful activate payroll",
            "wakeful activate payroll --note 'month end' --wait",
            "wakeful activate ticket@        # every session of a template",
            "wakeful activate 'hr/*'         # every session that matches",
        ),
        arguments=(
            Argument("name", completion="sessions"),
            Argument("note", option="--note", help="The reason, for the log and the run.", metavar="TEXT"),
            Argument("fresh", "flag", "--fresh", help="Start a new conversation."),
            Argument(
                "is_waiting",
                "flag",
                "--wait",
                help="Wait for the end of the run. Exit 1 if it did not succeed.",
                only="terminal",
            ),
            KEY,
        ),
        cli_module="verbs.lifecycle",
        routes=(calls("activate", "run"),),
        role="contributor",
        is_repeatable=True,
        answer=(*ANSWER, *HELD),
    ),
    Verb(
        name="resume",
        section="Act",
        words="lift a hold; the session runs only if something is owed",
        help="Lift a hold. The session runs only if something is owed. --all releases the brake.",
        examples=(
            "wakeful resume payroll",
            "wakeful resume 'ticket@*'     # every session that matches",
            "wakeful resume --all          # after wakeful sleep --all",
        ),
        arguments=(
            Argument("name", completion="sessions", on_terminal="optional"),
            Argument("is_all", "flag", "--all", help="Every session, also those declared later.", only="terminal"),
            KEY,
        ),
        cli_module="verbs.lifecycle",
        routes=(calls("resume", "run"),),
        undo="sleep",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="suspend",
        section="Act",
        words="end the run after its present step; its causes are parked",
        help="End the run after its present step; a command runs to its end. Its causes are parked.",
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
        words="hold a session until a time, or until it is resumed",
        help="""Hold a session until a time, or until it is resumed. Changes are remembered; none is lost.

        --all is the brake: every session sleeps until `resume --all`. Runs under way are stopped and owed again.""",
        examples=(
            "wakeful sleep payroll --for 2h --reason 'server move'",
            "wakeful sleep payroll --until 2026-01-31T06:00:00Z",
            "wakeful sleep --all --reason 'the bill is too high'",
        ),
        arguments=(
            Argument("name", completion="sessions", on_terminal="optional"),
            Argument("is_all", "flag", "--all", help="Every session, also those declared later.", only="terminal"),
            Argument("seconds", "duration", "--for", help="How long, such as 30s, 5m, 2h, 7d.", metavar="DURATION"),
            Argument(
                "until",
                "moment",
                "--until",
                help="The end of the hold in RFC 3339, such as 2026-01-31T06:00:00Z.",
                metavar="TIME",
            ),
            Argument("words", option="--reason", help="The reason, shown by `list`.", metavar="TEXT"),
            KEY,
        ),
        cli_module="verbs.lifecycle",
        routes=(calls("sleep", "run"),),
        undo="resume",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="answer",
        section="Act",
        words="answer a session's question",
        help="""Answer a session's question: whether it may run (`approve: before_run`), or a question of its agent.

        Without TEXT: show the question, with the changes since the last success or the text that the agent would
        write. The first answer counts; a later caller is told who answered first.""",
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
                help="The reason, for the log and for the agent that asked.",
                metavar="TEXT",
            ),
            KEY,
        ),
        cli_module="verbs.lifecycle",
        routes=(calls("answer", "admin"), QUESTION),
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
        is_for_persons=True,
    ),
    Verb(
        name="interrupt",
        section="Act",
        words="stop the run now; its causes are parked",
        help="Stop the run now and keep its progress. Its causes are parked.",
        examples=("wakeful interrupt payroll       # wakeful activate continues it",),
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
        words="abandon the run or the queued wake; its causes count as seen",
        help="Abandon the run or the queued wake. Its causes count as seen.",
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
        help="""Close a session for good. Its log is kept; `open --again` reopens it.

        A template (ticket@) or a pattern closes every session that matches, also undeclared ones. It asks first if
        there is more than one.""",
        examples=(
            "wakeful terminate payroll --reason 'the year is closed'",
            "wakeful terminate 'ticket@*' --yes",
        ),
        arguments=(
            Argument("name", completion="sessions"),
            Argument("reason", option="--reason", help="The reason, kept in the log.", metavar="TEXT"),
            Argument("is_sure", "flag", "--yes", help="Close several sessions without asking.", only="terminal"),
            KEY,
        ),
        cli_module="verbs.lifecycle",
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
        words="open a session without a file; --again reopens a terminated one",
        help="""Open a session without a file; its spec is kept in the log. Talk to it with `send`, `ask` and `talk`.

        `wakeful new NAME --from NAME` writes the file later, and the same session continues with it. With --again:
        reopen a terminated session. Only the daemon's own user can open a new session.""",
        examples=(
            "wakeful open trip --agent helper --objective 'Plan the trip.'",
            "wakeful open reading --agent helper --file 'papers/*.md'",
            "wakeful open payroll --again",
        ),
        arguments=(
            NAME,
            Argument("again", "flag", "--again", help="Reopen a terminated session with its history."),
            Argument("agent", option="--agent", help="The agent of the session.", metavar="NAME"),
            Argument("objective", option="--objective", help="The objective, in one sentence.", metavar="TEXT"),
            Argument(
                "root",
                "folder",
                "--root",
                help="The base folder of its paths. Default: the current folder.",
                metavar="DIR",
                completion="folder",
            ),
            Argument(
                "files",
                option="--file",
                help="Files it reads; a change wakes it if it has a prompt or script. May be repeated.",
                metavar="PATTERN",
                is_repeated=True,
            ),
            Argument(
                "writes",
                option="--writes",
                help="Files it writes. May be repeated.",
                metavar="PATTERN",
                is_repeated=True,
            ),
            Argument("every", option="--every", help="Wake at this interval, such as 30m.", metavar="DURATION"),
            Argument("cron", option="--cron", help='Wake at these times, such as "0 6 * * *".', metavar="EXPRESSION"),
            Argument("prompt", option="--prompt", help="The prompt for --agent at each wake.", metavar="TEXT"),
            Argument("script", option="--script", help="A script for sh -eu, instead of a prompt.", metavar="TEXT"),
            KEY,
        ),
        cli_module="verbs.lifecycle",
        routes=(calls("open", "admin"),),
        undo="terminate",
        role="maintainer",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="rename",
        section="Act",
        words="rename a session; its identity and history stay",
        help="Rename a session and its file. Its identity and history stay.",
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
        words="apply the brake: every session sleeps, also those declared later",
        help=(
            "Hold every session until `resume_all`. Runs under way are stopped and owed again. On the command line: "
            "sleep --all."
        ),
        arguments=(
            Argument("words", help="The reason, shown by `list`.", only="http"),
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
        help="Release the brake. A session that slept before keeps sleeping. On the command line: resume --all.",
        arguments=(Argument("name", default="", only="http"),),
        routes=(calls("resume_all", "admin", None, is_machine_wide=True),),
        undo="sleep_all",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
)
