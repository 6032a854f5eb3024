"""The verbs that look at sessions and change nothing. Those over all sessions together are in `overviews`."""

from __future__ import annotations

from wakeful.verbs.answers import CONTEXT, FACT, FOLLOWED, LIVE, NAMED_RECORD, RECORD, ROW, SESSION, WHY
from wakeful.verbs.verb import NAME, Argument, Field, Verb, reads

# `log` and `history` are one route, `facts` and `recall` another.
RECORDS = reads("/sessions/{name}/log", "path", is_for_runs=True)
FACTS = reads("/sessions/{name}/facts", "path", is_for_runs=True)

# A page of a list.
PAGES = (
    Argument("limit", "number", help="At most so many on a page.", least=1, most=10_000, only="http"),
    Argument("cursor", help="Where the page begins: Wakeful-Cursor of the page before.", only="http"),
)
# The two ends of a time range.
BOUNDS = (
    Argument(
        "since",
        option="--since",
        help="RFC 3339, such as 2026-01-31T06:00:00Z, or how long ago, such as 2h.",
        metavar="TIME",
    ),
    Argument("until", option="--until", help="The same.", metavar="TIME"),
)
# The options by which `log` and `history` choose records; each narrows what the others leave.
RECORD_FILTERS = (
    Argument("from", "number", "--from", help="The first seq shown.", metavar="SEQ", least=1),
    Argument("to", "number", "--to", help="The last seq shown.", metavar="SEQ", least=1),
    *BOUNDS,
    Argument("kind", option="--kind", help="Only this kind, such as run_finished; may be repeated.", is_repeated=True),
    Argument("run", "number", "--run", help="Only records of this run.", metavar="N", least=1, completion="run"),
    Argument("author", option="--author", help="Only records by this author, such as person:root."),
    Argument(
        "outcome",
        "choice",
        "--outcome",
        help="Only the ends of runs that ended so.",
        choices=("succeeded", "failed", "cancelled", "interrupted", "lost"),
    ),
    Argument(
        "text",
        option="--text",
        help="Only records that say this somewhere; case and accents do not matter.",
        metavar="TEXT",
    ),
    Argument("states", "flag", "--state-hash", help="The hash of the session's state after each record, too."),
)

