// Why is it slow? The broker looks for a second at what held a client, a topic or a group up, and says it in order of weight.

import { useEffect, useState } from 'preact/hooks';
import { asRefusal, get, isServed, type Refusal } from '../api.ts';
import { plural } from '../format.ts';
import { Notice, Refused, Section } from '../ui/parts.tsx';

interface Reason {
  cause: string;
  share: number;
  worst: number;
  connections: number;
  text: string;
}

interface Answer {
  seconds: number;
  reasons: Reason[];
  connections: { peer: string; shares: Record<string, number> }[];
  connection_count: number;
}

/** What the words of causes mean, in short. */
const CAUSES: Record<string, string> = {
  quota: 'Quota',
  'topic-quota': 'Quota of the topic',
  'laggard-rule': 'Rule for groups that lag',
  disk: 'Disk',
  memory: 'Memory budget',
  'slow-reader': 'The client reads slowly',
  history: 'Reading history',
  'no-records': 'Nothing new to read',
  filter: 'Filter',
  'tls-handshake': 'TLS handshakes',
  client: 'The client itself',
  login: 'Login',
  coordinator: 'Coordinator of the group',
  'disk-full': 'Disk full',
  'disk-failed': 'Disk failed',
  'slow-disk': 'Slow disk',
  archive: 'Archive',
  'threads-busy': 'Threads busy',
  unacknowledged: 'Unacknowledged messages',
  behind: 'Behind',
};

/** Where nothing is slow on the broker's side. */
const IDLE = ['client', 'no-records'];

interface Props {
  /** Whom it is about: `client`, `topic` or `group`, and its name; nobody: all. */
  subject: Record<string, string>;
  /** Only this connection of it. */
  peer?: string;
  /** Looks again after so many milliseconds, while the page is seen. */
  every?: number;
}

/** Whether this broker says why. */
export function useWhy(): boolean {
  const [served, setServed] = useState(false);
  useEffect(() => void isServed('/v1/why').then(setServed), []);
  return served;
}

export function Why(props: Props) {
  return useWhy() ? <Reasons {...props} /> : null;
}

function Reasons({ subject, peer, every }: Props) {
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [busy, setBusy] = useState(false);
  const look = async (): Promise<void> => {
    setBusy(true);
    setRefusal(null);
    try {
      setAnswer(await get<Answer>('/v1/why', subject));
    } catch (error) {
      setRefusal(asRefusal(error));
    }
    setBusy(false);
  };
  useEffect(() => {
    void look();
    if (every === undefined) return undefined;
    const timer = setInterval(() => document.hidden || void look(), every);
    return () => clearInterval(timer);
  }, [JSON.stringify(subject), every]);
  const own = peer === undefined ? undefined : answer?.connections.find((one) => one.peer === peer);
  const reasons = answer?.reasons.filter((reason) => own === undefined || own.shares[reason.cause] !== undefined || reason.connections === 0) ?? [];
  return (
    <Section
      title="Why is it slow?"
      about={answer ? `What held it up in the last ${plural(Math.round(answer.seconds), 'second')} that was looked at, the heaviest first.` : 'The broker looks for a second.'}
      actions={
        <button type="button" disabled={busy} aria-busy={busy} onClick={() => void look()}>
          {busy ? 'Looking…' : 'Look again'}
        </button>
      }
    >
      <Refused refusal={refusal} />
      {answer && reasons.every((reason) => IDLE.includes(reason.cause)) && <Notice tone="good">The broker holds nothing up here{reasons.length > 0 && ': the time goes elsewhere'}.</Notice>}
      {reasons.length > 0 && (
        <ol class="chain">
          {reasons.map((reason, place) => (
            <li key={reason.cause}>
              <span class="mark">{place + 1}</span>
              <div>
                <strong>{CAUSES[reason.cause] ?? reason.cause}</strong> <span class="faint">{share(own?.shares[reason.cause] ?? reason.share)}</span>
                <p>{reason.text}</p>
              </div>
            </li>
          ))}
        </ol>
      )}
    </Section>
  );
}

function share(part: number): string {
  return part > 0 ? `${Math.round(part * 100)} % of the time` : '';
}
