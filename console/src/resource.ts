// What a page shows of the server: asked for when the page opens, again from time to time while it is seen, and after changes.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { asRefusal, get, isAborted, withQuery, type Query, type Refusal } from './api.ts';
import { watchReach } from './reach.ts';

export interface Resource<Data> {
  data: Data | null;
  refusal: Refusal | null;
  /** The first answer is not there yet. */
  loading: boolean;
  reload: () => void;
}

/** `every`: milliseconds until it is asked for again; none: only by `reload`. `address` null: nothing is asked. */
export function useResource<Data>(address: string | null, query: Query = {}, every?: number): Resource<Data> {
  const whole = address === null ? null : withQuery(address, query);
  const [state, setState] = useState<{ of: string | null; data: Data | null; refusal: Refusal | null }>({ of: null, data: null, refusal: null });
  const [turn, setTurn] = useState(0);
  const reload = useCallback(() => setTurn((number) => number + 1), []);
  useEffect(() => {
    if (whole === null) return undefined;
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async (): Promise<void> => {
      if (!document.hidden) {
        try {
          const data = await get<Data>(whole, {}, abort.signal);
          setState({ of: whole, data, refusal: null });
        } catch (error) {
          if (isAborted(error)) return;
          const refusal = asRefusal(error);
          // What is gone, or may be seen no more, is not shown any longer; what was there before the broker fell silent is.
          const stays = refusal.status === 0 || refusal.status >= 500;
          setState((before) => ({ of: whole, data: stays && before.of === whole ? before.data : null, refusal }));
        }
      }
      if (every !== undefined && !abort.signal.aborted) timer = setTimeout(() => void load(), every);
    };
    void load();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [whole, every, turn]);
  useEffect(() => watchReach((lostAt) => lostAt === null && reload()), []);
  const current = state.of === whole;
  return { data: current ? state.data : null, refusal: current ? state.refusal : null, loading: whole !== null && !current, reload };
}

/** A list whose search or page changes keeps what it showed until the next answer is there. */
export function useLasting<Data>(resource: Resource<Data>): Resource<Data> {
  const last = useRef<Data | null>(null);
  if (resource.data !== null) last.current = resource.data;
  else if (resource.refusal !== null) last.current = null;
  return { ...resource, data: resource.data ?? last.current, loading: resource.loading && last.current === null };
}
