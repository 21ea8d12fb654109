// Which page is shown: the part of the address behind the hash, `#/topics/NAME?tab=records`.

import { useEffect, useState } from 'preact/hooks';

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

/** Changes the query without another entry in the history. */
export function adjust(changes: Record<string, string | null>): void {
  const { names, query } = placeOf(location.hash);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === '') query.delete(name);
    else query.set(name, value);
  }
  history.replaceState(null, '', to(names, Object.fromEntries(query)));
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
