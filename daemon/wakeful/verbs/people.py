"""The verbs about people: their roles, and who is present."""

from __future__ import annotations

from wakeful.verbs.answer_fields import PERSON
from wakeful.verbs.verb import NAME, Argument, Field, Route, Verb, reads

PERSON_NAME = Argument("name", help="The person's name.")
FOR_SESSION = Argument("session", is_required=False, help="The session that the role is for. Default: all.")
WORDS = Field("words", "text", "what was done")
ROLES = ("maintainer", "contributor", "observer")

# Only the daemon's owner may call these routes; no token is enough.
PEOPLE = (
    Route(
        "GET",
        "/people",
        "owner",
        words="list people, their roles, and the changes",
        takes=(),
        gives=(
            Field(
                "people",
                "list",
                "the people",
                fields=(
                    *PERSON,
                    Field("tokens", "number", "how many tokens the person has"),
                    Field("account", "text", "their account on this machine, or null"),
                ),
            ),
            Field("changes", "list", "at, by, name and words of each change"),
        ),
    ),
    Route(
        "POST",
        "/people/add",
        "owner",
        words="add a person",
        takes=(PERSON_NAME, Argument("role", "choice", choices=ROLES, is_required=True), FOR_SESSION),
        gives=(*PERSON, WORDS),
    ),
    Route(
        "POST",
        "/people/role",
        "owner",
        words="change a person's role; null removes it",
        takes=(PERSON_NAME, Argument("role", "choice", choices=ROLES, is_required=False), FOR_SESSION),
        gives=(*PERSON, WORDS),
    ),
    Route(
        "POST",
        "/people/remove",
        "owner",
        words="remove a person and their tokens",
        takes=(PERSON_NAME,),
        gives=(
            Field("name", "text", "their name"),
            WORDS,
            Field("revoked", "number", "how many tokens were revoked"),
        ),
    ),
)

SAYS_PRESENT = Route(
    "POST",
    "/presence",
    None,
    words="report that you are viewing or writing to a session",
    takes=(NAME, Argument("doing", "choice", choices=("looks", "writes"), default="looks")),
)

VERBS = (
    Verb(
        name="presence",
        section="Look",
        words="list the people who view a session or work in it now",
        help="List the people present in a session: those who viewed or called it within the last minute.",
        examples=(
            "wakeful presence",
            "wakeful presence payroll",
        ),
        arguments=(Argument("name", is_required=False, completion="session"),),
        cli_module="verbs.people",
        routes=(reads("/presence", is_filtered=True, is_from_log=False), SAYS_PRESENT),
        answer=(
            Field("person", "text", "the name of a person, or token:ID"),
            Field("session", "text", "the session's name"),
            Field("id", "text", "the session's id"),
            Field("doing", "text", "looks or writes"),
            Field("since", "moment", "since when the person is present, without a gap of a minute"),
        ),
        shape="list",
    ),
    Verb(
        name="people",
        section="Keep",
        words="add, list, change and remove people and their roles",
        help="""Add a person, with a role for every session or for one.

        An `observer` may look. A `contributor` may also talk to a session and start its runs. A `maintainer` may do
        everything in the sessions of the role. Only the daemon's own user may manage secrets, tokens, people, trust
        and machine-wide settings. `wakeful token new --person NAME` creates a token for a person; the log then names
        the person as the author. A changed role takes effect with the next request.""",
        examples=(
            "wakeful people add ana --role maintainer",
            "wakeful people add ben --role contributor --session payroll",
            "wakeful people role ben --role observer     # for every session",
            "wakeful people role ben --role none --session payroll",
            "wakeful people list",
            "wakeful people changes",
            "wakeful people remove ben",
        ),
        arguments=(
            Argument("what", "choice", choices=("list", "add", "role", "remove", "changes"), only="terminal"),
            Argument("name", metavar="[NAME]", is_required=False, only="terminal"),
            Argument(
                "role",
                "choice",
                "--role",
                help="The role; `none` removes it.",
                choices=("maintainer", "contributor", "observer", "none"),
                only="terminal",
            ),
            Argument(
                "session",
                option="--session",
                help="The role is for this session and its forks. Default: for every session.",
                metavar="NAME",
                completion="session",
                only="terminal",
            ),
        ),
        cli_module="verbs.people",
        routes=PEOPLE,
        undo="people remove",
    ),
)
