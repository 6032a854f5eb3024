/** Why a session does not run: the seen and the present version, the last look and the due time of each binding. */
import {html, names} from '../lib/ui.js';
import {Time, Version} from './basics.js';
import {Icon, iconOfKind} from './icons.js';

/** Judge whether a binding makes the session run, in one word and a sentence. */
export function judge(binding) {
  if (binding.problem) return {word: 'stalled', words: binding.problem, tone: 'bad'};
  if (binding.held) return {word: 'held', words: binding.held, tone: 'asks'};
  if (binding.degraded) return {word: 'degraded', words: binding.degraded, tone: 'asks'};
  if (binding.access === 'write') return binding.drift ? {word: 'changed by others', words: 'Its version differs from the one that the last successful run left.', tone: 'asks'} : {word: 'written', tone: 'quiet'};
  // At an earlier record, only the seen version is known.
  if (binding.version === undefined) return {word: 'seen', tone: 'quiet'};
  if (binding.owed) return {word: 'new', tone: 'running'};
  if (binding.absent) return {word: 'not there', tone: 'quiet'};
  if (!binding.wake) return {word: 'never wakes', tone: 'quiet'};
  if (binding.dirty) return {word: 'changing', tone: 'running'};
  if (isLookedAt(binding) && !binding.looked_at) return {word: 'never looked at', tone: 'asks'};
  if (binding.next_due) return {word: 'waits', tone: 'quiet'};
  return {word: 'nothing new', tone: 'quiet'};
}

const isLookedAt = binding => 'looked_at' in binding;

export function Bindings({bindings}) {
  return html`<ul class="bindings">${bindings.map(one => html`<${Binding} key=${one.name} binding=${one} />`)}</ul>`;
}

function Binding({binding}) {
  const verdict = judge(binding);
  const isMoved = binding.version !== undefined && binding.seen !== null && binding.version !== binding.seen;
  return html`<li class="binding">
    <${Icon} name=${iconOfKind(binding.kind)} class="muted" />
    <span class="binding-name cut" title=${`${binding.name}: ${binding.kind} ${binding.what ?? ''}`}><strong>${binding.name}</strong> <span class="muted">${binding.what}</span></span>
    <span class="binding-versions" title="the version seen by the last run, and the present version">
      <${Version} text=${binding.seen} />${binding.version !== undefined && html`<span class="muted">${isMoved ? '→' : '='}</span><${Version} text=${binding.version} other=${binding.seen} />`}
    </span>
    <span class="binding-when muted small">
      ${binding.next_due ? html`<${Time} at=${binding.next_due} prefix="next " />` : binding.looked_at ? html`<${Time} at=${binding.looked_at} prefix="looked " />` : ''}
    </span>
    <span class=${names('verdict', `tone-${verdict.tone}`)} title=${verdict.words ?? ''}>${verdict.word}</span>
    ${verdict.words && html`<span class="binding-words small">${verdict.words}</span>`}
  </li>`;
}
