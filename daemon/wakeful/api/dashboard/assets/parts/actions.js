/** Verbs as buttons. A dangerous verb asks first, every verb can be copied as a command, and some offer an undo. */
import {html, names, signal, useState} from '../lib/ui.js';
import {call} from '../lib/api.js';
import {learnRights, may} from '../lib/rights.js';
import {ACTIONS, asCommand, asCurl, readDuration, undoOf} from '../lib/commands.js';
import {Dialog, Menu, copyText, say} from './basics.js';
import {Icon} from './icons.js';

/** The verb that a dialog asks about, or null. */
const asked = signal(null);

/**
 * Carry out a verb. If it is dangerous or needs values, a dialog asks first.
 * @param {{verb: string, body: object, before?: object, note?: any, done?: (answer: object) => void}} wanted
 *   `before`: the state that an undo needs.
 */
export function act(wanted) {
  const action = ACTIONS[wanted.verb];
  if (action.danger || action.fields) asked.value = wanted;
  else return carryOut(wanted, wanted.body);
  return Promise.resolve();
}

async function carryOut({verb, before, done}, body) {
  try {
    const answer = await call(verb, body);
    const undo = undoOf(verb, body, answer, before);
    say({words: answer.held ? `${answer.words}: ${answer.held}` : answer.words, action: undo && {label: undo.label, run: () => carryUndo(undo)}});
    done?.(answer);
    return answer;
  } catch (error) {
    if (error.status === 403) learnRights();
    say({words: error.message, isBad: true});
    return null;
  }
}

async function carryUndo(undo) {
  try {
    say({words: (await undo.run()).words});
  } catch (error) {
    say({words: error.message, isBad: true});
  }
}

export const copyItems = (verb, body) => [
  {label: 'Copy as command', icon: 'command', run: () => copyText(asCommand(verb, body), 'the command')},
  {label: 'Copy as curl', icon: 'copy', run: () => copyText(asCurl(verb, body), 'the curl line')},
];

/** A button, and next to it a menu to copy it as a command or for curl. Nothing if the person may not use the verb. */
export function ActionButton({verb, body, label, icon, primary, before, done, small}) {
  if (!may(verb, body.name)) return null;
  const action = ACTIONS[verb];
  const look = names(primary && 'primary', action.danger && 'danger', small && 'small');
  return html`<span class="row joined-buttons">
    <button class=${names('button joined', look)} onClick=${() => act({verb, body, before, done})} title=${action.words}>
      ${icon && html`<${Icon} name=${icon} />`}${label ?? action.label}</button><${Menu} label=${`${label ?? action.label}: copy`} items=${copyItems(verb, body)} buttonClass=${names('button tail', look)}>
      <${Icon} name="chevron" class="down" /><//>
  </span>`;
}

export function ActionDialog() {
  const wanted = asked.value;
  if (!wanted) return null;
  return html`<${AskFirst} key=${`${wanted.verb} ${wanted.body.name}`} wanted=${wanted} />`;
}

function AskFirst({wanted}) {
  const action = ACTIONS[wanted.verb];
  const [values, setValues] = useState({});
  const [isBusy, setBusy] = useState(false);
  const close = () => { asked.value = null; };
  const {body, wrong} = fillBody(wanted.body, action.fields ?? [], values);
  const submit = async event => {
    event.preventDefault();
    if (wrong) return;
    setBusy(true);
    const answer = await carryOut(wanted, body);
    setBusy(false);
    if (answer) close();
  };
  return html`<${Dialog} title=${action.label} onClose=${close}>
    <form class="dialog" onSubmit=${submit}>
      <header><h2>${action.label}: ${wanted.body.name}</h2><p class="quiet">${action.words}</p>${wanted.note}</header>
      ${(action.fields ?? []).map((field, i) => html`<${Field} field=${field} isFirst=${i === 0} value=${values[field.name]} set=${value => setValues({...values, [field.name]: value})} />`)}
      <div class="stack">
        <code class="command-line">${asCommand(wanted.verb, body)}</code>
        <div class="copies">
          <button type="button" onClick=${() => copyText(asCommand(wanted.verb, body), 'the command')}><${Icon} name="command" />Copy as command</button>
          <button type="button" onClick=${() => copyText(asCurl(wanted.verb, body), 'the curl line')}><${Icon} name="copy" />Copy as curl</button>
        </div>
        ${action.undo && html`<p class="small muted">It can be undone: ${action.undo.label.toLowerCase()}.</p>`}
      </div>
      <footer>
        <button type="button" class="button" onClick=${close}>Leave it</button>
        <button type="submit" class=${names('button primary', action.danger && 'danger')} disabled=${isBusy || Boolean(wrong)} title=${wrong ?? ''}>${action.label}</button>
      </footer>
    </form>
  <//>`;
}

function Field({field, value, set, isFirst}) {
  if (field.type === 'flag') {
    return html`<label class="check"><input type="checkbox" checked=${value ?? false} onChange=${event => set(event.target.checked)} />${field.label}</label>`;
  }
  return html`<label class="field"><span>${field.label}</span>
    <input class="input" value=${value ?? ''} placeholder=${field.hint ?? ''} autofocus=${isFirst} onInput=${event => set(event.target.value)} /></label>`;
}

/** Fill in the body. Also returns the first problem with it, or null. */
function fillBody(base, fields, values) {
  const body = {...base};
  let wrong = null;
  for (const field of fields) {
    const value = values[field.name];
    if (value === undefined || value === '' || value === false) {
      if (field.isRequired && body[field.name] === undefined) wrong = `${field.label} is missing`;
    } else if (field.type === 'duration') {
      const seconds = readDuration(value);
      if (seconds === null) wrong = `${value} is not a duration; write 30m or 2h`;
      else body[field.name] = seconds;
    } else body[field.name] = value;
  }
  return {body, wrong};
}
