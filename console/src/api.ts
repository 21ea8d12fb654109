// Requests to /v1: JSON in and out, the session's token for changes, and refusals as errors that forms can show beside a field.

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

let csrf: string | null = null;
let onLoggedOut: () => void = () => {};

export function rememberSession(session: Session | null): void {
  csrf = session?.csrf ?? null;
}

export function whenLoggedOut(act: () => void): void {
  onLoggedOut = act;
}

/** A path of names: each is encoded. */
export function path(...names: (string | number)[]): string {
  return `/v1/${names.map((name) => encodeURIComponent(name)).join('/')}`;
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

export async function ask<Answer>(method: string, address: string, body?: unknown, signal?: AbortSignal): Promise<Answer> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (method !== 'GET' && csrf !== null) headers['X-Mainstem-CSRF'] = csrf;
  let response: Response;
  try {
    response = await fetch(address, {
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
      signal: signal ?? null,
      credentials: 'same-origin',
      cache: 'no-store',
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Refusal(0, 'unreachable', 'The broker does not answer.', null);
  }
  if (!response.ok) {
    const refusal = await refusalOf(response);
    if (response.status === 401 && !address.startsWith('/v1/session')) onLoggedOut();
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
