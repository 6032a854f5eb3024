/**
 * The state of the page: the rows of all sessions at one position of the log, the latest records, answers in progress,
 * and the people who are present. Only `live.js` changes this state, except by `takePresenceOf`. An unchanged row stays
 * the same object, so that its line is not drawn again.
 */
import {batch, computed, signal} from './ui.js';

const RECORDS_KEPT = 500;

/** @type {import('./ui.js').Signal<number|null>} the log position that the rows reflect. */
export const position = signal(null);
/** The opaque id of the last event, after which a stream continues. */
export const lastEvent = signal(null);
/** state: `wait`, `on`, `off` or `shut`. */
export const link = signal({state: 'wait', since: Date.now()});
export const isLeader = signal(false);
/** Session id -> row. The map is replaced with every change, its rows are not. */
export const rows = signal(new Map());
export const presence = signal([]);
/** The latest records, oldest first. */
export const records = signal([]);
/** Session name -> text of the answer in progress. */
export const words = signal(new Map());
export const isLoaded = computed(() => position.value !== null);

const listeners = new Set();

/** Call the listener for each batch of records. Returns a function that removes the listener. */
export function onRecords(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function takeSnapshot(data) {
  batch(() => {
    const old = rows.value;
    rows.value = new Map(data.sessions.map(row => [row.id, keepSame(old.get(row.id), row)]));
    presence.value = data.people ?? [];
    position.value = data.position;
  });
  for (const listener of listeners) listener([], true);
}

export function takeChanges(data) {
  // A late event must not undo a newer one. An equal position is fine, because rows also change without a record.
  if (position.value !== null && data.position < position.value) return;
  batch(() => {
    if (data.rows?.length || data.gone?.length) {
      const next = new Map(rows.value);
      for (const row of data.rows ?? []) next.set(row.id, keepSame(next.get(row.id), row));
      for (const id of data.gone ?? []) next.delete(id);
      rows.value = next;
    }
    if (data.records?.length) {
      records.value = [...records.value, ...data.records].slice(-RECORDS_KEPT);
      clearWords(data.records);
    }
    position.value = data.position;
  });
  for (const listener of listeners) listener(data.records ?? [], false);
}

/** Return the old row if it equals the new row. Comparing two JSON texts is faster than drawing a line. */
function keepSame(old, row) {
  return old !== undefined && JSON.stringify(old) === JSON.stringify(row) ? old : row;
}

/** Add a piece of an answer in progress. The record of the turn, which follows, has the whole text. */
export function takeWords(data) {
  if (!data.session || data.kind === 'lost') return;
  const next = new Map(words.value);
  const old = next.get(data.session);
  const isSame = old && old.run === data.run && old.turn === data.turn;
  const before = isSame ? old.pieces : [];
  const last = before[before.length - 1];
  const pieces = last?.kind === data.kind && data.kind !== 'waits'
    ? [...before.slice(0, -1), {kind: data.kind, text: last.text + (data.text ?? '')}]
    : [...before, {kind: data.kind, text: data.text ?? ''}];
  next.set(data.session, {run: data.run, turn: data.turn, pieces});
  words.value = next;
}

function clearWords(found) {
  const ended = found.filter(one => ['turn_answered', 'turn_failed', 'run_finished'].includes(one.kind));
  if (!ended.some(one => words.value.has(one.session))) return;
  const next = new Map(words.value);
  for (const one of ended) next.delete(one.session);
  words.value = next;
}

export function takePresence(data) {
  presence.value = data.people ?? [];
}

/** Take the people of one session, from the daemon's answer to `POST /presence`. */
export function takePresenceOf(session, found) {
  presence.value = [...presence.value.filter(one => one.session !== session), ...found];
}

export function makeSnapshot() {
  return {position: position.value ?? 0, sessions: [...rows.value.values()], people: presence.value};
}

export function findRow(name) {
  for (const row of rows.value.values()) if (row.name === name) return row;
  return null;
}

/** Does the session wait for a person? `asks` for an answer, `failed` for a decision. */
export function needOf(row) {
  if (!row.needs) return null;
  return row.needs.kind === 'decision' ? 'failed' : 'asks';
}

export const needs = computed(() => {
  const found = [...rows.value.values()].map(row => ({row, need: needOf(row)})).filter(one => one.need);
  return found.sort((a, b) => (a.need === b.need ? a.row.name.localeCompare(b.row.name) : a.need === 'asks' ? -1 : 1));
});
