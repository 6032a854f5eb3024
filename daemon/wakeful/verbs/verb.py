"""A verb as data: its arguments, its routes, who may call it, what undoes it, its words for help, and its answer.

The families (`lifecycle.py`, `history.py`, …) are lists of these values. `cli/command.py` makes a click command of
a verb, `api/app.py` its routes, `api/bodies.py` the type of its body; `api/gate/scopes.py` judges tokens by its
routes.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

# The sections of `wakeful --help`, in its order.
Section = Literal["Look", "Act", "Specs", "Keep"]
SECTIONS: tuple[Section, ...] = ("Look", "Act", "Specs", "Keep")

# The type of a value. A `duration` is typed as `2h` and sent as seconds. A `moment` is typed in RFC 3339 and sent in
# microseconds. A `folder` or `file` is typed as a path and sent as an absolute path.
Kind = Literal["text", "number", "decimal", "flag", "choice", "duration", "moment", "folder", "file", "object"]

# The values that the shell offers when somebody presses Tab: see cli/completion_values.py.
Completion = Literal[
    "session", "sessions", "fork", "position", "conflict", "fact", "session or path", "run", "side", "named key",
    "secret", "notifier", "file", "folder",
]  # fmt: skip

# The scopes that a token may have. They do not include one another, but `admin` includes all.
Scope = Literal["read", "send", "run", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "send", "run", "admin")

# The part of a request that names the one session it is about.
Place = Literal["path", "query", "body"]

# The roles of people in a session that may make a call: see core/calls/roles.py and api/gate/people.py.
Role = Literal["contributor", "maintainer"]


class Argument(NamedTuple):
    """One value that a verb takes. `name` is its field in the body or query, and the name of the parameter in
    Python."""

    name: str
    kind: Kind = "text"
    # The names on the command line, such as "-o --output" or "--thinking/--no-thinking". Empty: the argument is
    # positional.
    option: str = ""
    help: str = ""
    metavar: str | None = None
    default: Any = None
    # None: a positional argument is required, an option is not.
    is_required: bool | None = None
    # It may be given several times; its value is a list.
    is_repeated: bool = False
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    completion: Completion | None = None
    # The value of an option that was given without one, or the value that a flag stands for.
    flag_value: Any = None
    # An environment variable that gives the value where the option is absent.
    variable: str | None = None
    # On the command line it is required, or is not, unlike in the body: another option or standard input may stand
    # for it.
    on_terminal: Literal["required", "optional"] | None = None
    # An argument that only the command line has, or only the HTTP body.
    only: Literal["terminal", "http"] | None = None

    @property
    def is_needed(self) -> bool:
        """Must it be given?"""
        if self.is_required is not None:
            return self.is_required
        return not self.option and not self.is_repeated and self.default is None and self.only != "http"


class Field(NamedTuple):
    """One field of an answer. Its help says `null` where it may be null."""

    name: str
    kind: Literal["text", "number", "flag", "moment", "list", "object"]
    help: str
    # It is absent where it says nothing.
    is_optional: bool = False
    # Of an object, or of the objects of a list: its fields, where they are described.
    fields: tuple[Field, ...] = ()

    @property
    def is_nullable(self) -> bool:
        return "null" in self.help


# The form of an answer: one document, a list of them, one a line, server-sent events, or bytes.
Shape = Literal["document", "list", "lines", "events", "bytes"]


class Route(NamedTuple):
    """An address of the HTTP API, and who reaches it.

    `scope` None: any token. "owner": no token at all.
    `session` None: it is about more than one session, or about the machine.
    `is_for_runs`: a run reaches it for its own session."""

    method: Literal["GET", "POST"]
    path: str
    scope: Scope | Literal["owner"] | None
    session: Place | None = None
    is_for_runs: bool = False
    # Over TCP it is reached without a token: it finds out by itself who calls, or has nothing of anybody.
    is_public: bool = False
    # Over TCP its body may be of another type than JSON.
    takes_any_type: bool = False
    # Its answer leaves out the sessions that the caller may not see, so that a person with a role for some may ask.
    is_filtered: bool = False
    # It reaches the machine or every session: of people, the daemon's owner alone may call it.
    is_machine_wide: bool = False
    # Its help in a few words, where that differs from the help of its verb.
    words: str = ""
    # The fields of its body or query, those of its answer, and the answer's form; None: those of its verb.
    takes: tuple[Argument, ...] | None = None
    gives: tuple[Field, ...] | None = None
    shape: Shape | None = None
    # Its body is a file.
    is_upload: bool = False
    # Its body and its answer are another's to define: a protocol's, or a program's of this release alone.
    is_open: bool = False

    @property
    def key(self) -> str:
        return f"{self.method} {self.path}"


class Verb(NamedTuple):
    """One verb: the same in the command line, HTTP and docs."""

    name: str
    # Its section of the help; None: no command of this name exists, only its route.
    section: Section | None
    # A summary of the verb, in a few words.
    words: str
    help: str
    examples: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    routes: tuple[Route, ...] = ()
    # The command that undoes the verb, as a person types it. None: nothing undoes it, or nothing has to.
    undo: str | None = None
    # The least role that may call it, where the spec of a session names people. None: it changes no session.
    role: Role | None = None
    # A call takes a key, and a call that is repeated with its key is carried out once.
    is_repeatable: bool = False
    # It closes, removes, replaces or goes back: never suggested to a person who mistyped.
    is_dangerous: bool = False
    # The fields of its answer over HTTP, of each of its documents.
    answer: tuple[Field, ...] = ()
    shape: Shape = "document"

    @property
    def is_call(self) -> bool:
        return any(route.path == f"/call/{self.name}" for route in self.routes)

    @property
    def typed(self) -> tuple[Argument, ...]:
        """The arguments of its command."""
        return tuple(one for one in self.arguments if one.only != "http")

    @property
    def sent(self) -> tuple[Argument, ...]:
        """The fields of its body or query."""
        return tuple(one for one in self.arguments if one.only != "terminal")


KEY = Argument(
    "idempotency_key", option="--key", metavar="TEXT", only="terminal",
    help="Makes it safe to repeat: the same key is carried out once.",
)  # fmt: skip
NAME = Argument("name", completion="session")
DRY_RUN = Argument("dry_run", "flag", "--dry-run", "Say what would be done, and do nothing.")

# The answer of every call.
ANSWER = (
    Field("words", "text", "what was done"),
    Field("name", "text", "the session's name, after a rename or fork the new one", is_optional=True),
    Field("record", "number", "the seq of the first record it left; null: it changed nothing", is_optional=True),
    Field("is_repeated", "flag", "the key was known, and the words are about the first call", is_optional=True),
)  # fmt: skip
HELD = (
    Field("held", "text", "why the run does not start", is_optional=True),
    Field("held_until", "moment", "when that ends by itself", is_optional=True),
)
PREVIEW = Field("preview", "object", "with dry_run: what would be done", is_optional=True)
FILES = Field("files", "list", "each file that was written, and what became of it", is_optional=True)


def reads(path: str, session: Place | None = None, *, is_for_runs: bool = False, is_filtered: bool = False) -> Route:
    """A route that changes nothing."""
    return Route("GET", path, "read", session, is_for_runs, is_filtered=is_filtered)


def calls(
    name: str,
    scope: Scope,
    session: Place | None = "body",
    *,
    is_for_runs: bool = False,
    is_machine_wide: bool = False,
) -> Route:
    """The route of a call. `session` None: it reaches other sessions, the machine's files, or every session."""
    return Route("POST", f"/call/{name}", scope, session, is_for_runs, is_machine_wide=is_machine_wide)
