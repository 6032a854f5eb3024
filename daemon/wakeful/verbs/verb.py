"""A verb as data: its arguments, routes, roles, help texts, answer fields, and the verb that undoes it.

The families (`lifecycle.py`, `history.py`, …) are lists of these values. The main readers are:
- `cli/command.py`, which makes the click commands;
- `api/bodies.py`, which makes the types of request bodies;
- `api/gate/scopes.py`, which checks tokens against the routes;
- `api/openapi.py`, which describes the routes;
- `mcp_server/tools.py`, which offers the verbs as tools.

Verbs and arguments are named tuples, not pydantic models: every command imports the table, and pydantic would double
the time to start. The daemon makes types with checks from them once (`api/bodies.py`).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

# The sections of `wakeful --help`, in the order of the help.
Section = Literal["Look", "Act", "Specs", "Keep"]
SECTIONS: tuple[Section, ...] = ("Look", "Act", "Specs", "Keep")

# The type of a value. A `duration` is typed as `2h` and sent as seconds. A `moment` is typed in RFC 3339 and sent in
# microseconds. A `folder` or `file` is typed as a path and sent as an absolute path.
Kind = Literal["text", "number", "decimal", "flag", "choice", "duration", "moment", "folder", "file", "object"]

# The kind of values that the shell offers for the Tab key: see cli/completion_values.py. With `sessions`, a call also
# accepts a template or a pattern (cli/verbs/calls.py).
Completion = Literal[
    "session", "sessions", "fork", "position", "conflict", "fact", "session or path", "run", "side", "named key",
    "secret", "notifier", "file", "folder",
]  # fmt: skip

# The scopes that a token may have. `admin` includes all others; no other scope includes another one.
Scope = Literal["read", "send", "run", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "send", "run", "admin")

# The part of a request that names the one session it is about.
Place = Literal["path", "query", "body"]

# The roles of people that may make calls on a session: see core/calls/roles.py and api/gate/people.py.
Role = Literal["contributor", "maintainer"]


class Argument(NamedTuple):
    """One argument of a verb. `name` is both the field of the HTTP body or query and the parameter in Python."""

    name: str
    kind: Kind = "text"
    # The names on the command line, such as "-o --output" or "--thinking/--no-thinking". Empty if the argument is
    # positional.
    option: str = ""
    help: str = ""
    metavar: str | None = None
    default: Any = None
    # None if the usual rule applies: a positional argument is required, an option is not.
    is_required: bool | None = None
    # True if the argument may be given several times. Its value is then a list.
    is_repeated: bool = False
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    completion: Completion | None = None
    # The value of an option that is given without a value, or the value that a flag sets.
    flag_value: Any = None
    # The environment variable that supplies the value if the option is absent.
    variable: str | None = None
    # Overrides `is_required` on the command line, where another option or standard input may supply the value.
    on_terminal: Literal["required", "optional"] | None = None
    # The only interface that has the argument: the command line or the HTTP body. None if both have it.
    only: Literal["terminal", "http"] | None = None

    @property
    def is_needed(self) -> bool:
        """Must the caller give the argument?"""
        if self.is_required is not None:
            return self.is_required
        return not self.option and not self.is_repeated and self.default is None and self.only != "http"


class Field(NamedTuple):
    """One field of an answer. It may be null if its help contains the word `null`."""

    name: str
    kind: Literal["text", "number", "flag", "moment", "list", "object"]
    help: str
    # True if the field is absent when it has nothing to report.
    is_optional: bool = False
    # The fields of an object, or of the objects of a list. Empty if they are not described.
    fields: tuple[Field, ...] = ()

    @property
    def is_nullable(self) -> bool:
        return "null" in self.help


# The form of an answer: one JSON document, a list of documents, one document per line, server-sent events, or bytes.
Shape = Literal["document", "list", "lines", "events", "bytes"]


class Route(NamedTuple):
    """A route of the HTTP API, and the callers that may use it.

    - `scope`: None if any token is enough; "owner" if no token is enough.
    - `session`: the part of the request that names the session; None if the route concerns several sessions or the
      machine.
    - `is_for_runs`: may a run call it for its own session?"""

    method: Literal["GET", "POST"]
    path: str
    scope: Scope | Literal["owner"] | None
    session: Place | None = None
    is_for_runs: bool = False
    # True if no token is needed over TCP, because the route identifies the caller itself or returns nothing private.
    is_public: bool = False
    # True if the body may have another type than JSON over TCP.
    takes_any_type: bool = False
    # True if the answer omits the sessions that the caller may not see. People with a role for some sessions may then
    # call it.
    is_filtered: bool = False
    # True if the answer comes from the log. It then waits until the log has every decision that `/sessions` showed.
    # False for a route that answers from memory: it answers even while the disk hangs.
    is_from_log: bool = False
    # True if the route affects the machine or every session. The daemon's owner is the only person who may call it.
    is_machine_wide: bool = False
    # A summary of the route, if it differs from the summary of its verb.
    words: str = ""
    # The fields of the body or query, the fields of the answer, and the form of the answer. None if they are those of
    # the verb.
    takes: tuple[Argument, ...] | None = None
    gives: tuple[Field, ...] | None = None
    shape: Shape | None = None
    # True if the body is a file.
    is_upload: bool = False
    # True if the table does not define body and answer. A protocol defines them, or another program of this release.
    is_open: bool = False

    @property
    def key(self) -> str:
        return f"{self.method} {self.path}"


class Verb(NamedTuple):
    """One verb, with the same name on the command line, in HTTP and in the docs."""

    name: str
    # The section of the help. None if the verb has only a route and no command.
    section: Section | None
    # A summary of the verb, in a few words.
    words: str
    help: str
    examples: tuple[str, ...] = ()
    arguments: tuple[Argument, ...] = ()
    # The module below cli/ with the function that carries out the command: `log_verb` for `log`. None if the command
    # only sends its call, and prints the words of the answer (cli/verbs/calls.py).
    cli_module: str | None = None
    routes: tuple[Route, ...] = ()
    # The command that undoes the verb, as a person types it. None if it cannot be undone or changes nothing.
    undo: str | None = None
    # The lowest role that may call the verb, if the spec of a session names people. None if it changes no session.
    role: Role | None = None
    # True if a call takes an idempotency key. A call that is repeated with the same key is carried out once.
    is_repeatable: bool = False
    # True if the verb closes, removes, replaces or goes back. It is never suggested after a typing error.
    is_dangerous: bool = False
    # Why the verb is not a tool of MCP, in words for the agent that asks for it. None if the verb is a tool.
    not_a_tool: str | None = None
    # True if only persons use the verb, such as to answer a question of an agent. An agent needs a person's permission.
    is_for_persons: bool = False
    # The fields of each document of the HTTP answer.
    answer: tuple[Field, ...] = ()
    shape: Shape = "document"

    @property
    def is_call(self) -> bool:
        return any(route.path == f"/call/{self.name}" for route in self.routes)

    @property
    def typed(self) -> tuple[Argument, ...]:
        """Return the arguments of the command."""
        return tuple(one for one in self.arguments if one.only != "http")

    @property
    def sent(self) -> tuple[Argument, ...]:
        """Return the fields of the HTTP body or query."""
        return tuple(one for one in self.arguments if one.only != "terminal")


KEY = Argument(
    "idempotency_key", option="--key", metavar="TEXT", only="terminal",
    help="Idempotency key: calls with the same key are carried out once.",
)  # fmt: skip
NAME = Argument("name", completion="session")
DRY_RUN = Argument("dry_run", "flag", "--dry-run", "Print what would be done, and do nothing.")

# The fields in the answer of every call.
ANSWER = (
    Field("words", "text", "what was done"),
    Field("name", "text", "the session's name; after a rename or fork, the new name", is_optional=True),
    Field("record", "number", "the seq of the first new record; null: nothing changed", is_optional=True),
    Field("is_repeated", "flag", "the key was used before; `words` describes the first call", is_optional=True),
)  # fmt: skip
HELD = (
    Field("held", "text", "why the run does not start", is_optional=True),
    Field("held_until", "moment", "when that hold ends by itself", is_optional=True),
)
PREVIEW = Field("preview", "object", "with dry_run: what would be done", is_optional=True)
FILES = Field("files", "list", "each affected file, and what was done with it", is_optional=True)


def reads(
    path: str,
    session: Place | None = None,
    *,
    is_for_runs: bool = False,
    is_filtered: bool = False,
    is_from_log: bool = True,
) -> Route:
    """Make a route that changes nothing."""
    return Route("GET", path, "read", session, is_for_runs, is_filtered=is_filtered, is_from_log=is_from_log)


def calls(
    name: str,
    scope: Scope,
    session: Place | None = "body",
    *,
    is_for_runs: bool = False,
    is_machine_wide: bool = False,
) -> Route:
    """Make the route of a call. `session` is None if the call affects other sessions, the machine's files, or all
    sessions."""
    return Route("POST", f"/call/{name}", scope, session, is_for_runs, is_machine_wide=is_machine_wide)
