"""The verbs on a session's past, and on a session as a file: checkpoints, bundles, rewinds, forks, merges, erasures,
replays."""

from __future__ import annotations

from wakeful.verbs.answers import PROGRESS, REPLAYED
from wakeful.verbs.verb import ANSWER, DRY_RUN, FILES, KEY, NAME, PREVIEW, Argument, Route, Verb, calls

PATH = Argument("path", "file", help="An absolute path on the daemon's machine.")
# The ways to bring a bundle in.
LOADED = (
    Argument("new", only="http", help="The name of the session it becomes."),
    Argument("root", "folder", only="http", help="Where it may read and write here; else what it writes is detached."),
    Argument("move", "flag", only="http", help="Complete a migrate: the session itself, not a fork of it."),
)


def bundles(what: str, words: str, *takes: Argument) -> Route:
    """A route that works on bundles: lines that tell how far it is."""
    return Route(
        "POST",
        f"/bundle/{what}",
        "admin",
        is_machine_wide=True,
        words=words,
        takes=takes,
        gives=PROGRESS,
        shape="lines",
    )


VERBS = (
    Verb(
        name="save",
        section="Act",
        words="a session as one file; with --as, a checkpoint to come back to",
        help=(
            "A session as one file: its records, blobs, scratch files and spec, every byte verified by its hashes. "
            "With --as, a checkpoint."
        ),
        examples=(
            "wakeful save payroll -o payroll.bundle",
            "wakeful save payroll --as march --note 'before the audit'",
        ),
        arguments=(
            NAME,
            Argument(
                "mark",
                option="--as",
                is_required=True,
                on_terminal="optional",
                help="Mark a checkpoint of this name instead of writing a bundle.",
                metavar="MARK",
            ),
            Argument(
                "at",
                option="--at",
                help="With --as: mark this position instead of the present one.",
                metavar="POSITION",
                completion="position",
            ),
            Argument("note", option="--note", help="With --as: why, kept with it.", metavar="TEXT"),
            Argument(
                "output",
                option="-o --output",
                help="Where to, NAME.bundle unless told.",
                metavar="FILE",
                completion="file",
                only="terminal",
            ),
            KEY,
        ),
        routes=(
            calls("save", "admin"),
            bundles(
                "save",
                "write a session's bundle to a file of the daemon's machine",
                NAME,
                PATH,
                Argument("to", "number", is_required=False, least=1, help="Up to this seq; all of it unless told."),
            ),
            Route(
                "GET",
                "/sessions/{name}/bundle",
                "admin",
                "path",
                words="a session's bundle, to be kept by the caller",
                takes=(NAME,),
                gives=(),
                shape="bytes",
            ),
        ),
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="load",
        section="Act",
        words="bring a bundle or an archived session in",
        help=(
            "Bring a bundle in as a session of its own, or an archived session back by its NAME. Nothing of a bundle "
            "runs before its spec is trusted."
        ),
        examples=(
            "wakeful load payroll.bundle --as trial",
            "wakeful load payroll            # out of the archive",
        ),
        arguments=(
            Argument("source", metavar="FILE|NAME", completion="session or path", only="terminal"),
            Argument("new", option="--as", help="The name of the session it becomes.", metavar="NAME", only="terminal"),
            Argument(
                "root",
                option="--root",
                help="Where it may read and write here; else what it writes is detached.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
            Argument(
                "is_move",
                "flag",
                "--move",
                help="Complete a migrate: the session itself, not a fork of it. Prints the receipt.",
                only="terminal",
            ),
            Argument(
                "is_trusted",
                "flag",
                "--trust",
                help="Ask at once whether its spec, which is shown, is to be trusted.",
                only="terminal",
            ),
            Argument(
                "is_sure",
                "flag",
                "--yes",
                help="With --trust: trust it without asking; what is trusted is printed all the same.",
                only="terminal",
            ),
        ),
        routes=(
            bundles(
                "load",
                "bring in a bundle that lies on the daemon's machine, or an archived session",
                PATH._replace(is_required=False),
                NAME._replace(is_required=False, help="An archived session, instead of a path."),
                *LOADED,
            ),
            bundles("import", "bring in the bundle that is the body of the request", *LOADED)._replace(
                takes_any_type=True, is_upload=True
            ),
        ),
        role="contributor",
    ),
    Verb(
        name="archive",
        section="Act",
        words="move a session's payloads to a compressed bundle",
        help=(
            "Move a resting session's payloads to a compressed bundle in the state folder. `wakeful load NAME` brings "
            "them back."
        ),
        examples=(
            "wakeful archive payroll",
            "wakeful archive --due --dry-run",
        ),
        arguments=(
            Argument("name", is_required=False, completion="session"),
            Argument(
                "is_due",
                "flag",
                "--due",
                help="All that retention allows, as the daemon does once an hour.",
                only="terminal",
            ),
            Argument("dry_run", "flag", "--dry-run", help="With --due: only say which, and why.", only="terminal"),
        ),
        routes=(
            bundles("archive", "archive one session", NAME),
            bundles("due", "archive all that retention allows", Argument("dry_run", "flag", only="http")),
        ),
        undo="load",
        role="maintainer",
        is_dangerous=True,
    ),
    Verb(
        name="migrate",
        section="Act",
        words="to another agent or model, or to another host",
        help="To another agent or model, or to another host. Without options: whom the spec names works here again.",
        examples=(
            "wakeful migrate payroll --agent hr2",
            "wakeful migrate payroll --to ssh://laptop",
            "wakeful migrate payroll --to payroll.bundle",
        ),
        arguments=(
            NAME,
            Argument("agent", option="--agent", help="Another agent works here from the next run on.", metavar="NAME"),
            Argument("model", option="--model", help="Another model.", metavar="NAME"),
            Argument(
                "to",
                option="--to",
                help="To another host: through ssh, or as a bundle to carry there.",
                metavar="ssh://HOST|FILE",
                only="terminal",
            ),
            Argument(
                "is_trusted",
                "flag",
                "--trust",
                help="With --to ssh://: you know its spec; have it trusted there, as your own.",
                only="terminal",
            ),
            Argument(
                "receipt_file",
                option="--receipt",
                help="What `load --move` printed there: the move is complete.",
                metavar="FILE",
                completion="file",
                only="terminal",
            ),
            Argument("give_up", "flag", "--give-up", help="Stay: the bundle that was cut must not be loaded."),
            Argument("receipt", "object", only="http"),
            KEY,
        ),
        routes=(
            calls("migrate", "admin"),
            bundles(
                "move",
                "freeze a session, and cut the bundle that another host loads",
                NAME,
                PATH,
                Argument("to", help="Where it goes, in words."),
            ),
        ),
        undo="migrate",
        role="maintainer",
        is_repeatable=True,
        is_dangerous=True,
        answer=ANSWER,
    ),
    Verb(
        name="rewind",
        section="Act",
        words="go back to a seq, time or checkpoint by appending",
        help="Go back to a seq, time or checkpoint. Nothing is deleted: what came after stays, and can be forked.",
        examples=(
            "wakeful rewind payroll march --files --dry-run",
            "wakeful rewind payroll 12       # to seq 12",
            "wakeful rewind payroll 2h       # to two hours ago",
        ),
        arguments=(
            NAME,
            Argument("to", metavar="POSITION", completion="position"),
            Argument("files", "flag", "--files", help="Also take back what its runs wrote since, from what was kept."),
            Argument(
                "force", "flag", "--force", help="With --files: also where others changed a file since; theirs is kept."
            ),
            DRY_RUN,
            KEY,
        ),
        routes=(calls("rewind", "admin"),),
        undo="rewind",
        role="maintainer",
        is_repeatable=True,
        is_dangerous=True,
        answer=(*ANSWER, PREVIEW, FILES),
    ),
    Verb(
        name="fork",
        section="Act",
        words="a new session from any point of another",
        help=(
            "A new session from any point of another, asleep until it is activated. What it writes is detached until "
            "it has its own."
        ),
        examples=(
            "wakeful fork payroll --as trial --workspace",
            "wakeful fork payroll --as trial --at march",
        ),
        arguments=(
            NAME,
            Argument("new", option="--as", help="The fork's name.", metavar="NAME"),
            Argument(
                "at",
                option="--at",
                help="From here, instead of where the session stands.",
                metavar="POSITION",
                completion="position",
            ),
            Argument("fresh", "flag", "--fresh", help="Take facts and hand-off only."),
            Argument(
                "workspace",
                "folder",
                "--workspace",
                help=(
                    "A place of its own for its files: a checkout of the repository, or copies; in DIR, which is "
                    "empty, or below the state folder."
                ),
                metavar="[DIR]",
                completion="folder",
                flag_value="",
            ),
            KEY,
        ),
        routes=(calls("fork", "admin", None),),
        undo="terminate",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="merge",
        section="Act",
        words="bring a fork back: facts three-way, conflicts as questions",
        help=(
            "Bring FORK back into NAME: facts and the files of its workspace three-way, its conversation as a "
            "hand-off, what both changed as conflicts."
        ),
        examples=(
            "wakeful merge payroll trial --dry-run",
            "wakeful merge payroll trial",
        ),
        arguments=(
            NAME,
            Argument("fork", completion="fork"),
            DRY_RUN,
            KEY,
        ),
        routes=(calls("merge", "admin", None),),
        undo="rewind",
        role="maintainer",
        is_repeatable=True,
        is_dangerous=True,
        answer=(*ANSWER, PREVIEW, FILES),
    ),
    Verb(
        name="resolve",
        section="Act",
        words="settle what both sides of a merge changed",
        help="Settle an open conflict of a merge, with a reason. `show` lists them.",
        examples=(
            "wakeful resolve payroll rate --theirs --because 'it was measured'",
            "wakeful resolve payroll 1 --value 9 --because 'both were wrong'",
        ),
        arguments=(
            NAME,
            Argument("conflict", metavar="NUMBER|KEY", completion="conflict"),
            Argument("choice", "flag", "--ours", help="Keep what stands here.", flag_value="ours", only="terminal"),
            Argument(
                "choice", "flag", "--theirs", help="Take what the fork says.", flag_value="theirs", only="terminal"
            ),
            Argument("value", option="--value", help="Neither: this.", metavar="TEXT"),
            Argument(
                "rationale", option="--because", help="Why, kept with the fact.", metavar="TEXT", on_terminal="required"
            ),
            Argument("choice", "choice", choices=("ours", "theirs", "value"), is_required=True, only="http"),
            KEY,
        ),
        routes=(calls("resolve", "admin"),),
        undo="rewind",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="erase",
        section="Act",
        words="remove what a record says for good; the chain stays whole",
        help=(
            "Remove what record SEQ says, for good: a secret that should not have been said. Its hash stays, so the "
            "chain still verifies."
        ),
        examples=("wakeful erase payroll 12 --because 'a password' --dry-run",),
        arguments=(
            NAME,
            Argument("seq", "number", least=1),
            Argument("reason", option="--because", help="Why, for the record.", metavar="TEXT"),
            DRY_RUN,
            KEY,
        ),
        routes=(calls("erase", "admin"),),
        role="maintainer",
        is_repeatable=True,
        is_dangerous=True,
        answer=(*ANSWER, PREVIEW),
    ),
    Verb(
        name="compress",
        section="Act",
        words="old conversation gives way to a summary; facts and log stay",
        help="Let a summary stand for old conversation. Facts and log stay; undone by rewind.",
        examples=("wakeful compress payroll --keep 5 --dry-run",),
        arguments=(
            NAME,
            Argument(
                "keep",
                "number",
                "--keep",
                help="Leave the newest N messages as they are, 20 unless told.",
                metavar="N",
                default=20,
                least=0,
            ),
            DRY_RUN,
            KEY,
        ),
        routes=(calls("compress", "admin"),),
        undo="rewind",
        role="contributor",
        is_repeatable=True,
        is_dangerous=True,
        answer=(*ANSWER, PREVIEW),
    ),
    Verb(
        name="replay",
        section="Look",
        words="run a recorded run again on what it found, and compare",
        help="""Run a recorded run again on the files it found then, and compare what both left.

        Nothing real is touched and nothing is recorded. Exit 0: the same; 1: it differs, or something it found is
        missing.""",
        examples=(
            "wakeful replay payroll 3",
            "wakeful replay payroll 3 --command 'python3 new.py' --keep copy",
        ),
        arguments=(
            NAME,
            Argument("run", "number", least=1, completion="run"),
            Argument(
                "command",
                option="--command",
                help="Another command instead, quoted as in a shell: a changed program on what was recorded.",
                metavar="WORDS",
                only="terminal",
            ),
            Argument(
                "is_partial",
                "flag",
                "--partial",
                help="Judge by the rest when something it found was not kept.",
                only="terminal",
            ),
            Argument(
                "keep",
                option="--keep",
                help="Keep the copy it ran in, under this name.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
        ),
        routes=(
            Route(
                "POST",
                "/replay",
                "admin",
                takes=(
                    NAME,
                    Argument("run", "number", least=1),
                    Argument("command", is_repeated=True, is_required=False, help="Another command instead."),
                    Argument("keep", "folder", is_required=False, help="Keep the copy it ran in, at this path."),
                ),
                gives=REPLAYED,
                shape="lines",
            ),
        ),
    ),
)
