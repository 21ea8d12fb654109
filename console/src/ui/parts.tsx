// Small parts that pages are made of: headings, states, tabs, badges, notices.

import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import type { Refusal } from '../api.ts';
import { go, placeOf } from '../router.ts';
import { Icon, type IconName } from './icon.tsx';
import { visible } from './visible.ts';

interface TitleProps {
  title: string;
  /** Where this page belongs: its list. */
  above?: { text: string; href: string };
  about?: ComponentChildren;
  children?: ComponentChildren;
}

/** The head of a page; what stands in it are its actions. */
export function Title({ title, above, about, children }: TitleProps) {
  useEffect(() => {
    document.title = `${visible(title)} · Mainstem`;
  }, [title]);
  return (
    <header class="title">
      <div>
        {above && (
          <a class="above" href={above.href}>
            <Icon name="back" /> {above.text}
          </a>
        )}
        <h1>{title}</h1>
        {about && <p class="about">{about}</p>}
      </div>
      {children && <div class="actions">{children}</div>}
    </header>
  );
}

type Tone = 'good' | 'bad' | 'warn' | 'plain';
const SIGNS: Record<Tone, IconName | null> = { good: 'check', bad: 'cross', warn: 'warn', plain: null };

/** A state in a word. The sign says what the colour says. */
export function Badge({ tone = 'plain', children }: { tone?: Tone; children: ComponentChildren }) {
  const sign = SIGNS[tone];
  return (
    <span class={`badge ${tone}`}>
      {sign && <Icon name={sign} />}
      {children}
    </span>
  );
}

export function Notice({ tone = 'plain', children }: { tone?: Tone; children: ComponentChildren }) {
  return (
    <div class={`notice ${tone}`} role={tone === 'bad' ? 'alert' : 'status'}>
      <Icon name={SIGNS[tone] ?? 'info'} />
      <div>{children}</div>
    </div>
  );
}

export function Refused({ refusal }: { refusal: Refusal | null }) {
  // That the broker does not answer is said once, above the page.
  if (refusal === null || refusal.status === 0) return null;
  const title = refusal.status === 403 ? 'You may not see this. ' : refusal.status === 404 ? 'There is no such thing. ' : '';
  return (
    <Notice tone="bad">
      {title}
      {refusal.message}
    </Notice>
  );
}

/** Nothing is here yet, why, and what to do about it. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="what">{title}</p>
      {children && <div>{children}</div>}
    </div>
  );
}

export function Loading() {
  return (
    <p class="loading" role="status">
      Loading…
    </p>
  );
}

export function Stat({ name, value, note }: { name: string; value: string; note?: string | undefined }) {
  return (
    <div class="stat">
      <dt>{name}</dt>
      <dd>{value}</dd>
      {note && <dd class="note">{note}</dd>}
    </div>
  );
}

export function Section({ title, children, actions, about }: { title: string; about?: ComponentChildren; children: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <section class="section">
      <div class="head">
        <div>
          <h2>{title}</h2>
          {about && <p class="about">{about}</p>}
        </div>
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
    </section>
  );
}

/** Parts of a page under names; which is shown stands in the address. */
export function Tabs({ tabs, chosen }: { tabs: { id: string; text: string }[]; chosen: string }) {
  // What was looked for in one of them is not asked of another.
  const open = (tab: string): void => go(placeOf(location.hash).names, { tab });
  const step = (event: KeyboardEvent, at: number): void => {
    const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    const next = tabs[(at + by + tabs.length) % tabs.length];
    if (!next) return;
    open(next.id);
    requestAnimationFrame(() => document.getElementById(`tab-${next.id}`)?.focus());
  };
  return (
    <div class="tabs" role="tablist">
      {tabs.map((tab, at) => (
        <button
          key={tab.id}
          id={`tab-${tab.id}`}
          type="button"
          role="tab"
          aria-selected={tab.id === chosen}
          tabIndex={tab.id === chosen ? 0 : -1}
          onClick={() => open(tab.id)}
          onKeyDown={(event) => step(event, at)}
        >
          {tab.text}
        </button>
      ))}
    </div>
  );
}

/** A part of a whole as a bar with its number beside it. A cache is meant to be full; of other things that is said by the colour. */
export function Meter({ name, part, whole, text, cache }: { name: string; part: number; whole: number; text: string; cache?: boolean }) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  return (
    <div class="meter">
      <span class="name">{name}</span>
      <svg width="100%" height="8" role="img" aria-label={`${name}: ${text}`} preserveAspectRatio="none" viewBox="0 0 100 8">
        <rect class="whole" width="100" height="8" rx="1" />
        <rect class={share > 0.9 && !cache ? 'part full' : 'part'} width={Math.max(share * 100, part > 0 ? 0.6 : 0)} height="8" rx="1" />
      </svg>
      <span class="value">{text}</span>
    </div>
  );
}
