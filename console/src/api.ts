// Requests to /v1: JSON in and out, the session's token for changes, and refusals as errors that forms can show beside a field.

import { noteReach } from './reach.ts';

export interface Session {
  user: string;
  tags: string[];
  administrator: boolean;
  monitoring: boolean;
  csrf: string | null;
  expires_at: number | null;
  anonymous: boolean;
  via: string;
}

export interface List<Item> {
  items: Item[];
  total: number;
  offset: number;
}

/** What the server refused, in its words. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    reason: string,
    readonly field: string | null,
  ) {
    super(reason);
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

let known: Session | null = null;
let onLoggedOut: () => void = () => {};
let onOther: (session: Session) => void = () => {};

export function rememberSession(session: Session | null): void {
  known = session;
}

export function whenLoggedOut(act: () => void): void {
  onLoggedOut = act;
}

/** In another tab of the browser somebody has logged in anew. */
export function whenOther(act: (session: Session) => void): void {
  onOther = act;
}

/** A name in a path. Browsers take `.` and `..` for steps, also encoded: the server knows them by a backslash. */
function segment(name: string | number): string {
  const text = String(name);
  return `${/^\\*\.\.?$/.test(text) ? '%5C' : ''}${encodeURIComponent(text)}`;
}

/** A path of names: each is encoded. */
export function path(...names: (string | number)[]): string {
  return `/v1/${names.map(segment).join('/')}`;
}

export function withQuery(address: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '' && value !== false);
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text === '' ? address : `${address}?${text}`;
}

async function refusalOf(response: Response): Promise<Refusal> {
  try {
    const body = (await response.json()) as { error?: string; reason?: string; field?: string | null };
    const reason = body.reason ?? `The broker answered ${response.status}.`;
    const again = response.headers.get('Retry-After');
    return new Refusal(response.status, body.error ?? '', again ? `${reason} Try again in ${again} s.` : reason, body.field ?? null);
  } catch {
    return new Refusal(response.status, '', `The broker answered ${response.status}.`, null);
  }
}

async function send(method: string, address: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (method !== 'GET' && known?.csrf) headers['X-Mainstem-CSRF'] = known.csrf;
  const request = { method, headers, body: body === undefined ? null : JSON.stringify(body), signal: signal ?? null, credentials: 'same-origin', cache: 'no-store' } as const;
  try {
    const response = await fetch(address, request);
    noteReach(true);
    return response;
  } catch (error) {
    if (isAborted(error)) throw error;
    noteReach(false);
    throw new Refusal(0, 'unreachable', 'The broker does not answer.', null);
  }
}

/** The token is another session's: whose is it? The same user's is taken; nothing is done as somebody else. */
async function renew(refusal: Refusal): Promise<void> {
  const before = known;
  const now = await get<Session>('/v1/session');
  known = now;
  if (now.user === before?.user) return;
  onOther(now);
  throw new Refusal(refusal.status, refusal.code, `In another tab you have logged in as ${now.user}. Nothing was done; look again before you send it as ${now.user}.`, null);
}

export async function ask<Answer>(method: string, address: string, body?: unknown, signal?: AbortSignal): Promise<Answer> {
  let response = await send(method, address, body, signal);
  if (response.status === 403 && method !== 'GET') {
    const refusal = await refusalOf(response.clone());
    if (refusal.code === 'csrf') {
      await renew(refusal);
      response = await send(method, address, body, signal);
    }
  }
  if (!response.ok) {
    const refusal = await refusalOf(response);
    if (response.status === 401 && (method === 'GET' || !address.startsWith('/v1/session'))) onLoggedOut();
    throw refusal;
  }
  if (response.status === 204) return undefined as Answer;
  const text = await response.text();
  return (text === '' ? undefined : JSON.parse(text)) as Answer;
}

export const get = <Answer>(address: string, query?: Query, signal?: AbortSignal): Promise<Answer> =>
  ask<Answer>('GET', withQuery(address, query), undefined, signal);

export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}

export function asRefusal(error: unknown): Refusal {
  return error instanceof Refusal ? error : new Refusal(0, '', error instanceof Error ? error.message : String(error), null);
}

let paths: Promise<Set<string>> | null = null;

/** Is there such a path? What the broker serves is in its description of itself. */
export async function isServed(wanted: string): Promise<boolean> {
  paths ??= get<{ paths: Record<string, unknown> }>('/v1/openapi.json').then(
    (document) => new Set(Object.keys(document.paths)),
    () => {
      paths = null;
      return new Set<string>();
    },
  );
  return (await paths).has(wanted);
}
