/**
 * The verbs that the page offers, with their texts from the table of verbs: whether they are dangerous, what undoes
 * them, and how to write them as a command or for curl.
 */
import {call} from './api.js';

/**
 * @typedef {{label: string, words: string, danger?: boolean, undo?: {verb: string, label: string, body?: object},
 *   fields?: Array<{name: string, label: string, hint?: string, option?: string, isRequired?: boolean, type?: string}>}} Action
 */

/** @type {Record<string, Action>} */
export const ACTIONS = {
  activate: {label: 'Run now', words: 'Run the session now, even if nothing is owed.'},
  resume: {label: 'Resume', words: 'Lift the hold. It runs only if something is owed.', undo: {verb: 'sleep', label: 'Sleep again'}},
  sleep: {
    label: 'Sleep', words: 'Hold the session until it is resumed. Changes are remembered, none is lost.',
    undo: {verb: 'resume', label: 'Resume'},
    fields: [
      {name: 'seconds', label: 'For how long', hint: '2h, 30m; empty: until resumed', option: '--for', type: 'duration'},
      {name: 'words', label: 'Why', hint: 'shown in the list', option: '--reason'},
    ],
  },
  interrupt: {label: 'Interrupt', words: 'Stop the present step now and keep its progress. Its causes are parked.', undo: {verb: 'activate', label: 'Continue'}},
  cancel: {label: 'Cancel run', words: 'Abandon the run, or the queued wake. Its causes count as seen.', danger: true, undo: {verb: 'activate', label: 'Run again'}},
  answer: {label: 'Answer', words: "Answer the session's question."},
  send: {label: 'Send', words: 'Put a message in the mailbox of the session.'},
  ask: {label: 'Ask', words: 'Ask an agent, and read its answer.'},
  remember: {
    label: 'Remember', words: 'Keep a fact.', undo: {verb: 'forget', label: 'Forget'},
    fields: [
      {name: 'key', label: 'Key', isRequired: true}, {name: 'value', label: 'Value', isRequired: true},
      {name: 'rationale', label: 'Because', option: '--because'},
    ],
  },
  forget: {label: 'Forget', words: 'Delete the fact. Its history stays in the log.', danger: true, undo: {verb: 'remember', label: 'Remember again'},
    fields: [{name: 'rationale', label: 'Because', option: '--because'}]},
  save: {
    label: 'Mark a checkpoint', words: 'Give this position a name, so that you can return to it.',
    fields: [{name: 'mark', label: 'Name of the checkpoint', option: '--as', isRequired: true}, {name: 'note', label: 'Note', option: '--note'}],
  },
  fork: {
    label: 'Fork from here', words: 'A new session from this position. It sleeps until it is activated.',
    undo: {verb: 'terminate', label: 'Terminate the fork'},
    fields: [{name: 'new', label: 'Name of the fork', option: '--as', isRequired: true}],
  },
  rewind: {
    label: 'Rewind to here', words: 'Go back to this position. Nothing is deleted: later records stay in the log and can be forked.',
    danger: true, undo: {verb: 'rewind', label: 'Rewind back'},
    fields: [{name: 'files', label: 'Also restore the files its runs changed since', option: '--files', type: 'flag'}],
  },
  rename: {label: 'Rename', words: 'Give the session and its file another name. Identity and history stay.', fields: [{name: 'new', label: 'New name', isRequired: true}]},
  terminate: {label: 'Terminate', words: 'Close the session for good. Its log is kept.', danger: true, undo: {verb: 'open', label: 'Open again', body: {again: true}},
    fields: [{name: 'reason', label: 'Why', option: '--reason'}]},
  open: {label: 'Open again', words: 'Reopen the session with its history.', undo: {verb: 'terminate', label: 'Terminate'}},
};

/** The values that the command line takes by position, in order. Other values are options. */
const POSITIONS = {
  answer: ['name', 'text'], send: ['name', 'text'], ask: ['name', 'text'], remember: ['name', 'key', 'value'],
  forget: ['name', 'key'], rewind: ['name', 'to'], rename: ['name', 'new'],
};
const OPTIONS = {
  seconds: '--for', words: '--reason', rationale: '--because', mark: '--as', note: '--note', agent: '--agent', at: '--at',
  reason: '--reason', files: '--files', again: '--again', fresh: '--fresh', new: '--as',
};

/** Quote a text as one word of a shell. */
export const quote = text => (/^[\w@%+=:,./#-]+$/.test(text) ? text : `'${String(text).replaceAll("'", `'\\''`)}'`);

/** Write a call as a command of a shell. */
export function asCommand(verb, body) {
  const positions = POSITIONS[verb] ?? ['name'];
  const typed = positions.filter(name => body[name] !== undefined).map(name => quote(String(body[name])));
  for (const [name, value] of Object.entries(body)) {
    if (positions.includes(name) || value === undefined || value === null || value === '' || value === false) continue;
    const option = OPTIONS[name] ?? `--${name}`;
    typed.push(value === true ? option : `${option} ${quote(name === 'seconds' ? `${value}s` : String(value))}`);
  }
  return ['wakeful', verb, ...typed].join(' ');
}

/** Write a call for curl. curl reads the token from a file, so the command never contains it. */
export function asCurl(verb, body) {
  return [
    `curl -X POST ${location.origin}/call/${verb} \\`,
    `  -H "Authorization: Bearer $(cat "$WAKEFUL_TOKEN_FILE")" -H 'Content-Type: application/json' \\`,
    `  -d ${quote(JSON.stringify(body))}`,
  ].join('\n');
}

/** Write a GET request for curl. */
export function asCurlGet(path) {
  return `curl -H "Authorization: Bearer $(cat "$WAKEFUL_TOKEN_FILE")" ${quote(location.origin + path)}`;
}

const UNITS = {s: 1, m: 60, h: 3600, d: 86400};

/** Convert `2h` to seconds. null if the text is not a duration. */
export function readDuration(text) {
  const found = /^(\d+(?:\.\d+)?)\s*([smhd])$/.exec(text.trim());
  return found ? Number(found[1]) * UNITS[found[2]] : null;
}

/** Find the call that undoes a call, or null. */
export function undoOf(verb, body, answer, before) {
  const undo = ACTIONS[verb]?.undo;
  if (!undo) return null;
  const name = verb === 'fork' ? body.new : body.name;
  if (verb === 'rewind') return {label: undo.label, run: () => call('rewind', {name, to: String(before?.seq)})};
  if (verb === 'forget') return {label: undo.label, run: () => call('remember', {name, key: body.key, value: before?.value})};
  if (verb === 'remember') return {label: undo.label, run: () => call('forget', {name, key: body.key})};
  return {label: undo.label, run: () => call(undo.verb, {name, ...(undo.body ?? {})})};
}
