/** The icons of the page. The shape alone identifies a state; the colour only repeats it. */
import {html} from '../lib/ui.js';

const line = d => html`<path d=${d} fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" />`;

const SHAPES = {
  // States.
  running: html`<circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" stroke-width="1.6" opacity=".35" /><path d="M8 2.5a5.500 5.500 0 0 1 5.500 5.500" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" />`,
  suspended: html`<circle cx="8" cy="8" r="5.200" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray="2.300 2" />`,
  sleeping: line('M12.500 9.600A5.200 5.200 0 0 1 6.400 3.500 5.200 5.200 0 1 0 12.500 9.600Z'),
  queued: html`<circle cx="8" cy="8" r="5.200" fill="none" stroke="currentColor" stroke-width="1.5" />${line('M8 5.200V8l1.800 1.300')}`,
  asks: html`<circle cx="8" cy="8" r="6.500" fill="currentColor" /><path d="M6.200 6.300c.1-1 .8-1.600 1.800-1.600s1.800.6 1.800 1.500c0 1.400-1.800 1.500-1.800 2.800M8 11.200v.1" fill="none" stroke="var(--paper)" stroke-width="1.5" stroke-linecap="round" />`,
  failed: html`<path d="M8 1.500 14.500 8 8 14.500 1.500 8Z" fill="currentColor" /><path d="M8 5v3.600M8 10.900v.1" stroke="var(--paper)" stroke-width="1.6" stroke-linecap="round" />`,
  succeeded: html`<circle cx="8" cy="8" r="6.200" fill="currentColor" /><path d="m5.200 8.200 1.900 1.900 3.700-4" fill="none" stroke="var(--paper)" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" />`,
  stopped: html`<rect x="2.500" y="2.500" width="11" height="11" rx="2.500" fill="none" stroke="currentColor" stroke-width="1.5" />${line('M5.500 8h5')}`,
  // Views and tools.
  now: line('M2.500 4h11M2.500 8h11M2.500 12h7'),
  graph: html`<circle cx="3.800" cy="8" r="1.900" fill="none" stroke="currentColor" stroke-width="1.5" /><circle cx="12.200" cy="3.800" r="1.900" fill="none" stroke="currentColor" stroke-width="1.5" /><circle cx="12.200" cy="12.200" r="1.900" fill="none" stroke="currentColor" stroke-width="1.5" />${line('M5.600 7.100 10.500 4.700M5.600 8.900l4.900 2.400')}`,
  timeline: line('M2.500 3.500h6M5.500 8h8M3.500 12.500h5'),
  why: line('M3 3v4.500a2.500 2.500 0 0 0 2.500 2.500H13M10 7l3 3-3 3'),
  health: line('M1.500 8.500h3l2-5 3 9 2-4h3'),
  search: html`<circle cx="7" cy="7" r="4.300" fill="none" stroke="currentColor" stroke-width="1.5" />${line('m10.300 10.300 3.200 3.200')}`,
  more: html`<circle cx="3.500" cy="8" r="1.250" fill="currentColor" /><circle cx="8" cy="8" r="1.250" fill="currentColor" /><circle cx="12.500" cy="8" r="1.250" fill="currentColor" />`,
  close: line('m4 4 8 8M12 4l-8 8'),
  chevron: line('m6 4 4 4-4 4'),
  file: line('M4 1.800h5l3.200 3.200v9.200H4ZM9 1.800V5h3.200'),
  commits: html`<circle cx="8" cy="8" r="2.600" fill="none" stroke="currentColor" stroke-width="1.5" />${line('M8 1.500v3.800M8 10.700v3.800')}`,
  clock: html`<circle cx="8" cy="8" r="5.700" fill="none" stroke="currentColor" stroke-width="1.5" />${line('M8 4.800V8l2.200 1.400')}`,
  message: line('M2.500 3.500h11v7.500H7l-3 2.500V11H2.500Z'),
  probe: line('M2.500 13.500h11M4.500 13.500V8M8 13.500v-9M11.500 13.500V6.500'),
  fork: html`<circle cx="4" cy="3.500" r="1.600" fill="none" stroke="currentColor" stroke-width="1.5" /><circle cx="4" cy="12.500" r="1.600" fill="none" stroke="currentColor" stroke-width="1.5" /><circle cx="12" cy="5.500" r="1.600" fill="none" stroke="currentColor" stroke-width="1.5" />${line('M4 5.100v5.800M12 7.100c0 2.400-8 1.500-8 3.800')}`,
  copy: line('M5.500 5.500h8v8h-8ZM10.500 5.500v-3h-8v8h3'),
  play: html`<path d="M5 3.300v9.400L12.500 8Z" fill="currentColor" />`,
  send: line('M2.500 8 13.500 2.800 11 13.500 7.800 9.200ZM7.800 9.200l5.700-6.400'),
  person: html`<circle cx="8" cy="5.200" r="2.700" fill="none" stroke="currentColor" stroke-width="1.5" />${line('M2.800 13.500c.8-2.600 2.700-3.900 5.200-3.900s4.400 1.300 5.200 3.900')}`,
  agent: html`<rect x="2.800" y="4.800" width="10.400" height="8" rx="2.200" fill="none" stroke="currentColor" stroke-width="1.5" /><circle cx="6" cy="8.800" r="1" fill="currentColor" /><circle cx="10" cy="8.800" r="1" fill="currentColor" />${line('M8 2v2.800')}`,
  command: line('m3 4.500 3.500 3.500L3 11.500M8.500 12h4.500'),
  download: line('M8 2.500v7.500M4.800 7.200 8 10.300l3.200-3.100M3 13.500h10'),
};

/** @param {{name: string, label?: string}} props Without a label, the icon is decoration; screen readers skip it. */
export function Icon({name, label, class: more = ''}) {
  const told = label ? {role: 'img', 'aria-label': label} : {'aria-hidden': 'true'};
  return html`<svg class=${`icon ${more}`} viewBox="0 0 16 16" ...${told}>${SHAPES[name] ?? SHAPES.file}</svg>`;
}

const KIND_ICONS = {
  file: 'file', program: 'file', spec: 'file', commits: 'commits', cron: 'clock', every: 'clock', message: 'message',
  session: 'suspended', probe: 'probe', service: 'health', webhook: 'download', first: 'play', activation: 'person',
};
export const iconOfKind = kind => KIND_ICONS[kind] ?? 'file';
