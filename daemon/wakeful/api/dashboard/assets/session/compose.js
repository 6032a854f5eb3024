/** The compose box. The choice of an agent counts for one message; the next message goes to the default again. */
import {html, useRef, useState} from '../lib/ui.js';
import {call, post} from '../lib/api.js';
import {learnRights, may} from '../lib/rights.js';
import {takePresenceOf} from '../lib/store.js';
import {asCommand, asCurl} from '../lib/commands.js';
import {Menu, copyText, say} from '../parts/basics.js';
import {Icon} from '../parts/icons.js';

const MAILBOX = ' mailbox';
const WRITING_MS = 20_000;

export function Compose({session, row}) {
  const [text, setText] = useState('');
  const [to, setTo] = useState('');
  const [isBusy, setBusy] = useState(false);
  const toldAt = useRef(0);
  const agents = (session.agents ?? []).filter(name => name !== session.agent);
  const isMail = to === MAILBOX || (to === '' && !session.agent);
  const verb = isMail ? 'send' : 'ask';
  const body = {name: session.name, text: text.trim() || 'TEXT', ...(to && to !== MAILBOX ? {agent: to} : {})};

  const write = event => {
    setText(event.target.value);
    if (Date.now() - toldAt.current < WRITING_MS) return;
    toldAt.current = Date.now();
    post('/presence', {name: session.name, doing: 'writes'}).then(found => takePresenceOf(session.name, found), () => {});
  };
  const submit = async event => {
    event?.preventDefault();
    if (!text.trim() || isBusy) return;
    setBusy(true);
    try {
      const answer = await call(verb, body);
      setText('');
      setTo('');
      if (answer.held) say({words: `${answer.words}. It waits: ${answer.held}`});
    } catch (error) {
      if (error.status === 403) learnRights();
      say({words: error.message, isBad: true});
    }
    setBusy(false);
  };
  const key = event => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) submit(event);
  };
  if (row?.state === 'terminated') return null;
  if (!may(verb, session.name)) return html`<p class="compose small muted">You may read this session, but not write to it.</p>`;
  return html`<form class="compose" onSubmit=${submit}>
    <textarea data-compose rows="2" aria-label=${`message to ${session.name}`} placeholder=${isMail ? 'Leave a message in its mailbox' : `Ask ${to || session.agent}`} value=${text} onInput=${write} onKeyDown=${key}></textarea>
    <div class="row">
      <label class="row small"><span class="muted">To</span>
        <select class="select" value=${to} onChange=${event => setTo(event.target.value)}>
          ${session.agent && html`<option value="">${session.agent} (default)</option>`}
          ${agents.map(name => html`<option value=${name}>${name}, this message</option>`)}
          <option value=${session.agent ? MAILBOX : ''}>the mailbox</option>
        </select></label>
      <span class="muted small push only-wide"><kbd>Enter</kbd> sends, <kbd>Shift</kbd> <kbd>Enter</kbd> a new line</span>
      <${Menu} label="Message: copy" items=${[
        {label: 'Copy as command', icon: 'command', run: () => copyText(asCommand(verb, body), 'the command')},
        {label: 'Copy as curl', icon: 'copy', run: () => copyText(asCurl(verb, body), 'the curl line')},
      ]} />
      <button class="button primary small" disabled=${!text.trim() || isBusy}><${Icon} name="send" />${isMail ? 'Send' : 'Ask'}</button>
    </div>
  </form>`;
}
