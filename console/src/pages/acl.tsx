// An access control entry in words, and what it goes for.

import { ask, withQuery, type List } from '../api.ts';
import { plural } from '../format.ts';
import type { Acl, Group, Topic } from '../types.ts';

/** What an entry is about, in the plural. */
const RESOURCES: Record<string, string> = {
  Topic: 'topics',
  Group: 'groups',
  Cluster: 'the cluster',
  TransactionalId: 'transactional ids',
  DelegationToken: 'delegation tokens',
  User: 'users',
};

/** The resources of an entry in words. */
export function Which({ acl }: { acl: Acl }) {
  const kind = RESOURCES[acl.resource] ?? acl.resource;
  if (acl.resource === 'Cluster') return <>{kind}</>;
  if (acl.pattern === 'Literal' && acl.name === '*') return <>all {kind}</>;
  return (
    <>
      {acl.pattern === 'Prefixed' ? `${kind} that begin with ` : acl.resource === 'TransactionalId' ? 'transactional id ' : `${acl.resource.toLowerCase()} `}
      <code>{acl.name}</code>
    </>
  );
}

function whose(acl: Acl): string {
  return acl.principal === 'User:*' ? 'Everybody' : acl.principal;
}

/** An entry as a sentence. */
export function Sentence({ acl }: { acl: Acl }) {
  return (
    <>
      <strong>{whose(acl)}</strong> {acl.permission === 'Allow' ? 'may' : 'may not'} <strong>{acl.operation === 'All' ? 'do everything with' : acl.operation}</strong> <Which acl={acl} />
      {acl.host === '*' ? ', from any address.' : `, from ${acl.host}.`}
    </>
  );
}

export const idOf = (acl: Acl): string => [acl.principal, acl.host, acl.operation, acl.permission, acl.resource, acl.pattern, acl.name].join('\n');

/** Does an entry go for a resource of its type with this name? */
function covers(acl: Acl, name: string): boolean {
  return acl.pattern === 'Prefixed' ? name.startsWith(acl.name) : acl.name === '*' || name === acl.name;
}

const NAMES_SHOWN = 8;

/** What an entry goes for of what there is now. */
export async function covered(acl: Acl): Promise<string | null> {
  if (acl.resource !== 'Topic' && acl.resource !== 'Group') return null;
  const search = acl.pattern === 'Literal' && acl.name === '*' ? '' : acl.name;
  const address = acl.resource === 'Topic' ? '/v1/topics' : '/v1/groups';
  const found = await ask<List<Topic | Group>>('GET', withQuery(address, { search, internal: acl.resource === 'Topic', limit: 1000 }));
  const names = found.items.map((one) => one.name).filter((name) => covers(acl, name));
  const isTopic = acl.resource === 'Topic';
  const one = isTopic ? 'topic or queue' : 'group';
  if (names.length === 0) return `No ${one} there is now has such a name.`;
  const at = found.total > found.items.length ? 'at least ' : '';
  const rest = names.length > NAMES_SHOWN ? ' and others' : '';
  return `Of what there is now it goes for ${at}${plural(names.length, one, isTopic ? 'topics and queues' : 'groups')}: ${names.slice(0, NAMES_SHOWN).join(', ')}${rest}.`;
}