VERBS = (
    Verb(
        name="list",
        section="Look",
        words="all sessions, one a line",
        help="""All sessions: state, last run, what a wake waits for, and when a session goes on by itself.

        NAME: only these, or all of a template (ticket@), or all that a pattern matches. Terminated and undeclared
        sessions are left out unless they are asked for; with --json they are all there.""",
        examples=(
            "wakeful list",
            "wakeful list ticket@            # every session of a template",
            "wakeful list 'ticket@4*'        # those that a pattern matches",
            "wakeful list --state terminated",
        ),
        arguments=(
            Argument("names", metavar="[NAME]...", is_repeated=True, completion="sessions", only="terminal"),
            Argument(
                "is_all",
                "flag",
                "--all",
                help="Every session on a line of its own: each of a template, terminated and undeclared ones.",
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
            Argument("present", "flag", help="Who is in each session now, as `present`.", only="http"),
            Argument("failed", "flag", help="Only sessions whose last run failed.", only="http"),
            Argument("asks", "flag", help="Only sessions that wait for an answer.", only="http"),
            Argument("tag", is_repeated=True, help="Only sessions with this tag.", only="http"),
            Argument("folder", help="Only sessions in this folder, and below it.", only="http"),
            Argument("text", help="Only sessions with this in name, objective, tags, agent or command.", only="http"),
            *PAGES,
        ),
        routes=(reads("/sessions", is_filtered=True),),
        answer=ROW,
        shape="list",
    ),
    Verb(
        name="top",
        section="Look",
        words="what runs and what is owed, live, with CPU and memory",
        help="What runs and what is owed, live: state, CPU, memory, runs. q or Ctrl-C ends it.",
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
                help="Print one frame and end; so it does where no terminal is.",
                only="terminal",
            ),
            Argument(
                "every",
                option="--every",
                help="How often it looks, 2s unless told.",
                metavar="DURATION",
                default="2s",
                only="terminal",
            ),
            Argument(
                "order",
                "choice",
                "--sort",
                help="By what rows are ordered; state: what runs first.",
                default="state",
                choices=("state", "cpu", "memory", "runs", "name"),
                only="terminal",
            ),
        ),
        routes=(reads("/top", is_filtered=True),),
        answer=(
            Field("at", "moment", "when it was true"),
            Field("version", "text", "the daemon's version"),
            Field("started_at", "moment", "when the daemon started"),
            Field("daemon", "object", "its pid, CPU and memory"),
            Field("slots", "object", "how many runs may be under way, and how many are"),
            Field("runs", "object", "what each run under way uses, by its session's id"),
            Field("sessions", "list", "the rows of `list`"),
        ),
    ),
    Verb(
        name="show",
        section="Look",
        words="everything about a session, now or as it was",
        help="State, hold, bindings with their versions, neighbours in the graph, last runs, facts and hand-off.",
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
                help="As its log knew it then: at a seq, a time (RFC 3339, or 2h ago as 2h), or a checkpoint.",
                metavar="POSITION",
                completion="position",
            ),
        ),
        answer=SESSION,
        routes=(reads("/sessions/{name}", "path"),),
    ),
    Verb(
        name="log",
        section="Look",
        words="a session's records",
        help="A session's records, oldest first.",
        examples=(
            "wakeful log payroll --last 20",
            "wakeful log payroll --outcome failed --since 1d",
            "wakeful log payroll --text 'tax office'",
            "wakeful log payroll --follow",
        ),
        arguments=(
            NAME,
            *RECORD_FILTERS,
            Argument("last", "number", "--last", help="Only the newest N, at most 10000.", metavar="N", least=1),
            Argument(
                "past",
                "flag",
                "--past",
                help=(
                    "Before them the records it came with, when it was forked or loaded; --at ~SEQ means one of those."
                ),
            ),
            Argument("is_following", "flag", "--follow", help="Go on with what will be recorded.", only="terminal"),
            Argument("words", "flag", help="Each record also in words.", only="http"),
            *PAGES,
        ),
        routes=(RECORDS,),
        answer=RECORD,
        shape="lines",
    ),
    Verb(
        name="history",
        section="Look",
        words="a session's latest records",
        help="A session's latest records. Inside a run NAME is its own session and may be left out.",
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
                help="How many, 20 unless told, at most 10000.",
                metavar="N",
                default=20,
                least=1,
            ),
        ),
        routes=(RECORDS,),
        answer=RECORD,
        shape="lines",
    ),
    Verb(
        name="follow",
        section="Look",
        words="what happens, as it happens",
        help="""What happens, as it happens, and who does it: wakes with their causes, runs, their ends, calls. Ends
        with Ctrl-C.

        What agents say is shown word by word, with their thoughts and the tools they call. Words that come too fast
        to be read are left out; the record of the turn, which follows, has all of them.

        NAME: only these, or all of a template (ticket@), or all that a pattern matches, also such as come later. With
        --kind, --author or --failed no words of agents are shown.""",
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
            Argument("tag", option="--tag", help="Only sessions with this tag; may be repeated.", is_repeated=True),
            Argument(
                "kind", option="--kind", help="Only this kind, such as run_finished; may be repeated.", is_repeated=True
            ),
            Argument("author", option="--author", help="Only records by this author, such as person:root."),
            Argument(
                "failed", "flag", "--failed", help="Only runs that failed or were lost, and sessions that sleep for it."
            ),
            Argument(
                "since",
                option="--since",
                help="From then on, and then what happens: RFC 3339, or how long ago, such as 2h.",
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
                help="With --json: also the words of agents as they come, lines with `live`.",
                only="terminal",
            ),
            Argument("after", "number", help="Go on after this position of the log.", is_required=False, only="http"),
            Argument("words", "flag", help="With `words`: each record in a line of words.", only="http"),
            Argument("live", "flag", help="Also the words of agents as they come.", only="http"),
        ),
        answer=(*NAMED_RECORD, *FOLLOWED),
        shape="lines",
        routes=(reads("/follow", "query", is_filtered=True),),
    ),
    Verb(
        name="live",
        section=None,
        words="what a dashboard shows, as it changes",
        help="""A snapshot of all sessions, then what changes: records in brief, rows, words of agents.

        Server-sent events. `after` goes on from a position or an id of the stream; where that is not known any more, a
        snapshot comes first.""",
        arguments=(
            Argument("name", is_repeated=True, is_required=False, help="Only these sessions.", only="http"),
            Argument("after", help="Go on after this position or stream id.", is_required=False, only="http"),
        ),
        answer=LIVE,
        shape="events",
        routes=(reads("/live", "query", is_filtered=True),),
    ),
    Verb(
        name="output",
        section="Look",
        words="what a run wrote to its terminal",
        help="""What a run wrote to its standard output and error.

        Terminal escapes in it are shown, not obeyed, also into a pipe or a file; --raw gives the bytes as they are.
        --find gives only the lines that contain a text, as `12:line`. The number is that of the line in this output,
        where one line stands for a middle that was not kept. At most 1,000 lines are given, and the rest is counted.
        Of a run that failed while it was confined, standard error says what it was denied, and the line of its spec
        that allows it. Where no daemon runs, its state folder is read instead, and standard error names it.""",
        examples=(
            "wakeful output payroll          # of the present or last run",
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
                help="Which run; the present or last one unless told.",
                metavar="N",
                least=1,
                completion="run",
            ),
            Argument("follow", "flag", "--follow", help="Go on until the present run ends."),
            Argument(
                "find",
                option="--find",
                help="Only the lines that contain this, with their numbers; case and colours do not matter.",
                metavar="TEXT",
            ),
            Argument(
                "is_raw", "flag", "--raw", help="The bytes as they are, terminal escapes included.", only="terminal"
            ),
            Argument(
                "state",
                option="--state",
                help="Read this state folder, and ask no daemon.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
        ),
        shape="bytes",
        routes=(reads("/sessions/{name}/output", "path"),),
    ),
    Verb(
        name="facts",
        section="Look",
        words="a session's facts",
        help="A session's facts, with who said so and why. Inside a run NAME is left out.",
        examples=("wakeful facts payroll",),
        arguments=(
            Argument("name", only="http"),
            Argument("words", metavar="[NAME]", is_repeated=True, completion="session", only="terminal"),
        ),
        routes=(FACTS,),
        answer=FACT,
        shape="list",
    ),
    Verb(
        name="recall",
        section="Look",
        words="one fact, or all",
        help="One fact's value, or all facts. Inside a run: recall [KEY]; outside: recall NAME [KEY].",
        examples=(
            "wakeful recall payroll currency",
            "wakeful recall currency         # inside a run",
        ),
        arguments=(
            Argument("name", only="http"),
            Argument("words", metavar="[NAME] [KEY]", is_repeated=True, completion="named key", only="terminal"),
        ),
        routes=(FACTS,),
        answer=FACT,
        shape="list",
    ),
    Verb(
        name="why",
        section="Look",
        words="why a session ran or did not, or who wrote and reads a file",
        help="""For a session: why it ran last, or why it does not run. For a run: the whole chain that led to it,
        across sessions. For a path: which run wrote it, what led to that, and who reads it.""",
        examples=(
            "wakeful why payroll             # why it ran, or does not",
            "wakeful why payroll#3           # what led to run 3",
            "wakeful why out/payroll.csv     # who wrote it, who reads it",
        ),
        arguments=(
            Argument("x", metavar="SESSION|SESSION#RUN|PATH", completion="session or path"),
            Argument(
                "run", "number", "--run", help="Of SESSION, this run: the same as SESSION#N.", metavar="N", least=1
            ),
            Argument("path", "file", help="The same path made absolute, where `x` may be one.", only="http"),
        ),
        answer=WHY,
        routes=(reads("/why", is_filtered=True),),
    ),
    Verb(
        name="context",
        section="Look",
        words="what a session's model would see, with tokens per part",
        help="""What the session's model would see if it ran now: instructions, the conversation so far, and what
        the run would open with.

        Nothing is recorded and nothing runs. Tokens are estimates. With --json the text is to the byte.""",
        examples=(
            "wakeful context api-docs",
            "wakeful context api-docs --for-agent security --json",
        ),
        arguments=(
            NAME,
            Argument("agent", option="--for-agent", help="As this agent would see it, asked by name.", metavar="AGENT"),
            Argument("brief", "flag", "--brief", help="Only the parts and their tokens.", only="terminal"),
        ),
        answer=CONTEXT,
        routes=(reads("/sessions/{name}/context", "path"),),
    ),
    Verb(
        name="plan",
        section="Look",
        words="what would wake if these paths changed; what is owed now",
        help=(
            "What would wake if these paths changed, in the order of the graph. Without a path: what is owed and "
            "queued now."
        ),
        examples=(
            "wakeful plan                    # what is owed now",
            "wakeful plan salaries.csv       # what would wake if it changed",
        ),
        arguments=(Argument("path", "file", metavar="[PATH]...", is_repeated=True, completion="file"),),
        routes=(reads("/plan", is_filtered=True),),
        answer=(
            Field("now", "list", "without a path: what is owed, queued and running", is_optional=True),
            Field("slots", "object", "without a path: how many runs may be under way", is_optional=True),
            Field("paths", "list", "the paths that were asked about", is_optional=True),
            Field("waves", "list", "the sessions that would wake, in order", is_optional=True),
            Field("unmatched", "list", "the paths that wake nobody", is_optional=True),
            Field("default_excludes", "list", "patterns that are never looked at unless named"),
        ),
    ),
    Verb(
        name="diff",
        section="Look",
        words="what differs between two positions of a session, or two sessions",
        help="""What differs between two positions of a session, or between two sessions.

        A position is a seq, a time (RFC 3339, or 2h for two hours ago) or a checkpoint; without one it is now:
        `wakeful diff payroll@12 payroll`.""",
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
                help="Also what changed in the files, line by line, as far as it was kept.",
            ),
        ),
        routes=(reads("/diff", is_filtered=True),),
        answer=(
            Field("a", "object", "the first side: name, seq and at"),
            Field("b", "object", "the second side"),
            Field("session", "list", "what differs in the session itself"),
            Field("facts", "list", "facts that differ"),
            Field("memory", "list", "keys of the conversation's memory that differ"),
            Field("todo", "list", "items of the to-do list that differ"),
            Field("handoff", "object", "both hand-offs where they differ, or null"),
            Field("spec", "list", "keys of the spec that differ"),
            Field("bindings", "list", "versions that differ"),
            Field("files", "list", "what runs wrote in between"),
            Field("contents", "list", "with contents: what changed in the files", is_optional=True),
        ),
    ),
)
