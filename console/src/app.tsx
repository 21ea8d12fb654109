// The application: who is logged in, the navigation, and the page that the address names.

import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ask, asRefusal, get, rememberSession, whenLoggedOut, whenOther, type Refusal, type Session } from './api.ts';
import { time, zone } from './format.ts';
import { useNode, watchNode, type LiveState } from './live.ts';
import { Access } from './pages/access.tsx';
import { Configuration } from './pages/config.tsx';
import { ConnectionPage } from './pages/connection.tsx';
import { Connections } from './pages/connections.tsx';
import { Exchanges } from './pages/exchanges.tsx';
import { GroupPage } from './pages/group.tsx';
import { Groups } from './pages/groups.tsx';
import { JournalPage } from './pages/journal.tsx';
import { Login } from './pages/login.tsx';
import { OverviewPage } from './pages/overview.tsx';
import { QueuePage } from './pages/queue.tsx';
import { Queues } from './pages/queues.tsx';
import { Quotas } from './pages/quotas.tsx';
import { TopicPage } from './pages/topic.tsx';
import { Topics } from './pages/topics.tsx';
import { UserPage } from './pages/user.tsx';
import { Users } from './pages/users.tsx';
import { useLost } from './reach.ts';
import { placeOf, to, usePlace, type Place } from './router.ts';
import { applyTheme, storedTheme, type Theme } from './theme.ts';
import { Icon, type IconName } from './ui/icon.tsx';
import { Empty, Notice, Title } from './ui/parts.tsx';

interface Entry {
  id: string;
  text: string;
  icon: IconName;
  /** Only who administers sees it. */
  administrator?: boolean;
  /** Who may look at the whole node sees it. */
  monitoring?: boolean;
}

const ENTRIES: Entry[] = [
  { id: '', text: 'Overview', icon: 'overview' },
  { id: 'topics', text: 'Topics', icon: 'topics' },
  { id: 'groups', text: 'Consumer groups', icon: 'groups' },
  { id: 'queues', text: 'Queues', icon: 'queues' },
  { id: 'exchanges', text: 'Exchanges', icon: 'exchanges' },
  { id: 'connections', text: 'Connections', icon: 'connections' },
  { id: 'users', text: 'Users', icon: 'users', administrator: true },
  { id: 'access', text: 'Access control', icon: 'access', administrator: true },
  { id: 'quotas', text: 'Quotas', icon: 'quotas', monitoring: true },
  { id: 'journal', text: 'Journal', icon: 'journal', monitoring: true },
  { id: 'config', text: 'Configuration', icon: 'config', monitoring: true },
];

export function App() {
  const [session, setSession] = useState<Session | null | undefined>(undefined);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  // Why somebody has to log in who was there before.
  const [ended, setEnded] = useState('');
  const current = useRef<Session | null>(null);
  const enter = (next: Session | null): void => {
    current.current = next;
    rememberSession(next);
    setSession(next);
    if (next !== null) setEnded('');
  };
  useEffect(() => {
    whenLoggedOut(() => {
      if (current.current !== null) setEnded(current.current.anonymous ? 'There are users now: everybody logs in.' : 'Your login has ended. Log in to go on where you were.');
      enter(null);
    });
    whenOther(enter);
    const begin = async (): Promise<void> => {
      try {
        enter(await get<Session>('/v1/session'));
        setRefusal(null);
      } catch (error) {
        const refused = asRefusal(error);
        if (refused.status === 401) enter(null);
        else {
          setRefusal(refused);
          setTimeout(() => void begin(), 2000);
        }
      }
    };
    void begin();
  }, []);
  if (session === undefined) return refusal ? <Unreachable refusal={refusal} /> : <main class="start" aria-busy="true" />;
  if (session === null) return <Login ended={ended} onSession={enter} />;
  return <Frame key={session.user} session={session} onLeave={() => enter(null)} />;
}

function Unreachable({ refusal }: { refusal: Refusal }) {
  return (
    <main class="start">
      <h1 class="hidden">Mainstem</h1>
      <Notice tone="warn">{refusal.message} Trying again.</Notice>
    </main>
  );
}

