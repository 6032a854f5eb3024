/** Data that a view requests itself. Only the last request counts; late answers of earlier ones are dropped. */
import {useCallback, useEffect, useRef, useState} from './ui.js';
import {onRecords} from './store.js';

/**
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {unknown[]} keys the values that the answer depends on; data of other keys is not shown.
 * @returns {{data: T|null, error: Error|null, isLoading: boolean, reload: () => void}}
 */
export function useLoad(load, keys) {
  const [state, setState] = useState({data: null, error: null, isLoading: true, key: null});
  const [turn, setTurn] = useState(0);
  const key = JSON.stringify(keys);
  useEffect(() => {
    const stop = new AbortController();
    setState(old => ({...old, data: old.key === key ? old.data : null, error: null, isLoading: true}));
    load(stop.signal).then(
      data => !stop.signal.aborted && setState({data, error: null, isLoading: false, key}),
      error => !stop.signal.aborted && setState(old => ({data: old.key === key ? old.data : null, error, isLoading: false, key})),
    );
    return () => stop.abort();
  }, [key, turn]);
  const reload = useCallback(() => setTurn(old => old + 1), []);
  const isFresh = state.key === key || state.key === null;
  return {data: isFresh ? state.data : null, error: isFresh ? state.error : null, isLoading: state.isLoading || !isFresh, reload};
}

/**
 * Load again when a record concerns the view: at once for the first record, then at most once in `pause` milliseconds.
 * @param {(record: {session: string, kind: string}) => boolean} concerns
 */
export function useReloadOn(concerns, reload, pause = 400) {
  const last = useRef(0);
  const timer = useRef(0);
  const asked = useRef(concerns);
  asked.current = concerns;
  useEffect(() => {
    const end = onRecords((records, isSnapshot) => {
      if (timer.current || !(isSnapshot || records.some(record => asked.current(record)))) return;
      const wait = Math.max(0, last.current + pause - Date.now());
      timer.current = setTimeout(() => {
        timer.current = 0;
        last.current = Date.now();
        reload();
      }, wait);
    });
    return () => { end(); clearTimeout(timer.current); timer.current = 0; };
  }, [reload, pause]);
}
