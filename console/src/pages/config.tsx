// Settings of the broker.

import { get, type List, type Session } from '../api.ts';
import { useResource } from '../resource.ts';
import type { Setting } from '../types.ts';
import { Loading, Refused, Title } from '../ui/parts.tsx';
import { SettingsTable } from './settings.tsx';

const ALL = { limit: 1000 };

export function Configuration({ session }: { session: Session }) {
  const { data, refusal, loading, reload } = useResource<List<Setting>>('/v1/config', ALL, 5000);
  return (
    <>
      <Title title="Configuration" about="Settings of the broker, under Kafka’s names where Kafka has them. Some take effect at once, some with a restart." />
      <Refused refusal={refusal} />
      {loading && <Loading />}
      {data && <SettingsTable settings={data.items} address="/v1/config" look={async () => (await get<List<Setting>>('/v1/config', ALL)).items} onChanged={reload} fixed={!session.administrator} />}
    </>
  );
}
