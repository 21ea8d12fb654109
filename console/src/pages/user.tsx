// One user: tags, password, limits, and what it may do where.

import { useRef, useState } from 'preact/hooks';
import { Refusal, ask, get, path, type Session } from '../api.ts';
import { count } from '../format.ts';
import { useResource, type Resource } from '../resource.ts';
import { go } from '../router.ts';
import type { Permission, UserFull } from '../types.ts';
import { Confirm, Dialog } from '../ui/dialog.tsx';
import { Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Icon } from '../ui/icon.tsx';
import { Badge, Empty, Loading, Notice, Refused, Section, Stat, Title } from '../ui/parts.tsx';
import { Table, type Column } from '../ui/table.tsx';
import { useVhosts } from './queues.tsx';
import { Tags } from './users.tsx';

type Asked = { kind: 'change' | 'delete' } | { kind: 'grant'; permission: Permission | null } | { kind: 'revoke'; permission: Permission } | null;

export function UserPage({ name, session }: { name: string; session: Session }) {
  const resource = useResource<UserFull>(path('users', name), {}, 5000);
  const { data, refusal, loading } = resource;
  const [asked, setAsked] = useState<Asked>(null);
  const close = (): void => setAsked(null);
  return (
    <>
      <Title title={name} above={{ text: 'Users', href: '#/users' }} about={session.user === name ? 'That is you.' : undefined}>
        {refusal?.status !== 404 && (
          <>
            <button type="button" onClick={() => setAsked({ kind: 'change' })}>
              Change
            </button>
            <button type="button" class="danger" onClick={() => setAsked({ kind: 'delete' })}>
              Delete
            </button>
          </>
        )}
      </Title>
      <Refused refusal={refusal} />
      {loading && <Loading />}
      {data && <Sums user={data} />}
      {data && <Permissions user={data} onAsk={setAsked} />}
      {data && data.topic_permissions.length > 0 && <TopicPermissions user={data} />}
      {asked?.kind === 'change' && data && <Change user={data} resource={resource} own={session.user === name} onClose={close} />}
      {asked?.kind === 'grant' && <Grant user={name} permission={asked.permission} onClose={close} onDone={resource.reload} />}
      {asked?.kind === 'revoke' && (
        <Confirm
          title={`Take away ${asked.permission.vhost}?`}
          submit="Take away"
          act={() => ask('DELETE', path('users', name, 'permissions', asked.permission.vhost))}
          onClose={close}
          onDone={resource.reload}
        >
          <p>
            {name} may do nothing in virtual host {asked.permission.vhost} from then on.
          </p>
        </Confirm>
      )}
      {asked?.kind === 'delete' && (
        <Confirm title={`Delete ${name}?`} submit="Delete user" typed={name} act={() => ask('DELETE', path('users', name))} onClose={close} onDone={() => go(['users'])}>
          <p>The user’s connections end, on every protocol.</p>
        </Confirm>
      )}
    </>
  );
}

function Sums({ user }: { user: UserFull }) {
  const limit = (value: number | null): string => (value === null ? 'no limit' : `at most ${count(value)}`);
  return (
    <dl class="stats">
      <div class="stat">
        <dt>Tags</dt>
        <dd>{user.tags.length === 0 ? 'none' : user.tags.map((tag) => <Badge key={tag}>{tag}</Badge>)}</dd>
      </div>
      <Stat name="Password" value={user.has_password ? 'set' : 'none'} note={user.hash ?? undefined} />
      <Stat name="SCRAM" value={user.scram.length === 0 ? 'no keys' : user.scram.map((one) => one.mechanism.replace('SCRAM-', '')).join(', ')} />
      <Stat name="Connections" value={count(user.connections)} note={limit(user.limits.max_connections)} />
      <Stat name="Channels" value={limit(user.limits.max_channels)} />
    </dl>
  );
}

function Permissions({ user, onAsk }: { user: UserFull; onAsk: (asked: Asked) => void }) {
  const columns: Column<Permission>[] = [
    { head: 'Virtual host', main: true, cell: (one) => one.vhost },
    { head: 'Configure', cell: (one) => <Pattern pattern={one.configure} /> },
    { head: 'Write', cell: (one) => <Pattern pattern={one.write} /> },
    { head: 'Read', cell: (one) => <Pattern pattern={one.read} /> },
    {
      head: '',
      cell: (one) => (
        <span class="pair-buttons">
          <button type="button" class="small" aria-label={`Change permissions in ${one.vhost}`} onClick={() => onAsk({ kind: 'grant', permission: one })}>
            Change
          </button>
          <button type="button" class="small" aria-label={`Take away permissions in ${one.vhost}`} onClick={() => onAsk({ kind: 'revoke', permission: one })}>
            Take away
          </button>
        </span>
      ),
    },
  ];
  const grant = (
    <button type="button" onClick={() => onAsk({ kind: 'grant', permission: null })}>
      <Icon name="plus" /> Grant
    </button>
  );
  return (
    <Section title="Permissions" about="Regular expressions over the names of queues, exchanges and topics, for each virtual host. Topics of Kafka clients are in /." actions={grant}>
      {user.permissions.length === 0 ? <Empty title="The user may do nothing in any virtual host." /> : <Table label="Permissions" columns={columns} rows={user.permissions} id={(one) => one.vhost} />}
    </Section>
  );
}

