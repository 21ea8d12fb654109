// Access control: all entries, a new one, and whether they count.

import { useState } from 'preact/hooks';
import { ask } from '../api.ts';
import { useResource } from '../resource.ts';
import { to } from '../router.ts';
import type { Acl, AclState } from '../types.ts';
import { Confirm } from '../ui/dialog.tsx';
import { Icon } from '../ui/icon.tsx';
import { Badge, Empty, Notice, Title } from '../ui/parts.tsx';
import { Listing, type Column } from '../ui/table.tsx';
import { Sentence, Which, idOf } from './acl.tsx';
import { NewEntry } from './entry.tsx';

export function Access() {
  const [making, setMaking] = useState(false);
  const [removed, setRemoved] = useState<Acl | null>(null);
  const [turn, setTurn] = useState(0);
  const state = useResource<AclState>('/v1/acls/state', {}, 5000);
  const changed = (): void => {
    setTurn((number) => number + 1);
    state.reload();
  };
  const columns: Column<Acl>[] = [
    { head: 'Who', sort: 'principal', main: true, cell: (acl) => <Who acl={acl} /> },
    { head: 'May', sort: 'permission', cell: (acl) => <Badge tone={acl.permission === 'Allow' ? 'good' : 'bad'}>{acl.permission === 'Allow' ? 'may' : 'may not'}</Badge> },
    { head: 'Operation', sort: 'operation', cell: (acl) => (acl.operation === 'All' ? 'everything' : acl.operation) },
    { head: 'With', sort: 'resource', cell: (acl) => <Which acl={acl} /> },
    { head: 'From', sort: 'host', cell: (acl) => (acl.host === '*' ? <span class="faint">any address</span> : <span class="mono">{acl.host}</span>) },
    {
      head: '',
      cell: (acl) => (
        <button type="button" class="small" aria-label={`Delete: ${acl.principal} ${acl.permission} ${acl.operation} ${acl.resource} ${acl.name}`} onClick={() => setRemoved(acl)}>
          Delete
        </button>
      ),
    },
  ];
  return (
    <>
      <Title title="Access control" about="Who may do what, on every protocol: a queue or an exchange counts as the topic of its name. An entry that denies goes before all that allow.">
        <button type="button" class="primary" onClick={() => setMaking(true)}>
          <Icon name="plus" /> New entry
        </button>
      </Title>
      {state.data && !state.data.enforced && (
        <Notice tone="warn">
          These entries do not count: <code>authorizer.class.name</code> is not set. Until the broker is started with it, whoever is in may use every topic and group.
        </Notice>
      )}
      <Listing
        label="entries"
        address="/v1/acls"
        columns={columns}
        id={idOf}
        placeholder="Search names and words"
        turn={turn}
        empty={
          <Empty title="There is no entry yet.">
            <p>{state.data?.enforced ? 'Only administrators and super.users may do anything until there is one.' : 'Entries can be made before they count.'}</p>
            <button type="button" class="primary" onClick={() => setMaking(true)}>
              New entry
            </button>
          </Empty>
        }
      />
      {making && <NewEntry onClose={() => setMaking(false)} onDone={changed} />}
      {removed && (
        <Confirm title="Delete the entry?" submit="Delete entry" act={() => ask('POST', '/v1/acls/delete', removed)} onClose={() => setRemoved(null)} onDone={changed}>
          <p>
            <Sentence acl={removed} />
          </p>
          <p>{removed.permission === 'Allow' ? 'From then on it is not allowed by this entry; connections notice at once.' : 'From then on what others allow counts again.'}</p>
        </Confirm>
      )}
    </>
  );
}

function Who({ acl }: { acl: Acl }) {
  if (acl.principal === 'User:*') return <>Everybody</>;
  const name = acl.principal.startsWith('User:') ? acl.principal.slice(5) : null;
  if (name === null || name === 'ANONYMOUS') return <>{name === 'ANONYMOUS' ? 'Whoever has not logged in' : acl.principal}</>;
  return <a href={to(['users', name])}>{name}</a>;
}
