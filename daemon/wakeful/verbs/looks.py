"""The verbs that show sessions and change nothing: lists, records, output, causes, differences.

The verbs that search, sum up or draw all sessions are in `overviews`.
"""

from __future__ import annotations

from wakeful.verbs.answer_fields import CONTEXT, FACT, FOLLOWED, LIVE, NAMED_RECORD, RECORD, ROW, SESSION, WHY
from wakeful.verbs.verb import NAME, Argument, Field, Verb, reads

# Two routes are shared: `log` and `history` use RECORDS, `facts` and `recall` use FACTS.
RECORDS = reads("/sessions/{name}/log", "path", is_for_runs=True)
FACTS = reads("/sessions/{name}/facts", "path", is_for_runs=True)

# The arguments of a paged list.
PAGES = (
    Argument("limit", "number", help="The maximum number of items on a page.", least=1, most=10_000, only="http"),
    Argument("cursor", help="The header Wakeful-Cursor of the previous page.", only="http"),
)
# The two ends of a time range.
BOUNDS = (
    Argument(
        "since",
        option="--since",
        help="Begin at this time: RFC 3339, such as 2026-01-31T06:00:00Z, or an age, such as 2h.",
        metavar="TIME",
    ),
    Argument("until", option="--until", help="End at this time: RFC 3339 or an age.", metavar="TIME"),
)
# The options by which `log` and `history` select records. A record must match all of them.
RECORD_FILTERS = (
    Argument("from", "number", "--from", help="The first seq shown.", metavar="SEQ", least=1),
    Argument("to", "number", "--to", help="The last seq shown.", metavar="SEQ", least=1),
    *BOUNDS,
    Argument("kind", option="--kind", help="Only this kind, such as run_finished. May be repeated.", is_repeated=True),
    Argument("run", "number", "--run", help="Only records of this run.", metavar="N", least=1, completion="run"),
    Argument("author", option="--author", help="Only records by this author, such as person:root."),
    Argument(
        "outcome",
        "choice",
        "--outcome",
        help="Only the ends of runs with this outcome.",
        choices=("succeeded", "failed", "cancelled", "interrupted", "lost"),
    ),
    Argument(
        "text",
        option="--text",
        help="Only records that contain this text. Case and accents are ignored.",
        metavar="TEXT",
    ),
    Argument("states", "flag", "--state-hash", help="Also print the hash of the state after each record."),
)

