"""The table of verbs: every verb of every family by name, in the order of the help.

This is a separate module, because it imports the families, and the families import `verb`.
"""

from __future__ import annotations

from wakeful.verbs import history, lifecycle, looks, memory, overviews, people, specs, upkeep
from wakeful.verbs.verb import SECTIONS, Role, Route, Verb

# A new family is added here; a new verb is added to its family.
FAMILIES = (looks, overviews, lifecycle, history, memory, specs, people, upkeep)
VERBS: dict[str, Verb] = {verb.name: verb for family in FAMILIES for verb in family.VERBS}
# The verbs of the command line, section by section.
COMMANDS: dict[str, Verb] = {
    name: verb for section in SECTIONS for name, verb in VERBS.items() if verb.section == section
}


def list_routes() -> dict[str, Route]:
    """Return all routes by key, such as "GET /sessions". Verbs that share a route have the same value for it."""
    return {route.key: route for verb in VERBS.values() for route in verb.routes}


def list_roles() -> dict[str, Role | None]:
    """Return the lowest role that may call each POST route, by the key of the route. None if no role is enough."""
    return {
        route.key: None if route.is_machine_wide or route.scope == "owner" else verb.role
        for verb in VERBS.values()
        for route in verb.routes
        if route.method == "POST"
    }
