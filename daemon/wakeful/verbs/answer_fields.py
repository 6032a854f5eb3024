"""The fields of the longer HTTP answers. The families of verbs refer to them.

A field whose help contains `null` may be null. An optional field may be absent. The OpenAPI description is generated
from these fields, and the tests of the API compare every answer with that description.
"""

from __future__ import annotations

from wakeful.verbs.verb import Field

LAST_RUN = (
    Field("run", "number", "its number"),
    Field("outcome", "text", "succeeded, failed, cancelled, interrupted or lost"),
    Field("started_at", "moment", "when it started"),
    Field("finished_at", "moment", "when it ended"),
    Field("causes", "list", "the causes of its wake"),
)
NEED = (
    Field("kind", "text", "question, permission, approval, trust, decision or conflict"),
    Field("text", "text", "the question, or what happened"),
    Field("until", "moment", "when it is denied or continues by itself, or null"),
)
# A session in a list.
ROW = (
    Field("name", "text", "the session's name"),
    Field("id", "text", "its identity, which a rename keeps"),
    Field("state", "text", "suspended, running, sleeping, terminated or archived"),
    Field("reason", "text", "why it sleeps, or null"),
    Field("agent", "text", "the agent that works in it, or null"),
    Field("priority", "number", "0 to 100, or null"),
    Field("queued", "text", "the reason its wake waits, or null"),
    Field("owed", "list", "the bindings with a newer version than the one last seen"),
    Field("runs", "number", "how many runs it has had"),
    Field("last_run", "object", "the last run that ended, or null", fields=LAST_RUN),
    Field("seq", "number", "the seq of its newest record"),
    Field("run", "object", "the run under way, or null", fields=(
        Field("run", "number", "its number"),
        Field("started_at", "moment", "when it started"),
    )),
    Field("command", "text", "its command in one line; null if an agent works in it or it has no run"),
    Field("folder", "text", "the folder in its name, or null"),
    Field("template", "text", "the template that declares it, or null"),
    Field("tags", "list", "the tags of its spec"),
    Field("needs", "object", "the action it needs from a person, or null", fields=NEED),
    Field("next", "object", "the next thing that happens by itself, or null", fields=(
        Field("what", "text", "goes on, denied, next start or next slot"),
        Field("at", "moment", "when it happens"),
    )),
    Field("remark", "text", "why it rests or waits, in a few words; may be empty"),
    Field("gone", "text", "terminated or undeclared, or null"),
    Field("today", "object", "the cost of its runs that ended today (UTC), or null", fields=(
        Field("runs", "number", "how many runs ended"),
        Field("failed", "number", "how many of them failed"),
        Field("tokens", "number", "model tokens used"),
        Field("usd", "number", "cost in USD"),
    )),
    Field("present", "list", "with present: the people who look at it or work in it now", is_optional=True),
)  # fmt: skip
# The answer of `show`. At a past position, fields that the log does not record are absent.
SESSION = (
    *(field._replace(is_optional=field.name not in {
        "name", "id", "state", "reason", "agent", "priority", "runs", "last_run", "seq", "run", "tags",
    }, fields=() if field.name == "run" else field.fields) for field in ROW if field.name != "present"),
    Field("opened_at", "moment", "when it was opened"),
    Field("last_active_at", "moment", "when something last happened in it, or null"),
    Field("objective", "text", "the objective of its spec, or null"),
    Field("root", "text", "the folder it works in, or null"),
    Field("people", "object", "the people named in its spec, with their roles"),
    Field("retention", "object", "how long it is kept, or null"),
    Field("confinement", "object", "what its runs may reach, or null"),
    Field("budget", "object", "its limits and the amounts spent, by period, or null"),
    Field("approve", "text", "before_run if a person must approve every run, or null"),
    Field("hold", "object", "why it sleeps: kind, words and until, or null"),
    Field("wake", "object", "its open wake with causes, or null"),
    Field("kept_outputs", "list", "outputs of the last run that were kept but not written to their paths"),
    Field("successes", "number", "how many of its runs succeeded"),
    Field("mailbox", "number", "how many messages were sent to it"),
    Field("tokens", "number", "the length of its conversation in tokens"),
    Field("facts", "list", "its facts with provenance"),
    Field("handoff", "text", "the hand-off to the next run, or null"),
    Field("memory", "object", "the memory of its conversation, by key"),
    Field("todo", "list", "its to-do list"),
    Field("conversation", "object", "messages, bytes and summary of its conversation"),
    Field("checkpoints", "list", "its checkpoints"),
    Field("conflicts", "list", "open merge conflicts"),
    Field("origin", "object", "the session it was forked or loaded from, or null"),
    Field("model", "text", "the model it was migrated to, or null"),
    Field("workspace", "text", "its own folder for files (of a fork), or null"),
    Field("detached", "list", "write bindings that are disabled"),
    Field("bindings", "list", "its bindings, each with the version last seen, the present version and the last check",
          fields=(
        Field("name", "text", "its name in the spec"),
        Field("kind", "text", "file, commits, cron, every, message, session, probe, service, …"),
        Field("what", "text", "its target in words"),
        Field("wake", "flag", "does a change wake the session?"),
        Field("access", "text", "read, write or both"),
        Field("seen", "text", "the version that the session has dealt with, or null"),
        Field("good", "text", "the version of its last success, or null"),
        Field("version", "text", "the version now, or null", is_optional=True),
        Field("owed", "flag", "is the version newer than the one seen?", is_optional=True),
        Field("drift", "flag", "did something else change this output after the session wrote it?",
              is_optional=True),
        Field("next_due", "moment", "when a clock falls due, or null", is_optional=True),
        Field("why_not", "text", "why it does not wake the session now, in a sentence", is_optional=True),
        Field("next_look", "moment", "when it is checked next; null: only after a change is reported",
              is_optional=True),
        Field("looked_at", "moment", "when it was last checked; null: never", is_optional=True),
        Field("dirty", "flag", "was a change reported but not yet checked?", is_optional=True),
        Field("absent", "flag", "does its target not exist?", is_optional=True),
        Field("problem", "text", "why it cannot be checked, or null", is_optional=True),
        Field("held", "text", "the reason its check waits, or null", is_optional=True),
        Field("degraded", "text", "why it is watched less well than it should be, or null", is_optional=True),
        Field("watched", "text", "how it is watched, or null", is_optional=True),
    )),
    Field("upstream", "list", "sessions whose output it reads", is_optional=True),
    Field("readers", "list", "sessions that read what it writes", is_optional=True),
    Field("wakes_on_failure", "list", "sessions that its failure wakes", is_optional=True),
    Field("woken_by_failure_of", "list", "sessions whose failure wakes it", is_optional=True),
    Field("forks", "list", "its forks", is_optional=True),
    Field("last_runs", "list", "its newest runs", is_optional=True),
    Field("problem", "text", "the error in its spec file, or null", is_optional=True),
    Field("servers_down", "list", "MCP servers that its last run could not reach", is_optional=True),
    Field("agents", "list", "the agents that can answer a message to it", is_optional=True),
    Field("present", "list", "the people who look at it or work in it now", is_optional=True),
    Field("state_hash", "text", "the hash of its state"),
    Field("participants", "list", "the authors of its records, with their roles"),
)  # fmt: skip
# The answer of `why`: about a session, a run or a path.
WHY = (
    Field("about", "text", "session, run or path"),
    Field("name", "text", "the session", is_optional=True),
    Field("state", "text", "its state", is_optional=True),
    Field("reason", "text", "why it sleeps, or null", is_optional=True),
    Field("queued", "text", "the reason its wake waits, or null", is_optional=True),
    Field("owed", "list", "bindings with a newer version than the one last seen", is_optional=True),
    Field("changed", "list", "changed bindings that can wake it", is_optional=True),
    Field("next_try", "moment", "when it is tried again by itself, or null", is_optional=True),
    Field("next_slot", "object", "binding and at of its next slot, or null", is_optional=True),
    Field("last_run", "object", "its last run, or null", is_optional=True),
    Field("hint", "text", "what its last run was denied, and how to allow it, or null", is_optional=True),
    Field("servers_down", "list", "MCP servers that its last run could not reach", is_optional=True),
    Field("wake_causes", "list", "the causes of its open wake", is_optional=True),
    Field("deliveries", "list", "the latest deliveries to its webhooks", is_optional=True),
    Field("words", "list", "the answer in sentences"),
    Field("links", "list", "the runs that led to it, back to the first cause", is_optional=True),
    Field("session", "text", "the session of the run", is_optional=True),
    Field("run", "number", "the run's number", is_optional=True),
    Field("path", "text", "the path", is_optional=True),
    Field("outputs", "list", "the sessions that write it, with the run that wrote it last", is_optional=True),
    Field("inputs", "list", "the bindings that read it, with the version last found", is_optional=True),
    Field("last_change", "object", "its last change, with the fields at and change, or null", is_optional=True),
)
PART = (
    Field("name", "text", "the name of the part"),
    Field("tokens", "number", "its estimated length in tokens"),
    Field("text", "text", "its text"),
)
CONTEXT = (
    Field("session", "text", "the session's name"),
    Field("state", "text", "running or at rest"),
    Field("wanted", "flag", "would it run now?"),
    Field("run", "number", "the number of its next run"),
    Field("agent", "text", "the agent"),
    Field("model", "text", "the model, or null"),
    Field("causes", "list", "the causes of the wake, if it woke now"),
    Field("instructions", "list", "the instructions, part by part", fields=PART),
    Field("conversation", "list", "the conversation so far"),
    Field("pending", "list", "tool calls that are not carried out yet"),
    Field("later", "list", "messages after the pending tool calls"),
    Field("opening", "list", "the opening text of the run, part by part", fields=PART),
    Field("tokens", "object", "token counts: parts, total, window, window_source and compress_at"),
    Field("tools", "list", "the tools that were last offered to the model, or null"),
    Field("counted", "object", "the token count last reported by the provider, or null"),
)
HEALTH = (
    Field("version", "text", "the daemon's version"),
    Field("pid", "number", "the daemon's process id"),
    Field("started_at", "moment", "when the daemon started"),
    Field("specs", "text", "the folder of specs"),
    Field("state", "text", "the state folder"),
    Field("read_only", "text", "why nothing can be recorded, or null"),
    Field("sessions", "number", "how many sessions there are"),
    Field("running", "number", "how many sessions are running"),
    Field("targets", "number", "how many targets are watched"),
    Field("problems", "object", "refused specs, with the reason for each"),
    Field("defects", "object", "unexpected errors while checking bindings, with their counts"),
    Field("degraded", "list", "bindings that are watched less well than they should be"),
    Field("damaged", "list", "sessions whose records cannot be read"),
    Field("guarded", "list", "sessions held by the loop guard"),
    Field("unfinished_merges", "list", "merges that were cut short"),
    Field("workspaces", "list", "folders of forks that ended"),
    Field("isolation", "object", "the isolation that this machine can enforce"),
    Field("trust", "object", "folders of specs, and specs that wait to be trusted"),
    Field("notifiers", "list", "the notifiers, as GET /notify lists them"),
    Field("limits", "object", "the limits, and the sessions that are near one"),
    Field("blobs", "object", "number and size of the kept file contents and outputs"),
    Field("tokens", "object", "the file of tokens, and its problem"),
    Field("connections", "object", "how many clients are connected"),
    Field("http", "object", "the address of the TCP port, and counts of refused requests"),
)
VERSION = (
    Field("version", "text", "the daemon's version"),
    Field("pid", "number", "the daemon's process id"),
    Field("started_at", "moment", "when the daemon started"),
    Field("specs", "text", "the folder of specs"),
    Field("state", "text", "the state folder"),
    Field("socket", "text", "the control socket"),
    Field("http", "text", "the address of the TCP port; null: it is closed"),
)
# One line of a progress stream. The last line has `words`, or is a problem.
PROGRESS = (
    Field("done", "number", "the amount done so far", is_optional=True),
    Field("total", "number", "the total amount", is_optional=True),
    Field("words", "text", "in the last line: what was done", is_optional=True),
    Field("name", "text", "in the last line: the session", is_optional=True),
    Field("path", "text", "in the last line: the bundle", is_optional=True),
    Field("digest", "text", "in the last line: the digest of the bundle", is_optional=True),
    Field("records", "number", "in the last line: the number of records", is_optional=True),
    Field("head", "text", "in the last line: the hash of the newest record", is_optional=True),
    Field("move", "text", "of a move: its id", is_optional=True),
    Field("receipt", "object", "of a session that arrived: the receipt for the host it came from", is_optional=True),
    Field("origin", "text", "of a load: the id of the original session", is_optional=True),
    Field("spec", "object", "of a load: what its spec asks for", is_optional=True),
    Field("reach", "list", "of a load: what its runs could reach", is_optional=True),
    Field("needs_trust", "text", "of a load: why it must be trusted first, or null", is_optional=True),
    Field("sessions", "list", "of due: the sessions that were archived", is_optional=True),
    Field("outputs", "list", "of due: outputs of old runs", is_optional=True),
    Field("type", "text", "in the last line, of a problem: its type", is_optional=True),
    Field("title", "text", "in the last line, of a problem: its title", is_optional=True),
    Field("status", "number", "in the last line, of a problem: its HTTP status", is_optional=True),
    Field("detail", "text", "in the last line, of a problem: what to do", is_optional=True),
)
TOKEN = (
    Field("id", "text", "its id"),
    Field("scopes", "list", "the scopes it has"),
    Field("session", "text", "the only session it reaches, or null"),
    Field("made_at", "moment", "when it was created"),
    Field("expires_at", "moment", "when it expires, or null"),
    Field("is_over", "flag", "has it expired?"),
    Field("note", "text", "who has it and what for, or null"),
    Field("is_browser", "flag", "is it the login of a browser?"),
    Field("used_at", "moment", "when it was last used, or null"),
    Field("person", "text", "the person whose token it is, or null"),
)
TRUST_LIST = (
    Field("folders", "list", "folders of specs, and whether they are pinned"),
    Field("trusted", "number", "how many specs are trusted"),
    Field("waiting", "list", "specs that wait to be trusted, with the reason for each"),
)
TRUST_SHOWN = (
    Field("name", "text", "the session or agent"),
    Field("digest", "text", "the digest of the text shown; POST /trust/accept takes it"),
    Field("reason", "text", "why it waits, or null"),
    Field("spec", "object", "what the spec asks for, or null"),
    Field("agent", "object", "the models, programs and servers of its agent, or null"),
    Field("reach", "list", "what its runs could reach"),
    Field("files", "list", "each file, and how it differs from the trusted text"),
)
TRUSTED = (
    Field("name", "text", "the session, agent or project that was trusted"),
    Field("words", "text", "what was done"),
    Field("sessions", "list", "the sessions it concerns", is_optional=True),
    Field("folder", "text", "the folder of a project", is_optional=True),
)
ATTACHED = (
    *(field._replace(is_optional=True) for field in TRUSTED),
    Field("project", "text", "without digest: the name it would have", is_optional=True),
    Field("digest", "text", "without digest: the digest of the text shown", is_optional=True),
    Field("agents", "list", "without digest: its agents", is_optional=True),
    Field("refused", "object", "without digest: specs with errors", is_optional=True),
)
TRACE = (
    Field("name", "text", "the session"),
    Field("run", "number", "the run that was traced"),
    Field("outcome", "text", "how it ended"),
    Field("reason", "text", "why it failed, or null"),
    Field("observed", "flag", "was it run with nothing denied (--observe)?"),
    Field("denied", "list", "each access that was denied"),
    Field("more", "number", "how many more denials are not listed"),
    Field("words", "text", "what the trace could not see, or null"),
    Field("paste", "object", "the keys of a spec that would allow it"),
    Field("lines", "list", "the same keys as YAML lines to paste"),
    Field("absent", "list", "paths in `paste` that do not exist"),
)
# The first line of a replay lists missing inputs. The last line is the report.
REPLAYED = (
    Field("name", "text", "the session", is_optional=True),
    Field("run", "number", "the run's number", is_optional=True),
    Field("missing", "list", "input files whose contents were not kept", is_optional=True),
    Field("brought", "list", "current files of --command that were copied in", is_optional=True),
    Field("same", "flag", "did it end like the recorded run and write the same files?", is_optional=True),
    Field("exit_code", "object", "the exit code, recorded and now", is_optional=True),
    Field("signal", "object", "the signal that ended it, recorded and now", is_optional=True),
    Field("problem", "text", "why it could not run to its end, or null", is_optional=True),
    Field("files", "list", "each file it wrote, compared with the recorded run", is_optional=True),
    Field("output", "object", "its output, compared with the recorded run, or null", is_optional=True),
    Field("kept", "text", "the folder of the kept copy, or null", is_optional=True),
    Field("seconds", "number", "how long it took", is_optional=True),
)
PERSON = (
    Field("name", "text", "their name"),
    Field("role", "text", "their role for every session, or null"),
    Field("sessions", "object", "their roles for single sessions"),
    Field("reach", "text", "what they may do, in a sentence"),
    Field("made_at", "moment", "when they were added"),
    Field("made_by", "text", "who added them"),
)
NOTIFIER = (
    Field("name", "text", "its name"),
    Field("kind", "text", "command, webhook, mail, ntfy, url or desktop"),
    Field("target", "text", "where its messages go"),
    Field("on", "list", "the occasions it reports, as in the key `on`"),
    Field("digest_seconds", "number", "how long messages are collected before one is sent, or null"),
    Field("delivered", "number", "how many messages arrived"),
    Field("given_up", "number", "how many messages could not be delivered"),
    Field("waiting", "number", "how many messages wait"),
    Field("missed", "number", "how many messages were dropped because too many waited"),
    Field("disabled", "text", "why it is disabled, or null"),
    Field("is_troubled", "flag", "does it fail repeatedly?"),
    Field("trying", "object", "the delivery under way: id, attempts, next_at and problem, or null"),
    Field("ended", "list", "the latest completed deliveries"),
)
DELIVERED = (
    Field("words", "text", "the result of the delivery, in a sentence"),
    Field("name", "text", "the session"),
    Field("binding", "text", "its binding"),
    Field("delivery", "text", "the id of the delivery"),
    Field("event", "text", "the type that the sender gives it, or null"),
    Field("position", "number", "its position in the mailbox of the binding; null: it was filtered"),
    Field("is_filtered", "flag", "did the filter `only` drop it?"),
    Field("is_repeated", "flag", "was it a duplicate?"),
    Field("record", "number", "the seq of its record, or null"),
)
# An event of `live`, see docs/http.md.
LIVE = (
    Field("position", "number", "the log position up to which the data is current", is_optional=True),
    Field("sessions", "list", "of a snapshot: every row", is_optional=True),
    Field("people", "list", "of a snapshot or of presence: the people present", is_optional=True),
    Field("records", "list", "of changes: records in brief", is_optional=True),
    Field("rows", "list", "of changes: the rows that changed", is_optional=True),
    Field("gone", "list", "of changes: the ids of sessions that are gone", is_optional=True),
    Field("session", "text", "of words: the session whose agent speaks, or null", is_optional=True),
    Field("text", "text", "of words: the text", is_optional=True),
)
# The fields that `follow` adds to a record.
FOLLOWED = (
    Field("words", "text", "with words: the record as a line of text, or null", is_optional=True),
    Field("live", "object", "with live: an agent's words as they come, instead of a record", is_optional=True),
)
# The fields of a record.
RECORD = (
    Field("seq", "number", "its number within its session"),
    Field("at", "moment", "when it was recorded"),
    Field("kind", "text", "its kind, such as run_finished"),
    Field("author", "text", "its author, such as person:ana, run:payroll#7 or wakeful"),
    Field("run", "number", "the run it belongs to, or null"),
    Field("payload", "object", "its content; null: erased or archived"),
    Field("hash", "text", "the hash of the chain up to this record"),
)
# The fields of a record together with its session.
NAMED_RECORD = (Field("session", "text", "the name of its session"), Field("id", "text", "its session's id"), *RECORD)
FACT = (
    Field("key", "text", "its key"),
    Field("value", "text", "its value"),
    Field("author", "text", "who stored it"),
    Field("seq", "number", "the seq of the record that holds it"),
    Field("rationale", "text", "the reason given for it, or null"),
    Field("confidence", "number", "0 to 1, or null"),
    Field("source", "number", "the seq of the record that it comes from, or null"),
)
# The answer of `health`. The answer of `doctor` (HEALTH) has more about the daemon.
HEALTH_ANSWER = (
    Field("healthy", "flag", "true if nothing needs a person; a caller without a token gets only this field"),
    Field("at", "moment", "the time of this answer", is_optional=True),
    Field("version", "text", "the daemon's version", is_optional=True),
    Field("started_at", "moment", "when the daemon started", is_optional=True),
    Field(
        "findings",
        "list",
        "what, `level`, session, words, since and mend (a command) of each, worst first",
        is_optional=True,
    ),
    Field("left_out", "number", "how many further findings are not listed", is_optional=True),
    Field("sessions", "object", "how many sessions are in each state, queued, failed and asking", is_optional=True),
    Field(
        "log",
        "object",
        "position, anchor, read_only, and verified (the last `wakeful verify`, or null)",
        is_optional=True,
    ),
    Field("disk", "object", "free_bytes and total_bytes of the disk that holds the log", is_optional=True),
    Field(
        "watches",
        "object",
        "how many targets there are, how many are polled, and how many cannot be read",
        is_optional=True,
    ),
    Field("refusals", "object", "counts of refused requests since the daemon started, by reason", is_optional=True),
)
