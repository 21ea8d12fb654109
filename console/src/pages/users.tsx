// Who may log in.

import { useState } from 'preact/hooks';
import { ask, path, type Session } from '../api.ts';
import { count } from '../format.ts';
import { go, to } from '../router.ts';
import type { User } from '../types.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Check, Form, Text, useWork } from '../ui/form.tsx';
import { Icon } from '../ui/icon.tsx';
import { Badge, Empty, Notice, Title } from '../ui/parts.tsx';
import { Listing, type Column } from '../ui/table.tsx';

const COLUMNS: Column<User>[] = [
  { head: 'User', sort: 'name', main: true, cell: (user) => <a href={to(['users', user.name])}>{user.name}</a> },
  { head: 'Tags', cell: (user) => (user.tags.length === 0 ? <span class="faint">none</span> : user.tags.map((tag) => <Badge key={tag}>{tag}</Badge>)) },
  { head: 'Logs in by', cell: (user) => ways(user) },
  { head: 'Connections', sort: 'connections', number: true, cell: (user) => count(user.connections) },
  { head: 'At most', number: true, cell: (user) => (user.limits.max_connections === null ? 'no limit' : count(user.limits.max_connections)) },
];

function ways(user: User): string {
  const all = [...(user.has_password ? ['password'] : []), ...user.scram.map((one) => one.mechanism)];
  return all.length === 0 ? 'certificate only' : all.join(', ');
}

export function Users({ session }: { session: Session }) {
  const [making, setMaking] = useState(false);
  return (
    <>
      <Title title="Users" about="The same users on every protocol, and here.">
        <button type="button" class="primary" onClick={() => setMaking(true)}>
          <Icon name="plus" /> New user
        </button>
      </Title>
      {session.anonymous && <Notice tone="warn">While there is no user nobody has to log in. The first user has to be an administrator; from then on everybody logs in.</Notice>}
      <Listing
        label="users"
        address="/v1/users"
        columns={COLUMNS}
        id={(user) => user.name}
        empty={
          <Empty title="There is no user yet.">
            <button type="button" class="primary" onClick={() => setMaking(true)}>
              New user
            </button>
          </Empty>
        }
      />
      {making && <NewUser first={session.anonymous} onClose={() => setMaking(false)} />}
    </>
  );
}

export const TAGS: { id: string; text: string }[] = [
  { id: 'administrator', text: 'administrator: everything' },
  { id: 'monitoring', text: 'monitoring: looks at the whole node' },
  { id: 'policymaker', text: 'policymaker: policies of its virtual hosts' },
  { id: 'management', text: 'management: its own things, here' },
];

export function Tags({ tags, onTags }: { tags: string[]; onTags: (tags: string[]) => void }) {
  return (
    <fieldset class="wide">
      <legend>Tags</legend>
      {TAGS.map((tag) => (
        <Check key={tag.id} label={tag.text} value={tags.includes(tag.id)} onValue={(on) => onTags(on ? [...tags, tag.id] : tags.filter((one) => one !== tag.id))} />
      ))}
    </fieldset>
  );
}

function NewUser({ first, onClose }: { first: boolean; onClose: () => void }) {
  const [name, setName] = useState('');
  const [password, setPassword] = useState('');
  const [tags, setTags] = useState<string[]>(first ? ['administrator'] : []);
  const [all, setAll] = useState(true);
  const work = useWork();
  const make = async (): Promise<void> => {
    const done = await work.run(async () => {
      await ask('PUT', path('users', name), { password: password === '' ? null : password, tags });
      if (!all) return;
      try {
        await ask('PUT', path('users', name, 'permissions', '/'), { configure: '.*', write: '.*', read: '.*' });
      } catch (error) {
        // The first user has ended the time without logins: the rest is done once somebody has logged in.
        if (!first) throw error;
      }
    });
    if (!done) return;
    onClose();
    if (first) location.reload();
    else go(['users', name]);
  };
  return (
    <Dialog title="New user" onClose={onClose}>
      <Form work={work} submit="Create user" disabled={name === ''} onSubmit={() => void make()}>
        <Text label="Name" name="name" value={name} onValue={setName} autofocus />
        <Text label="Password" name="password" type="password" value={password} onValue={setPassword} autocomplete="new-password" help="Without one a certificate is needed." />
        <Tags tags={tags} onTags={setTags} />
        <Check label="May use everything in virtual host /" value={all} onValue={setAll} />
      </Form>
    </Dialog>
  );
}
