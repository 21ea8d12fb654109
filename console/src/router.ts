// Which page is shown: the part of the address behind the hash, `#/topics/NAME?tab=records`.

import { useEffect, useRef, useState } from 'preact/hooks';

export interface Place {
  /** Names between the slashes, decoded. */
  names: string[];
  query: URLSearchParams;
}

export function placeOf(hash: string): Place {
  const text = hash.replace(/^#\/?/, '');
  const at = text.indexOf('?');
  const route = at < 0 ? text : text.slice(0, at);
  const names = route.split('/').filter((name) => name !== '').map(decoded);
  return { names, query: new URLSearchParams(at < 0 ? '' : text.slice(at + 1)) };
}

function decoded(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/** The address of a page, for links. */
export function to(names: (string | number)[], query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  return `#/${names.map((name) => encodeURIComponent(name)).join('/')}${text === '' ? '' : `?${text}`}`;
}

export function go(names: (string | number)[], query: Record<string, string> = {}): void {
  location.hash = to(names, query);
}

/** Changes the query. What is chosen is an entry in the history, so that the way back leads through it; what is being typed is not. */
export function adjust(changes: Record<string, string | null>, how: 'chosen' | 'typed' = 'chosen'): void {
  const { names, query } = placeOf(location.hash);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === '') query.delete(name);
    else query.set(name, value);
  }
  const address = to(names, Object.fromEntries(query));
  if (address === location.hash) return;
  if (how === 'chosen') history.pushState(null, '', address);
  else history.replaceState(null, '', address);
  window.dispatchEvent(new HashChangeEvent('hashchange'));
}

export function usePlace(): Place {
  const [place, setPlace] = useState(() => placeOf(location.hash));
  useEffect(() => {
    const moved = (): void => setPlace(placeOf(location.hash));
    window.addEventListener('hashchange', moved);
    return () => window.removeEventListener('hashchange', moved);
  }, []);
  return place;
}

/** A value of the address, and how it is changed; what is `absent` is not written. `resets`: what else goes then, such as the page of a list. */
export function useAsked(name: string, absent = '', resets: string[] = ['page']): [string, (value: string) => void] {
  const value = usePlace().query.get(name) ?? absent;
  return [value, (next) => adjust({ ...Object.fromEntries(resets.map((one) => [one, null])), [name]: next === absent ? null : next })];
}

const PAUSE = 200;

/** Text that is typed and stands in the address once the typing pauses. */
export function useTyped(name: string, resets: string[] = ['page']): { typed: string; setTyped: (text: string) => void; value: string } {
  const value = usePlace().query.get(name) ?? '';
  const [typed, setTyped] = useState(value);
  const written = useRef(value);
  useEffect(() => {
    // Somebody has gone back or forward.
    if (value !== written.current) setTyped(value);
    written.current = value;
  }, [value]);
  useEffect(() => {
    const text = typed.trim();
    if (text === written.current) return undefined;
    const timer = setTimeout(() => {
      written.current = text;
      adjust({ ...Object.fromEntries(resets.map((one) => [one, null])), [name]: text }, 'typed');
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [typed]);
  return { typed, setTyped, value };
}
