"""The verbs that read all sessions together and change nothing."""

from __future__ import annotations

from wakeful.verbs.answer_fields import HEALTH_ANSWER, NAMED_RECORD
from wakeful.verbs.looks import BOUNDS, PAGES
from wakeful.verbs.verb import Argument, Field, Route, Verb, reads

VERBS = (
    Verb(
        name="search",
        section="Look",
        words="search the records of all sessions",
        help="""Find the records that contain all these words, newest first.

        wage* matches every word that begins with wage. Words in double quotes match as a phrase; a shell needs
        '"tax office"'.""",
        examples=(
            "wakeful search tax office",
            "wakeful search 'wage*' --session payroll --since 7d",
        ),
        arguments=(
            Argument("text", metavar="TEXT...", is_required=True, is_repeated=True),
            Argument(
                "name", option="--session", help="Only records of this session.", metavar="NAME", completion="session"
            ),
            *BOUNDS,
            Argument(
                "kind", option="--kind", help="Only this kind, such as note_added. May be repeated.", is_repeated=True
            ),
            Argument("author", option="--author", help="Only records by this author, such as person:root."),
            Argument(
                "last",
                "number",
                "--last",
                help="At most this many records. Default: 20.",
                metavar="N",
                default=20,
                least=1,
            ),
            *PAGES,
        ),
        cli_module="verbs.log",
        routes=(reads("/search", "query", is_filtered=True),),
        answer=(*NAMED_RECORD, Field("excerpt", "text", "the text around the match")),
        shape="lines",
    ),
    Verb(
        name="costs",
        section="Look",
        words="sum the cost of runs, by session, agent, cause and day",
        help=(
            "Sum the cost of runs: number of runs, CPU, wall time, tokens, US dollars, bytes read and written, output. "
            "Days are UTC."
        ),
        examples=(
            "wakeful costs",
            "wakeful costs --by agent,day --since 7d --csv > costs.csv",
        ),
        arguments=(
            Argument(
                "by",
                option="--by",
                help="Any of session, agent, cause, day, separated by commas. Default: session.",
                metavar="KEYS",
                default="session",
            ),
            Argument(
                "since",
                option="--since",
                help="Only runs that ended since: RFC 3339, such as 2026-01-31T06:00:00Z, or an age, such as 7d.",
                metavar="TIME",
            ),
            Argument("is_csv", "flag", "--csv", help="Print CSV, with plain numbers.", only="terminal"),
        ),
        cli_module="verbs.overviews",
        routes=(reads("/costs", is_filtered=True),),
        answer=(
            Field("since", "moment", "the value of `since`, or null"),
            Field("by", "list", "the keys that rows are grouped by"),
            Field("rows", "list", "one row of sums for each group"),
            Field("total", "object", "the sum of all rows"),
        ),
    ),
    Verb(
        name="health",
        section="Look",
        words="report what needs a person's attention, and what to do",
        help="""Report what needs a person's attention: failed sessions, questions, held queues, refused specs, targets
        that cannot be read, the log, the disk, limits, budgets, notifications. Each finding has a time and a remedy.

        Exit code 0: healthy. 1: something needs attention. 3: no daemon answers. The check takes milliseconds, so a
        timer may run it every few seconds. `doctor` does the slow checks.""",
        examples=(
            "wakeful health",
            "wakeful health --json | jq .findings",
            "wakeful health --json            # for a program",
        ),
        arguments=(Argument("plain", "flag", help="Answer 200 even if something needs attention.", only="http"),),
        cli_module="verbs.overviews",
        routes=(Route("GET", "/health", "read", is_public=True, is_filtered=True),),
        answer=HEALTH_ANSWER,
    ),
    Verb(
        name="metrics",
        section=None,
        words="return metrics for Prometheus",
        help="""Return metrics in the text format of Prometheus, or as OpenMetrics if `Accept` asks for it. A session is
        a label only if `metrics: {sessions: […]}` in wakeful.yaml names it.""",
        routes=(reads("/metrics", is_from_log=False)._replace(shape="bytes"),),
        not_a_tool="numbers for Prometheus: wakeful_health and wakeful_top give the same as text",
    ),
    Verb(
        name="timeline",
        section="Look",
        words="list the runs and occurrences in a time range",
        help="""List the runs in a time range, and the occurrences without a run of their own: coalesced, skipped,
        withdrawn, caught up, failed before start.

        The default range is the last day. The dashboard draws the same timeline.""",
        examples=("wakeful timeline --since 2h", "wakeful timeline payroll --since 7d"),
        arguments=(
            Argument("name", metavar="[NAME]...", is_repeated=True, help="Only these sessions.", completion="session"),
            Argument(
                "since",
                option="--since",
                help="Begin at this time: RFC 3339, such as 2026-01-31T06:00:00Z, or an age, such as 2h. "
                "Default: a day before the end.",
                metavar="TIME",
            ),
            Argument("until", option="--until", help="End at this time. Default: now.", metavar="TIME"),
            Argument(
                "limit",
                "number",
                "--limit",
                help="At most this many runs and occurrences. Default: 1000.",
                metavar="N",
                least=1,
                most=5000,
            ),
        ),
        cli_module="verbs.overviews",
        routes=(reads("/timeline", "query", is_filtered=True),),
        answer=(
            Field("since", "moment", "the beginning of the range"),
            Field("until", "moment", "the end of the range"),
            Field("runs", "list", "the runs that overlap the range, oldest first"),
            Field("marks", "list", "occurrences: coalesced, skipped, withdrawn, caught up, failed before start"),
            Field("is_cut", "flag", "true if there were more than the limit; the latest are listed"),
        ),
    ),
    Verb(
        name="graph",
        section="Look",
        words="show what sessions read and write, and what a change reaches",
        help="""Show files, commits, clocks and sessions as a graph. Its edges are the paths a change takes.

        FOCUS is a session, or a file in a session's binding. Default: all sessions.""",
        examples=("wakeful graph", "wakeful graph payroll", "wakeful graph data/rates.csv --depth 4"),
        arguments=(
            Argument(
                "focus",
                metavar="[FOCUS]",
                is_required=False,
                help="A session's name, or the path of a file (over HTTP: absolute).",
                completion="session",
            ),
            Argument(
                "depth",
                "number",
                "--depth",
                help="Steps around the focus. Default: 2.",
                metavar="N",
                least=0,
                most=20,
            ),
        ),
        cli_module="verbs.overviews",
        routes=(reads("/graph", is_filtered=True, is_from_log=False),),
        answer=(
            Field("focus", "text", "the id of the node in focus, or null"),
            Field("nodes", "list", "id, kind, label, and the session's name or the absolute path of each"),
            Field("edges", "list", "from, to, the binding, and whether a change wakes the session"),
            Field("all_nodes", "number", "how many nodes the whole graph has"),
            Field("is_cut", "flag", "true if there were more than 600 nodes"),
        ),
    ),
    Verb(
        name="export",
        section="Look",
        words="export the log for other tools, one JSON object per line",
        help="Export the records of all sessions, or of the named ones, in the order they were recorded.",
        examples=(
            "wakeful export payroll --since 1d | jq .kind",
            "wakeful export -o all.jsonl",
        ),
        arguments=(
            Argument("name", metavar="[NAME]...", is_repeated=True, completion="session"),
            Argument(
                "format",
                "choice",
                "--format",
                help="jsonl: one JSON object per line.",
                default="jsonl",
                choices=("jsonl",),
            ),
            *BOUNDS,
            Argument(
                "kind", option="--kind", help="Only this kind, such as run_finished. May be repeated.", is_repeated=True
            ),
            Argument("loaded", "flag", "--with-loaded", help="Also records from loaded bundles."),
            Argument(
                "output",
                "file",
                "-o --output",
                help="Write to this new file instead of standard output.",
                metavar="FILE",
                completion="file",
                only="terminal",
            ),
        ),
        cli_module="verbs.log",
        routes=(reads("/export", "query", is_filtered=True),),
        answer=(
            *NAMED_RECORD,
            Field("parent", "text", "the record that led to it, or null"),
            Field("rationale", "text", "the reason given for it, or null"),
            Field("payload_hash", "text", "the hash of its payload"),
        ),
        shape="lines",
        not_a_tool="a copy of the whole log: wakeful_log and wakeful_search read parts of it",
    ),
)