function Pattern({ pattern }: { pattern: string }) {
  if (pattern === '') return <span class="faint">nothing</span>;
  return pattern === '.*' ? <>everything</> : <code>{pattern}</code>;
}

function TopicPermissions({ user }: { user: UserFull }) {
  return (
    <Section title="Routing keys" about="At topic exchanges routing keys have to match, too.">
      <Table
        label="Routing keys"
        columns={[
          { head: 'Virtual host', cell: (one) => one.vhost },
          { head: 'Exchange', main: true, cell: (one) => one.exchange },
          { head: 'Write', cell: (one) => <Pattern pattern={one.write} /> },
          { head: 'Read', cell: (one) => <Pattern pattern={one.read} /> },
        ]}
        rows={user.topic_permissions}
        id={(one) => `${one.vhost}/${one.exchange}`}
      />
    </Section>
  );
}

const same = (one: string[], other: string[]): boolean => [...one].sort().join() === [...other].sort().join();

function Change({ user, resource, own, onClose }: { user: UserFull; resource: Resource<UserFull>; own: boolean; onClose: () => void }) {
  // As it was when the window opened.
  const [first] = useState(user);
  const [password, setPassword] = useState('');
  const [tags, setTags] = useState(user.tags);
  const [connections, setConnections] = useState(user.limits.max_connections?.toString() ?? '');
  const [channels, setChannels] = useState(user.limits.max_channels?.toString() ?? '');
  const work = useWork();
  const number = (text: string): number | null => (text === '' ? null : Number(text));
  const save = async (): Promise<void> => {
    const limits = { max_connections: number(connections), max_channels: number(channels) };
    // What is not changed here may have been changed elsewhere since.
    const body = {
      ...(password === '' ? {} : { password }),
      ...(same(tags, first.tags) ? {} : { tags }),
      ...(limits.max_connections === first.limits.max_connections && limits.max_channels === first.limits.max_channels ? {} : { limits }),
    };
    if (await work.run(() => ask('PUT', path('users', user.name), body))) {
      onClose();
      resource.reload();
    }
  };
  return (
    <Dialog title={`Change ${user.name}`} onClose={onClose}>
      {own && <Notice tone="warn">That is you: a new password or other tags end this session.</Notice>}
      <Form work={work} submit="Save" onSubmit={() => void save()}>
        <Text label="New password" name="password" type="password" value={password} onValue={setPassword} autocomplete="new-password" help="Empty: it stays." wide />
        <Tags tags={tags} onTags={setTags} />
        <Text label="Connections at most" name="limits.max_connections" type="number" value={connections} onValue={setConnections} placeholder="no limit" />
        <Text label="Channels at most" name="limits.max_channels" type="number" value={channels} onValue={setChannels} placeholder="no limit" />
      </Form>
    </Dialog>
  );
}

const worded = (one: Permission | null): string => (one === null ? 'none' : `configure “${one.configure}”, write “${one.write}”, read “${one.read}”`);

function Grant({ user, permission, onClose, onDone }: { user: string; permission: Permission | null; onClose: () => void; onDone: () => void }) {
  const vhosts = useVhosts();
  const [vhost, setVhost] = useState(permission?.vhost ?? '/');
  const seen = useRef(worded(permission));
  const [configure, setConfigure] = useState(permission?.configure ?? '.*');
  const [write, setWrite] = useState(permission?.write ?? '.*');
  const [read, setRead] = useState(permission?.read ?? '.*');
  const work = useWork();
  const save = async (): Promise<void> => {
    const done = await work.run(async () => {
      const now = (await get<UserFull>(path('users', user))).permissions.find((one) => one.vhost === vhost) ?? null;
      // In another virtual host than was looked at there may be some already.
      if (worded(now) !== seen.current) {
        seen.current = worded(now);
        throw new Refusal(409, 'conflict', `There are these now: ${seen.current}. Save once more to replace them.`, null);
      }
      await ask('PUT', path('users', user, 'permissions', vhost), { configure, write, read });
    });
    if (!done) return;
    onClose();
    onDone();
  };
  return (
    <Dialog title={permission ? `Permissions in ${permission.vhost}` : 'Grant permissions'} onClose={onClose}>
      <Form work={work} submit="Save" onSubmit={() => void save()}>
        {!permission && <Choice label="Virtual host" name="vhost" value={vhost} onValue={setVhost} choices={vhosts.map((one) => ({ value: one, text: one }))} />}
        <p class="said wide">Regular expressions: <code>.*</code> is everything, empty is nothing, <code>^orders-</code> is what begins so.</p>
        <Text label="Configure: make and delete" name="configure" value={configure} onValue={setConfigure} mono wide />
        <Text label="Write: publish" name="write" value={write} onValue={setWrite} mono wide />
        <Text label="Read: consume" name="read" value={read} onValue={setRead} mono wide />
      </Form>
    </Dialog>
  );
}
