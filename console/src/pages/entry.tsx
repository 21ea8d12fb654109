// A new access control entry: put together, looked at, then added.

import { useState } from 'preact/hooks';
import { ask, withQuery, type List } from '../api.ts';
import type { Acl, User } from '../types.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Notice } from '../ui/parts.tsx';
import { Sentence, covered, idOf } from './acl.tsx';

/** What can be done with each type of resource, as kafka-acls has it. */
const OPERATIONS: Record<string, string[]> = {
  Topic: ['Read', 'Write', 'Describe', 'Create', 'Delete', 'Alter', 'DescribeConfigs', 'AlterConfigs'],
  Group: ['Read', 'Describe', 'Delete', 'DescribeConfigs', 'AlterConfigs'],
  Cluster: ['Create', 'Alter', 'Describe', 'DescribeConfigs', 'AlterConfigs', 'IdempotentWrite', 'ClusterAction'],
  TransactionalId: ['Write', 'Describe', 'TwoPhaseCommit'],
  DelegationToken: ['Describe'],
  User: ['CreateTokens', 'DescribeTokens'],
};

const SAID: Record<string, string> = {
  Read: 'Read (consume)',
  Write: 'Write (publish)',
  Describe: 'Describe (see it)',
};

const TYPES = [
  { value: 'Topic', text: 'a topic or queue' },
  { value: 'Group', text: 'a consumer group' },
  { value: 'Cluster', text: 'the cluster' },
  { value: 'TransactionalId', text: 'a transactional id' },
  { value: 'DelegationToken', text: 'a delegation token' },
  { value: 'User', text: 'a user’s tokens' },
];

interface Preview {
  acl: Acl;
  /** It is there already. */
  known: boolean;
  /** Who is named is no user that there is. */
  stranger: boolean;
  /** What it goes for now. */
  covered: string | null;
}

/** All that can be said of an entry before it is added; the server checks it first. */
async function previewOf(wish: Acl): Promise<Preview> {
  const acl = await ask<Acl>('POST', withQuery('/v1/acls', { dry_run: true }), wish);
  const same = await ask<List<Acl>>('GET', withQuery('/v1/acls', { search: acl.principal, limit: 1000 }));
  const name = acl.principal.replace(/^User:/, '');
  const users = await ask<List<User>>('GET', withQuery('/v1/users', { search: name, limit: 1000 }));
  const stranger = acl.principal.startsWith('User:') && !['*', 'ANONYMOUS'].includes(name) && !users.items.some((user) => user.name === name);
  return { acl, known: same.items.some((one) => idOf(one) === idOf(acl)), stranger, covered: await covered(acl) };
}

export function NewEntry({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const [acl, setAcl] = useState<Acl>({ principal: 'User:', host: '*', operation: 'Read', permission: 'Allow', resource: 'Topic', pattern: 'Literal', name: '' });
  const [preview, setPreview] = useState<Preview | null>(null);
  const work = useWork();
  // What was looked at counts only as long as nothing else is asked for.
  const change = (changes: Partial<Acl>): void => {
    const next = { ...acl, ...changes };
    const operations = OPERATIONS[next.resource] ?? [];
    if (next.operation !== 'All' && !operations.includes(next.operation)) next.operation = operations[0] ?? 'All';
    if (next.resource === 'Cluster') Object.assign(next, { name: 'kafka-cluster', pattern: 'Literal' });
    else if (acl.resource === 'Cluster') next.name = '';
    setAcl(next);
    setPreview(null);
    work.clear();
  };
  const look = (): Promise<boolean> => work.run(async () => setPreview(await previewOf(acl)));
  const add = async (): Promise<void> => {
    if (!(await work.run(() => ask('POST', '/v1/acls', acl)))) return;
    onClose();
    onDone();
  };
  const operations = ['All', ...(OPERATIONS[acl.resource] ?? [])].map((one) => ({ value: one, text: one === 'All' ? 'everything' : (SAID[one] ?? one) }));
  return (
    <Dialog title="New entry" onClose={onClose} wide>
      <Form work={work} submit={preview === null ? 'Preview' : 'Add entry'} onSubmit={() => void (preview === null ? look() : add())}>
        <Text label="Who" name="principal" value={acl.principal} onValue={(principal) => change({ principal })} mono autofocus help="User:NAME; User:* is everybody, User:ANONYMOUS who has not logged in." />
        <Choice
          label="May"
          name="permission"
          value={acl.permission}
          onValue={(permission) => change({ permission })}
          choices={[
            { value: 'Allow', text: 'may (allow)' },
            { value: 'Deny', text: 'may not (deny)' },
          ]}
        />
        <Choice label="With" name="resource" value={acl.resource} onValue={(resource) => change({ resource })} choices={TYPES} />
        <Choice label="Operation" name="operation" value={acl.operation} onValue={(operation) => change({ operation })} choices={operations} />
        {acl.resource !== 'Cluster' && (
          <>
            <Choice
              label="Names"
              name="pattern"
              value={acl.pattern}
              onValue={(pattern) => change({ pattern })}
              choices={[
                { value: 'Literal', text: 'just this name' },
                { value: 'Prefixed', text: 'all that begin with it' },
              ]}
            />
            <Text
              label={acl.pattern === 'Prefixed' ? 'Names begin with' : 'Name'}
              name="name"
              value={acl.name}
              onValue={(name) => change({ name })}
              mono
              help={acl.pattern === 'Literal' ? '* alone: all of them.' : undefined}
            />
          </>
        )}
        <Text label="From address" name="host" value={acl.host} onValue={(host) => change({ host })} mono help="*: from anywhere." />
        {preview !== null && (
          <div class="wide preview">
            <p>
              <Sentence acl={preview.acl} />
            </p>
            {preview.covered !== null && <p class="faint">{preview.covered}</p>}
            {preview.stranger && <Notice tone="warn">There is no user of this name now.</Notice>}
            {preview.known && <Notice tone="warn">There is such an entry already: adding it changes nothing.</Notice>}
          </div>
        )}
      </Form>
    </Dialog>
  );
}
