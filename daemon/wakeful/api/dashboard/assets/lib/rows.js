/** Texts for rows: the state to show, the reason, and the groups of the list. Pure. */
import {needOf} from './store.js';

/** Choose the state to show. A question or a failure comes before the state that the daemon reports. */
export function shownState(row) {
  const need = needOf(row);
  if (need) return need;
  if (row.state === 'suspended' && row.queued) return 'queued';
  return row.state;
}

/** Describe why a session is in its state, or does not run, from the row alone. */
export function reasonOf(row) {
  if (row.state === 'running') return row.run ? `run ${row.run.run} is under way` : 'a run is under way';
  if (row.needs) return trimCommand(row.needs.text);
  if (row.state === 'sleeping') return trimCommand(row.reason ?? 'asleep');
  if (row.queued) return `waits: ${row.queued}`;
  if (row.owed?.length) return `new: ${row.owed.join(', ')}`;
  if (!row.last_run) return row.runs ? 'nothing new' : 'has not run yet';
  if (['failed', 'lost'].includes(row.last_run.outcome)) return `${row.last_run.outcome}: ${causeWords(row.last_run.causes)}`;
  return `nothing new since ${causeWords(row.last_run.causes)}`;
}

/** Remove the shell command at the end of a reason, because the page has buttons instead. */
export const trimCommand = words => words.replace(/\s*\(wakeful answer [^)]*\)$/, '').replace(/: wakeful answer \S+ yes, or no$/, '').replace(/^asks: /, '');

export function causeWords(causes) {
  if (!causes?.length) return 'the last run';
  // A question also has a cause of kind `message`. That cause is left out.
  const told = causes.some(isQuestion) ? causes.filter(cause => cause.kind !== 'message') : causes;
  return told.slice(0, 2).map(causeWord).join(', ') + (told.length > 2 ? ` and ${told.length - 2} more` : '');
}

export function causeWord(cause) {
  if (cause.kind === 'first') return 'first sight';
  if (isQuestion(cause)) return `${cause.reason.replace(ASKED_BY, '')} asked`;
  if (cause.kind === 'activation') return cause.reason ? `run by hand (${cause.reason})` : 'run by hand';
  if (cause.kind === 'message') return 'a message';
  if (cause.kind === 'webhook') return `a delivery (${cause.binding})`;
  if (cause.paths?.length) {
    const path = cause.paths[0].path.split('/').pop();
    return `${path} ${cause.paths[0].change}${cause.paths.length > 1 ? ` +${cause.paths.length - 1}` : ''}`;
  }
  if (cause.commits?.length) return `${cause.commits.length === 1 ? 'a commit' : `${cause.commits.length} commits`} (${cause.binding})`;
  return cause.reason ? `${cause.binding}: ${cause.reason}` : cause.binding;
}

/** The reason of an activation by which a person asked an agent: `wakeful ask`. */
export const ASKED_BY = /^asked by person:/;
const isQuestion = cause => cause.kind === 'activation' && ASKED_BY.test(cause.reason ?? '');

/** Replace authors in a text by names for people: `person:ana` becomes `ana`, a run of this session becomes `run 3`. */
export const nameAuthors = (words, session) => words.replaceAll('person:', '').replaceAll(session ? `run:${session}#` : 'run:', session ? 'run ' : '');

/** Find the group of a row. By group: `hr/payroll` -> hr; `ticket@17` -> ticket@. */
export function groupOf(row, by) {
  if (by === 'agent') return row.agent ?? 'no agent';
  if (by === 'state') return shownState(row);
  if (by === 'none') return '';
  return row.template ? `${row.template.replace(/@$/, '')}@` : row.folder ?? '';
}

/** Return the name without the part that its group already shows. */
export function shortName(row, group, by) {
  return by === 'group' && group && row.name.startsWith(group) ? row.name.slice(group.length).replace(/^\//, '') : row.name;
}

export const FILTERS = [
  ['all', 'All'], ['needs', 'Needs you'], ['running', 'Running'], ['queued', 'Queued'], ['sleeping', 'Sleeping'], ['suspended', 'At rest'], ['gone', 'Gone'],
];

export function filterOf(row) {
  if (row.gone || row.state === 'archived') return 'gone';
  if (row.state === 'suspended' && row.queued) return 'queued';
  return row.state;
}

export function isWanted(row, filter, text) {
  const kind = filterOf(row);
  if (filter === 'needs' ? !needOf(row) : filter === 'all' ? kind === 'gone' : kind !== filter) return false;
  if (!text) return true;
  const said = `${row.name} ${row.agent ?? ''} ${row.reason ?? ''} ${row.command ?? ''} ${(row.tags ?? []).join(' ')}`.toLowerCase();
  return text.toLowerCase().split(/\s+/).every(word => said.includes(word));
}
