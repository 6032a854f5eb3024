/**
 * The last runs of each session, which the rows do not have. They are loaded once after the first paint. Runs that end
 * later are added from the rows.
 */
import {effect, signal} from './ui.js';
import {get, query} from './api.js';
import {isLoaded, onRecords, rows} from './store.js';

const RUNS_KEPT = 14;

/** Session name -> runs, oldest first. */
export const sparks = signal(new Map());

export function startFigures() {
  const end = effect(() => {
    if (isLoaded.value) queueMicrotask(() => { end(); loadSparks(); });
  });
  onRecords(records => {
    const ended = records.filter(one => one.kind === 'run_finished');
    if (ended.length) addRuns(new Set(ended.map(one => one.session)));
  });
}

async function loadSparks() {
  const found = await get(`/timeline${query({since: '7d', limit: 4000, marks: 'none'})}`).catch(() => ({runs: []}));
  const next = new Map();
  for (const run of found.runs) {
    if (!run.outcome) continue;
    const list = next.get(run.session) ?? [];
    list.push({run: run.run, outcome: run.outcome, seconds: run.seconds});
    next.set(run.session, list.slice(-RUNS_KEPT));
  }
  sparks.value = next;
}

function addRuns(sessions) {
  const next = new Map(sparks.value);
  for (const row of rows.value.values()) {
    const last = row.last_run;
    if (!last || !sessions.has(row.name)) continue;
    const list = next.get(row.name) ?? [];
    if (list.some(one => one.run === last.run)) continue;
    const seconds = (Date.parse(last.finished_at) - Date.parse(last.started_at)) / 1000;
    next.set(row.name, [...list, {run: last.run, outcome: last.outcome, seconds}].slice(-RUNS_KEPT));
  }
  sparks.value = next;
}
