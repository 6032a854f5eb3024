"""The verbs that look at all sessions together and change nothing."""

from __future__ import annotations

from wakeful.verbs.answers import NAMED_RECORD, WELL_BEING
from wakeful.verbs.looks import BOUNDS, PAGES
from wakeful.verbs.verb import Argument, Field, Route, Verb, reads

VERBS = (
    Verb(
        name="search",
        section="Look",
        words="words over the logs of all sessions",
        help="""Records whose text holds all these words, the newest first.

        wage* finds every word that begins so; "several words" in quotes of their own (so '"tax office"') stand
        together.""",
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
                "kind", option="--kind", help="Only this kind, such as note_added; may be repeated.", is_repeated=True
            ),
            Argument("author", option="--author", help="Only records by this author, such as person:root."),
            Argument(
                "last", "number", "--last", help="How many at most, 20 unless told.", metavar="N", default=20, least=1
            ),
            *PAGES,
        ),
        routes=(reads("/search", "query", is_filtered=True),),
        answer=(*NAMED_RECORD, Field("excerpt", "text", "the words around the find")),
        shape="lines",
    ),
    Verb(
        name="costs",
        section="Look",
        words="what runs took, by session, agent, cause and day",
        help=(
            "What runs took: how many, CPU, wall time, tokens and US dollars, bytes read and written, output. Days are"
            " UTC."
        ),
        examples=(
            "wakeful costs",
            "wakeful costs --by agent,day --since 7d --csv > costs.csv",
        ),
        arguments=(
            Argument(
                "by",
                option="--by",
                help="Any of session, agent, cause, day, parted by commas; session unless told.",
                metavar="KEYS",
                default="session",
            ),
            Argument(
                "since",
                option="--since",
                help="Runs that ended since: RFC 3339, such as 2026-01-31T06:00:00Z, or how long ago, such as 7d.",
                metavar="TIME",
            ),
            Argument("is_csv", "flag", "--csv", help="Print CSV, with plain numbers.", only="terminal"),
        ),
        routes=(reads("/costs", is_filtered=True),),
        answer=(
            Field("since", "moment", "the bound that was asked for, or null"),
            Field("by", "list", "the keys that rows are summed by"),
            Field("rows", "list", "the sums"),
            Field("total", "object", "the sum of all rows"),
        ),
    ),
    Verb(
        name="health",
        section="Look",
        words="whether somebody should look, and at what",
        help="""Whether somebody should look, and at what: failed sessions, questions, held queues, refused specs,
        places that cannot be seen, the log, the disk, limits, budgets, notifications. Each with since when, and
        what to do.

        Exit code 0: healthy. 1: somebody should look. 3: no daemon answers. It costs milliseconds, so a timer may ask
        every few seconds; `doctor` does the slow checks.""",
        examples=(
            "wakeful health",
            "wakeful health --json | jq .findings",
            "wakeful health --json            # for a program",
        ),
        arguments=(Argument("plain", "flag", help="Answer 200 also where somebody should look.", only="http"),),
        routes=(Route("GET", "/health", "read", is_public=True, is_filtered=True),),
        answer=WELL_BEING,
    ),
    Verb(
        name="metrics",
        section=None,
        words="numbers for Prometheus",
        help="""Numbers for Prometheus, in its text format, or as OpenMetrics where `Accept` says so. A session is a
        label only where `metrics: {sessions: […]}` in wakeful.yaml names it.""",
        routes=(reads("/metrics")._replace(shape="bytes"),),
    ),
    Verb(
        name="timeline",
        section="Look",
        words="runs and occurrences of a time range",
        help="""The runs of a time range, and the occurrences that made no run of their own: coalesced, skipped,
        withdrawn, caught up, failed before start.

        Without bounds it is the last day. The dashboard draws the same.""",
        examples=("wakeful timeline --since 2h", "wakeful timeline payroll --since 7d"),
        arguments=(
            Argument("name", metavar="[NAME]...", is_repeated=True, help="Only these sessions.", completion="session"),
            Argument(
                "since",
                option="--since",
                help="RFC 3339, such as 2026-01-31T06:00:00Z, or how long ago, such as 2h; a day before the end "
                "unless told.",
                metavar="TIME",
            ),
            Argument("until", option="--until", help="The same; now unless told.", metavar="TIME"),
            Argument(
                "limit",
                "number",
                "--limit",
                help="How many runs and occurrences at most; 1,000 unless told.",
                metavar="N",
                least=1,
                most=5000,
            ),
        ),
        routes=(reads("/timeline", "query", is_filtered=True),),
        answer=(
            Field("since", "moment", "where the range begins"),
            Field("until", "moment", "where it ends"),
            Field("runs", "list", "the runs that touch it, oldest first"),
            Field("marks", "list", "occurrences: coalesced, skipped, withdrawn, caught up, failed before start"),
            Field("is_cut", "flag", "there were more than the limit; the latest are told"),
        ),
    ),
    Verb(
        name="graph",
        section="Look",
        words="what sessions read and write, and whom a change reaches",
        help="""Files, commits, clocks and sessions, joined the way a change runs.

        FOCUS is a session, or a file that one binds; without it all sessions are told.""",
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
                help="How many steps around the focus; 2 unless told.",
                metavar="N",
                least=0,
                most=20,
            ),
        ),
        routes=(reads("/graph", is_filtered=True),),
        answer=(
            Field("focus", "text", "the id of the node in focus, or null"),
            Field("nodes", "list", "id, kind, label, and what it is: a name or an absolute path"),
            Field("edges", "list", "from, to, the binding, and whether a change wakes"),
            Field("all_nodes", "number", "how many nodes the whole graph has"),
            Field("is_cut", "flag", "there were more than 600"),
        ),
    ),
    Verb(
        name="export",
        section="Look",
        words="the log for other tools, one JSON object a line",
        help="The records of all sessions, or of these, in the order they were recorded.",
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
                help="jsonl: one JSON object a line.",
                default="jsonl",
                choices=("jsonl",),
            ),
            *BOUNDS,
            Argument(
                "kind", option="--kind", help="Only this kind, such as run_finished; may be repeated.", is_repeated=True
            ),
            Argument("loaded", "flag", "--with-loaded", help="Also the records that `load` brought in from elsewhere."),
            Argument(
                "output",
                "file",
                "-o --output",
                help="A file of its own instead; never overwrites.",
                metavar="FILE",
                completion="file",
                only="terminal",
            ),
        ),
        routes=(reads("/export", "query", is_filtered=True),),
        answer=(
            *NAMED_RECORD,
            Field("parent", "text", "the record that led to it, or null"),
            Field("rationale", "text", "why, or null"),
            Field("payload_hash", "text", "the hash of what it says"),
        ),
        shape="lines",
    ),
)
