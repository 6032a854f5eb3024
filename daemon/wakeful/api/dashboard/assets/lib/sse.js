/** Server-sent events over fetch, because EventSource cannot send headers. */
import {request} from './api.js';

/**
 * Read a stream until it ends or is aborted.
 * @param {(event: {event: string, id: string|null, data: any}) => void} onEvent
 * @param {() => void} onBytes called whenever data arrives, also for a keep-alive.
 */
export async function readStream(path, {signal, lastId, onEvent, onBytes}) {
  const headers = {Accept: 'text/event-stream', ...(lastId ? {'Last-Event-ID': String(lastId)} : {})};
  const answer = await request('GET', path, {headers, signal});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser(onEvent);
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    onBytes?.();
    parser.push(value);
  }
}

/** Joins pieces of text to whole events. */
export class EventParser {
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.rest = '';
    this.clear();
  }

  clear() {
    this.event = 'message';
    this.id = null;
    this.data = [];
  }

  push(text) {
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop();
    for (const line of lines) this.take(line.endsWith('\r') ? line.slice(0, -1) : line);
  }

  take(line) {
    if (line === '') {
      if (this.data.length) this.onEvent({event: this.event, id: this.id, data: JSON.parse(this.data.join('\n'))});
      this.clear();
      return;
    }
    const colon = line.indexOf(':');
    // A line that begins with a colon is a comment, which the daemon sends as a keep-alive.
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.event = value;
    else if (field === 'id') this.id = value;
    else if (field === 'data') this.data.push(value);
  }
}
