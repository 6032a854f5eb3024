/** Texts for times, durations and amounts, in few characters. Times are in the viewer's zone. */
import {signal} from './ui.js';

/** The current time of the page. Updated once a minute, once a second while a run is shown, and never while hidden. */
export const now = signal(Date.now());
let timer = 0;
let watchers = 0;

function tick() {
  clearTimeout(timer);
  if (document.visibilityState !== 'visible') return;
  now.value = Date.now();
  timer = setTimeout(tick, watchers > 0 ? 1000 : 60_000);
}
document.addEventListener('visibilitychange', tick);
tick();

/** Update the time every second while a run is shown. Returns a function that ends these updates. */
export function watchSeconds() {
  watchers += 1;
  if (watchers === 1) tick();
  return () => { watchers -= 1; };
}

const clock = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', hourCycle: 'h23'});
const clockSeconds = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23'});
const day = new Intl.DateTimeFormat(undefined, {day: 'numeric', month: 'short'});
const dayYear = new Intl.DateTimeFormat(undefined, {day: 'numeric', month: 'short', year: 'numeric'});

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Describe a time: "3 min ago", "in 2 h", or a date if it is 14 days away or more. */
export function relative(at, present = Date.now()) {
  const distance = at - present;
  const size = Math.abs(distance);
  if (size < 45_000) return distance > 5000 ? 'in a moment' : 'just now';
  const words = size < HOUR ? `${Math.max(1, Math.round(size / MINUTE))} min`
    : size < DAY ? `${Math.round(size / HOUR)} h`
    : size < 14 * DAY ? `${Math.round(size / DAY)} d` : null;
  if (words === null) return new Date(at).getFullYear() === new Date(present).getFullYear() ? day.format(at) : dayYear.format(at);
  return distance > 0 ? `in ${words}` : `${words} ago`;
}

export const timeOfDay = at => clock.format(at);
export const timeWithSeconds = at => clockSeconds.format(at);
export const dayOf = at => day.format(at);

/** Write a moment in full, in the viewer's zone and in UTC. */
export function full(at) {
  const date = new Date(at);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return `${dayYear.format(date)}, ${clockSeconds.format(date)} (${zone})\n${date.toISOString()} UTC`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return '';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.round((seconds % 86400) / 3600)} h`;
}

export function money(usd) {
  if (!usd) return '';
  return `$${usd < 0.1 ? usd.toFixed(3) : usd.toFixed(2)}`;
}

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let amount = size / 1024, unit = 0;
  while (amount >= 1024 && unit < units.length - 1) { amount /= 1024; unit += 1; }
  return `${amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${units[unit]}`;
}

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString()} ${number === 1 ? one : many}`;

/** Shorten a version for people: its first characters, or the time of a slot. */
export function version(text) {
  if (text === null || text === undefined) return '–';
  if (/^\d{4}-\d\d-\d\dT/.test(text)) return `${day.format(new Date(text))} ${clock.format(new Date(text))}`;
  return text.length > 12 ? text.slice(0, 8) : text;
}
