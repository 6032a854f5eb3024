/** The scale of the timeline: time to pixels, with folded idle time. Pure. */

const FOLD_PX = 28;
/** Idle time is folded if it takes at least this share of the range. */
const WORTH = 0.06;
/** The padding before and after a busy stretch, as a share of its length. */
const PAD = 0.06;

/**
 * @param {number} from @param {number} to the range in milliseconds
 * @param {Array<[number, number]>} busy stretches in which something happened
 * @returns {{x: (at: number) => number, at: (x: number) => number, folds: Array<{x: number, from: number, to: number}>, ticks: Array<{x: number, at: number}>}}
 */
export function makeScale(from, to, busy, width, isFolding) {
  const pieces = isFolding ? split(from, to, busy) : [{from, to, isIdle: false}];
  const folded = pieces.filter(piece => piece.isIdle).length;
  const busySpan = pieces.reduce((sum, piece) => sum + (piece.isIdle ? 0 : piece.to - piece.from), 0) || 1;
  const perMs = Math.max(0, width - folded * FOLD_PX) / busySpan;
  let x = 0;
  for (const piece of pieces) {
    piece.x = x;
    piece.w = piece.isIdle ? FOLD_PX : (piece.to - piece.from) * perMs;
    x += piece.w;
  }
  const find = at => pieces.find(piece => at <= piece.to) ?? pieces[pieces.length - 1];
  const place = at => {
    const piece = find(at);
    const share = (at - piece.from) / (piece.to - piece.from || 1);
    return piece.x + Math.max(0, Math.min(1, share)) * piece.w;
  };
  const back = px => {
    const piece = pieces.find(one => px <= one.x + one.w) ?? pieces[pieces.length - 1];
    return piece.from + ((px - piece.x) / (piece.w || 1)) * (piece.to - piece.from);
  };
  return {x: place, at: back, folds: pieces.filter(piece => piece.isIdle).map(piece => ({x: piece.x, w: piece.w, from: piece.from, to: piece.to})), ticks: makeTicks(pieces)};
}

function split(from, to, busy) {
  const worth = (to - from) * WORTH;
  const merged = [];
  for (const [start, end] of [...busy].sort((a, b) => a[0] - b[0])) {
    const a = Math.max(from, start), b = Math.min(to, end);
    const last = merged[merged.length - 1];
    if (last && a - last[1] < worth) last[1] = Math.max(last[1], b);
    else if (b >= a) merged.push([a, b]);
  }
  if (!merged.length) return [{from, to, isIdle: false}];
  // The longest stretch decides the padding of all, which is at least one second. Otherwise a short stretch next to it
  // would be too narrow to click.
  const pad = Math.min(worth / 4, Math.max(1000, ...merged.map(([a, b]) => (b - a) * PAD)));
  const pieces = [];
  let at = from;
  for (const [a, b] of merged.map(([start, end]) => [Math.max(from, start - pad), Math.min(to, end + pad)])) {
    if (a - at >= worth) pieces.push({from: at, to: a, isIdle: true});
    else if (a > at && pieces.length) pieces[pieces.length - 1].to = a;
    const start = pieces.length && !pieces[pieces.length - 1].isIdle ? pieces.pop().from : a - at < worth ? at : a;
    pieces.push({from: start, to: b, isIdle: false});
    at = b;
  }
  if (to - at >= worth) pieces.push({from: at, to, isIdle: true});
  else pieces[pieces.length - 1].to = to;
  return pieces;
}

const STEPS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800].map(seconds => seconds * 1000);
const TICK_PX = 88;

function makeTicks(pieces) {
  const ticks = [];
  for (const piece of pieces) {
    if (piece.isIdle || piece.w < 24) continue;
    const step = STEPS.find(one => (one / (piece.to - piece.from)) * piece.w >= TICK_PX) ?? STEPS[STEPS.length - 1];
    const zone = new Date(piece.from).getTimezoneOffset() * 60_000;
    for (let at = Math.ceil((piece.from - zone) / step) * step + zone; at <= piece.to; at += step) {
      const x = piece.x + ((at - piece.from) / (piece.to - piece.from)) * piece.w;
      if (!ticks.length || x - ticks[ticks.length - 1].x >= TICK_PX * 0.7) ticks.push({x, at, step});
    }
  }
  return ticks;
}