function Frame({ session, onLeave }: { session: Session; onLeave: () => void }) {
  const place = usePlace();
  const [open, setOpen] = useState(false);
  useEffect(() => (session.monitoring ? watchNode() : undefined), [session.user]);
  const here = place.names[0] ?? '';
  useEffect(() => {
    setOpen(false);
    window.scrollTo(0, 0);
  }, [place.names.join('/')]);
  const leave = async (): Promise<void> => {
    try {
      await ask('DELETE', '/v1/session');
    } finally {
      onLeave();
    }
  };
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById('main')?.focus())}>
        Skip to the page
      </a>
      <header class="bar">
        <button type="button" class="quiet" aria-expanded={open} aria-controls="navigation" onClick={() => setOpen(!open)}>
          <Icon name="menu" />
          <span class="hidden">Menu</span>
        </button>
        <Brand />
        <Live />
      </header>
      <div class={`side ${open ? 'open' : ''}`} id="navigation">
        <div class="top">
          <Brand />
        </div>
        <nav aria-label="Pages">
          <ul>
            {ENTRIES.filter((entry) => (!entry.administrator || session.administrator) && (!entry.monitoring || session.monitoring)).map((entry) => (
              <li key={entry.id}>
                <a href={to(entry.id === '' ? [] : [entry.id])} aria-current={here === entry.id ? 'page' : undefined}>
                  <Icon name={entry.icon} />
                  {entry.text}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <Foot session={session} onLeave={() => void leave()} />
      </div>
      <main id="main" tabIndex={-1}>
        <Silence />
        {pageOf(place, session)}
      </main>
    </div>
  );
}

const AGAIN = 2000;

/** The broker does not answer: what is shown is old. It is asked until it does. */
function Silence() {
  const lostAt = useLost();
  useEffect(() => {
    if (lostAt === null) return undefined;
    const timer = setInterval(() => void get('/v1/session').catch(() => {}), AGAIN);
    return () => clearInterval(timer);
  }, [lostAt]);
  if (lostAt === null) return null;
  return <Notice tone="warn">The broker has not answered since {time(lostAt).slice(11)}. What is shown here is of before; it goes on by itself when the broker is back.</Notice>;
}

function Brand() {
  return (
    <a class="brand" href="#/">
      <img src="/icon.svg" alt="" width="22" height="22" /> Mainstem
    </a>
  );
}

const SAID: Record<LiveState, string> = { off: 'Not live', connecting: 'Connecting', live: 'Live', lost: 'Not live: connecting again' };

function Live() {
  const { state } = useNode();
  return (
    <span class={`live ${state}`} role="status">
      {SAID[state]}
    </span>
  );
}

function Foot({ session, onLeave }: { session: Session; onLeave: () => void }) {
  const [theme, setTheme] = useState<Theme>(storedTheme());
  const choose = (next: Theme): void => {
    setTheme(next);
    applyTheme(next);
  };
  return (
    <div class="foot">
      <Live />
      <p>
        Times are local: <br />
        {zone()}
      </p>
      <label>
        Theme
        <select value={theme} onChange={(event) => choose(event.currentTarget.value as Theme)}>
          <option value="system">as the system</option>
          <option value="light">light</option>
          <option value="dark">dark</option>
        </select>
      </label>
      <div class="who">
        <span>
          <strong>{session.user}</strong>
          {session.anonymous && <small>nobody has to log in yet</small>}
        </span>
        {!session.anonymous && (
          <button type="button" class="quiet" onClick={onLeave}>
            <Icon name="out" /> Log out
          </button>
        )}
      </div>
    </div>
  );
}

function pageOf(place: Place, session: Session): JSX.Element {
  const [kind = '', first, second] = place.names;
  switch (kind) {
    case '':
      return <OverviewPage session={session} />;
    case 'topics':
      return first === undefined ? <Topics /> : <TopicPage key={first} name={first} query={place.query} />;
    case 'groups':
      return first === undefined ? <Groups query={place.query} /> : <GroupPage key={first} name={first} query={place.query} />;
    case 'queues':
      return first === undefined || second === undefined ? <Queues /> : <QueuePage key={`${first}/${second}`} vhost={first} name={second} />;
    case 'exchanges':
      return <Exchanges />;
    case 'connections':
      return first === undefined ? <Connections /> : <ConnectionPage key={first} id={first} />;
    case 'users':
      return first === undefined ? <Users session={session} /> : <UserPage key={first} name={first} session={session} />;
    case 'access':
      return <Access />;
    case 'quotas':
      return <Quotas session={session} />;
    case 'journal':
      return <JournalPage query={place.query} />;
    case 'config':
      return <Configuration session={session} />;
    default:
      return (
        <>
          <Title title="No such page" />
          <Empty title="The address names no page of the console.">
            <a href="#/">To the overview</a>
          </Empty>
        </>
      );
  }
}

// An address without a hash is the overview.
if (placeOf(location.hash).names.length === 0 && location.hash === '') history.replaceState(null, '', '#/');
