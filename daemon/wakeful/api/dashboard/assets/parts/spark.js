/** The last runs as small bars. The height is the duration (logarithmic scale). Colour and notch show the outcome. */
import {html} from '../lib/ui.js';
import {duration} from '../lib/times.js';

const BARS = 14;
const STEP = 5;
const HEIGHT = 18;

/** @param {{runs: Array<{outcome: string, seconds: number, run: number}>}} props oldest first. */
export function Spark({runs}) {
  const shown = runs.slice(-BARS);
  const words = shown.length ? `last ${shown.length} runs: ${shown.map(one => one.outcome).join(', ')}` : 'no runs';
  return html`<svg class="spark" viewBox=${`0 0 ${BARS * STEP} ${HEIGHT}`} role="img" aria-label=${words}>
    ${shown.map((run, i) => {
      const size = Math.max(3, Math.min(HEIGHT, 4 + Math.log10(1 + (run.seconds ?? 0) * 20) * 4.5));
      const x = (BARS - shown.length + i) * STEP;
      return html`<g class=${`bar is-${run.outcome}`}><title>${`run ${run.run}: ${run.outcome}, ${duration(run.seconds)}`}</title>
        <rect x=${x} y=${HEIGHT - size} width="3.5" height=${size} rx="1" fill="currentColor" />
        ${['failed', 'lost'].includes(run.outcome) && html`<rect x=${x} y="0" width="3.5" height="2.500" fill="currentColor" />`}</g>`;
    })}
  </svg>`;
}