VERBS = (
    Verb(
        name="list",
        section="Look",
        words="list all sessions, one per line",
        help="""List all sessions: state, last run, why a wake waits, and when a session continues by itself.

        NAME selects sessions, all sessions of a template (ticket@), or all that match a pattern. Terminated and
        undeclared sessions are listed only on request (--all, --state, NAME); --json lists all.""",
        examples=(
            "wakeful list",
            "wakeful list ticket@            # every session of a template",
            "wakeful list 'ticket@4*'        # every session that matches",
            "wakeful list --state terminated",
        ),
        arguments=(
            Argument("names", metavar="[NAME]...", is_repeated=True, completion="sessions", only="terminal"),
            Argument(
                "is_all",
                "flag",
                "--all",
                help="Also terminated and undeclared sessions, and each session of a template on its own line.",
                only="terminal",
            ),
            Argument(
                "state",
                "choice",
                "--state",
                help="Only sessions in this state.",
                choices=("suspended", "running", "sleeping", "terminated", "archived", "undeclared"),
            ),
            Argument("has_failed", "flag", "--failed", help="Only sessions whose last run failed.", only="terminal"),
            Argument("is_asking", "flag", "--asks", help="Only sessions that wait for an answer.", only="terminal"),
            Argument("present", "flag", help="Add the field `present`: the people in each session.", only="http"),
            Argument("failed", "flag", help="Only sessions whose last run failed.", only="http"),
            Argument("asks", "flag", help="Only sessions that wait for an answer.", only="http"),
            Argument("tag", is_repeated=True, help="Only sessions with this tag.", only="http"),
            Argument("folder", help="Only sessions in this folder and below it.", only="http"),
            Argument(
                "text", help="Only sessions with this text in name, objective, tags, agent or command.", only="http"
            ),
            *PAGES,
        ),
        cli_module="session_table",
        routes=(reads("/sessions", is_filtered=True, is_from_log=False),),
        answer=ROW,
        shape="list",
    ),
    Verb(
        name="top",
        section="Look",
        words="show running and owed sessions live, with CPU and memory",
        help="Show running and owed sessions live: state, CPU, memory, runs. Press q or Ctrl-C to exit.",
        examples=(
            "wakeful top",
            "wakeful top --sort cpu --every 1s",
            "wakeful top --once",
        ),
        arguments=(
            Argument(
                "is_once",
                "flag",
                "--once",
                help="Print once and exit (default without a terminal).",
                only="terminal",
            ),
            Argument(
                "every",
                option="--every",
                help="Refresh interval. Default: 2s.",
                metavar="DURATION",
                default="2s",
                only="terminal",
            ),
            Argument(
                "order",
                "choice",
                "--sort",
                help="Sort key. `state` puts running sessions first. Default: state.",
                default="state",
                choices=("state", "cpu", "memory", "runs", "name"),
                only="terminal",
            ),
        ),
        cli_module="verbs.top",
        routes=(reads("/top", is_filtered=True, is_from_log=False),),
        answer=(
            Field("at", "moment", "the time of this answer"),
            Field("version", "text", "the daemon's version"),
            Field("started_at", "moment", "when the daemon started"),
            Field("daemon", "object", "the daemon's pid, CPU and memory"),
            Field("slots", "object", "how many runs may run at once, and how many run now"),
            Field("runs", "object", "CPU and memory of each run under way, by session id"),
            Field("sessions", "list", "the rows of `list`"),
        ),
    ),
    Verb(
        name="show",
        section="Look",
        words="show everything about a session, now or at an earlier position",
        help="Show a session: state, hold, bindings with their versions, upstream and readers, runs, facts, hand-off.",
        examples=(
            "wakeful show payroll",
            "wakeful show payroll --at 2h    # as it was two hours ago",
            "wakeful show payroll --at march # at a checkpoint",
        ),
        arguments=(
            NAME,
            Argument(
                "at",
                option="--at",
                help="An earlier position: a seq, a time (RFC 3339, or 2h for two hours ago) or a checkpoint.",
                metavar="POSITION",
                completion="position",
            ),
        ),
        cli_module="verbs.show",
        answer=SESSION,
        routes=(reads("/sessions/{name}", "path"),),
    ),
    Verb(
        name="log",
        section="Look",
        words="print a session's records",
        help="Print a session's records, oldest first.",
        examples=(
            "wakeful log payroll --last 20",
            "wakeful log payroll --outcome failed --since 1d",
            "wakeful log payroll --text 'tax office'",
            "wakeful log payroll --follow",
        ),
        arguments=(
            NAME,
            *RECORD_FILTERS,
            Argument("last", "number", "--last", help="Only the newest N (maximum 10000).", metavar="N", least=1),
            Argument(
                "past",
                "flag",
                "--past",
                help="First print the records that a fork or load inherited. `--at ~SEQ` names one of these.",
            ),
            Argument("is_following", "flag", "--follow", help="Keep printing new records.", only="terminal"),
            Argument("words", "flag", help="Add `words`: each record as a line of text.", only="http"),
            *PAGES,
        ),
        cli_module="verbs.log",
        routes=(RECORDS,),
        answer=RECORD,
        shape="lines",
    ),
    Verb(
        name="history",
        section="Look",
        words="print a session's latest records",
        help="Print a session's latest records. Inside a run, NAME defaults to the run's own session.",
        examples=(
            "wakeful history payroll --last 5",
            "wakeful history payroll --outcome failed",
            "wakeful history --text rates   # inside a run",
        ),
        arguments=(
            Argument("name", is_required=False, completion="session"),
            *RECORD_FILTERS,
            Argument(
                "last",
                "number",
                "--last",
                help="How many records (maximum 10000). Default: 20.",
                metavar="N",
                default=20,
                least=1,
            ),
        ),
        cli_module="verbs.log",
        routes=(RECORDS,),
        answer=RECORD,
        shape="lines",
    ),
    Verb(
        name="follow",
        section="Look",
        words="print records and agents' words as they come",
        help="""Print records as they are made, with their authors: wakes, runs, calls. Press Ctrl-C to exit.

        The words of agents are shown as they come, with their thoughts and tool calls. If they come too fast, some
        are skipped; the record at the end of the turn has the whole text.

        NAME selects sessions, all sessions of a template (ticket@), or all that match a pattern, also future ones.
        With --kind, --author or --failed, the words of agents are not shown.""",
        examples=(
            "wakeful follow                  # all sessions",
            "wakeful follow payroll filing",
            "wakeful follow 'ticket@*' --failed",
            "wakeful follow --kind run_finished --since 2h",
        ),
        arguments=(
            Argument("name", metavar="[NAME]...", is_repeated=True, completion="sessions"),
            Argument(
                "match",
                is_repeated=True,
                is_required=False,
                help="A template such as ticket@, or a pattern such as hr/*.",
                only="http",
            ),
            Argument("tag", option="--tag", help="Only sessions with this tag. May be repeated.", is_repeated=True),
            Argument(
                "kind", option="--kind", help="Only this kind, such as run_finished. May be repeated.", is_repeated=True
            ),
            Argument("author", option="--author", help="Only records by this author, such as person:root."),
            Argument(
                "failed",
                "flag",
                "--failed",
                help="Only runs that failed or were lost, and the holds that follow.",
            ),
            Argument(
                "since",
                option="--since",
                help="Begin with the records since this time (RFC 3339, or an age such as 2h), then follow.",
                metavar="TIME",
            ),
            Argument(
                "with_thoughts",
                "flag",
                "--thinking/--no-thinking",
                help="Show the thoughts of agents, dimmed.",
                default=True,
                only="terminal",
            ),
            Argument(
                "with_words",
                "flag",
                "--words",
                help="With --json: also print the words of agents as they come, as lines with `live`.",
                only="terminal",
            ),
            Argument("after", "number", help="Continue after this log position.", is_required=False, only="http"),
            Argument("words", "flag", help="Add `words`: each record as a line of text.", only="http"),
            Argument("live", "flag", help="Also send the words of agents as they come.", only="http"),
        ),
        cli_module="verbs.log",
        answer=(*NAMED_RECORD, *FOLLOWED),
        shape="lines",
        routes=(reads("/follow", "query", is_filtered=True, is_from_log=False),),
        not_a_tool="a stream without an end: subscribe to a resource instead",
    ),
    Verb(
        name="live",
        section=None,
        words="stream the data of a dashboard",
        help="""Stream a snapshot of all sessions, then every change: records in brief, rows, words of agents.

        The stream consists of server-sent events. `after` continues from a log position or a stream id. If that id is
        no longer known, a snapshot comes first.""",
        arguments=(
            Argument("name", is_repeated=True, is_required=False, help="Only these sessions.", only="http"),
            Argument("after", help="Continue after this position or stream id.", is_required=False, only="http"),
        ),
        answer=LIVE,
        shape="events",
        routes=(reads("/live", "query", is_filtered=True, is_from_log=False),),
        not_a_tool="a stream without an end: subscribe to a resource instead",
    ),
    Verb(
        name="output",
        section="Look",
        words="print the output of a run",
        help="""Print the standard output and standard error of a run.

        Terminal escapes are made visible, also in a pipe or a file; --raw prints the original bytes. --find prints
        only the lines that contain a text, as `12:line`. Line numbers count the printed lines; a middle that
        was not kept counts as one line. --find prints up to 1,000 lines and counts the rest. If a confined run
        failed, standard error lists what it was denied and the spec line that allows it. Without a daemon, the
        state folder is read, and standard error names it.""",
        examples=(
            "wakeful output payroll          # the present or last run",
            "wakeful output payroll --run 3 --raw > run3.log",
            "wakeful output payroll --find 'tax rate'   # lines with their numbers",
            "wakeful output payroll --state .wakeful   # without a daemon",
        ),
        arguments=(
            NAME,
            Argument(
                "run",
                "number",
                "--run",
                help="The run. Default: the present or last one.",
                metavar="N",
                least=1,
                completion="run",
            ),
            Argument("follow", "flag", "--follow", help="Keep printing until the present run ends."),
            Argument(
                "find",
                option="--find",
                help="Only lines that contain this text, with numbers. Case and colours are ignored.",
                metavar="TEXT",
            ),
            Argument(
                "is_raw", "flag", "--raw", help="Print the original bytes, with terminal escapes.", only="terminal"
            ),
            Argument(
                "state",
                option="--state",
                help="Read this state folder instead of asking a daemon.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
        ),
        cli_module="verbs.output",
        shape="bytes",
        routes=(reads("/sessions/{name}/output", "path"),),
    ),
    Verb(
        name="facts",
        section="Look",
        words="list a session's facts",
        help="List a session's facts, with the author and reason of each. Inside a run, omit NAME.",
        examples=("wakeful facts payroll",),
        arguments=(
            Argument("name", only="http"),
            Argument("words", metavar="[NAME]", is_repeated=True, completion="session", only="terminal"),
        ),
        cli_module="verbs.memory",
        routes=(FACTS,),
        answer=FACT,
        shape="list",
    ),
    Verb(
        name="recall",
        section="Look",
        words="print one fact, or all facts",
        help="Print the value of one fact, or all facts. Inside a run: recall [KEY]; outside: recall NAME [KEY].",
        examples=(
            "wakeful recall payroll currency",
            "wakeful recall currency         # inside a run",
        ),
        arguments=(
            Argument("name", only="http"),
            Argument("words", metavar="[NAME] [KEY]", is_repeated=True, completion="named key", only="terminal"),
        ),
        cli_module="verbs.memory",
        routes=(FACTS,),
        answer=FACT,
        shape="list",
    ),
    Verb(
        name="why",
        section="Look",
        words="explain why a session ran or did not, or which run wrote a file",
        help="""Explain a session: why it ran last, or why it does not run. Explain a run: the chain of causes that led
        to it, across sessions. Explain a path: which run wrote it, why, and which sessions read it.""",
        examples=(
            "wakeful why payroll             # why it ran, or does not",
            "wakeful why payroll#3           # the causes of run 3",
            "wakeful why out/payroll.csv     # its writer and readers",
        ),
        arguments=(
            Argument("x", metavar="SESSION|SESSION#RUN|PATH", completion="session or path"),
            Argument("run", "number", "--run", help="A run of SESSION; same as SESSION#N.", metavar="N", least=1),
            Argument("path", "file", help="The absolute form of `x`, if `x` may be a path.", only="http"),
        ),
        cli_module="verbs.why",
        answer=WHY,
        routes=(reads("/why", is_filtered=True),),
    ),
    Verb(
        name="context",
        section="Look",
        words="show what a session's model would see, with tokens per part",
        help="""Show what the session's model would see if it ran now: the instructions, the conversation so far, and
        the opening text of the run.

        Nothing is recorded and nothing runs. Token counts are estimates. With --json, the text is exact.""",
        examples=(
            "wakeful context api-docs",
            "wakeful context api-docs --for-agent security --json",
        ),
        arguments=(
            NAME,
            Argument(
                "agent", option="--for-agent", help="Show what this agent would see if it were asked.", metavar="AGENT"
            ),
            Argument("brief", "flag", "--brief", help="Print only the parts and their tokens.", only="terminal"),
        ),
        cli_module="verbs.context",
        answer=CONTEXT,
        routes=(reads("/sessions/{name}/context", "path"),),
    ),
    Verb(
        name="plan",
        section="Look",
        words="list sessions that would wake if paths changed, or are owed a run",
        help=(
            "List the sessions that would wake if these paths changed, in the order of the graph. Without a path: the "
            "sessions that are owed a run or queued now."
        ),
        examples=(
            "wakeful plan                    # sessions owed a run now",
            "wakeful plan salaries.csv       # sessions that a change would wake",
        ),
        arguments=(Argument("path", "file", metavar="[PATH]...", is_repeated=True, completion="file"),),
        cli_module="verbs.why",
        routes=(reads("/plan", is_filtered=True, is_from_log=False),),
        answer=(
            Field("now", "list", "without a path: the sessions owed, queued and running", is_optional=True),
            Field("slots", "object", "without a path: how many runs may run at once", is_optional=True),
            Field("paths", "list", "the given paths", is_optional=True),
            Field("waves", "list", "the sessions that would wake, in order", is_optional=True),
            Field("unmatched", "list", "the paths that wake no session", is_optional=True),
            Field("default_excludes", "list", "patterns that are ignored unless a binding names them"),
        ),
    ),
    Verb(
        name="diff",
        section="Look",
        words="compare two positions of a session, or two sessions",
        help="""Compare two positions of a session, or two sessions.

        A position is a seq, a time (RFC 3339, or 2h for two hours ago) or a checkpoint. NAME without a position is
        the session as it is now: `wakeful diff payroll@12 payroll`.""",
        examples=(
            "wakeful diff payroll@12 payroll # since seq 12",
            "wakeful diff payroll@2h payroll --contents",
            "wakeful diff payroll payroll-fork",
        ),
        arguments=(
            Argument("a", metavar="NAME[@POSITION]", completion="side"),
            Argument("b", metavar="NAME[@POSITION]", completion="side"),
            Argument(
                "contents",
                "flag",
                "--contents",
                help="Also compare the files line by line, if their contents were kept.",
            ),
        ),
        cli_module="verbs.diff",
        routes=(reads("/diff", is_filtered=True),),
        answer=(
            Field("a", "object", "the first side: name, seq and at"),
            Field("b", "object", "the second side: name, seq and at"),
            Field("session", "list", "properties of the session that differ"),
            Field("facts", "list", "facts that differ"),
            Field("memory", "list", "keys of the conversation's memory that differ"),
            Field("todo", "list", "items of the to-do list that differ"),
            Field("handoff", "object", "both hand-offs if they differ, or null"),
            Field("spec", "list", "keys of the spec that differ"),
            Field("bindings", "list", "bindings whose seen versions differ"),
            Field("files", "list", "files that runs wrote in between"),
            Field("contents", "list", "with contents: the changes of each file", is_optional=True),
        ),
    ),
)
