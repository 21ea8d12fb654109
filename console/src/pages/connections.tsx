// Who is connected, over every protocol.

import { byteRate, bytes, time } from '../format.ts';
import { to } from '../router.ts';
import type { Connection } from '../types.ts';
import { Empty, Title } from '../ui/parts.tsx';
import { Listing, type Column } from '../ui/table.tsx';

const COLUMNS: Column<Connection>[] = [
  {
    head: 'Client',
    sort: 'client_id',
    main: true,
    cell: (one) => (
      <>
        <a href={to(['connections', one.id])}>{one.client_id ?? one.address}</a>
        {one.software && <p class="doc">{one.software}</p>}
      </>
    ),
  },
  { head: 'Protocol', sort: 'protocol', cell: (one) => `${one.protocol}${one.tls ? ', TLS' : ''}` },
  { head: 'User', sort: 'user', cell: (one) => one.user ?? <span class="faint">nobody</span> },
  { head: 'From', sort: 'address', cell: (one) => <span class="mono">{one.address}</span> },
  { head: 'Since (local)', sort: 'connected_at', cell: (one) => time(one.connected_at) },
  { head: 'In', sort: 'rates.in_bytes', number: true, cell: (one) => byteRate(one.rates.in_bytes) },
  { head: 'Out', sort: 'rates.out_bytes', number: true, cell: (one) => byteRate(one.rates.out_bytes) },
  { head: 'Received', sort: 'received_bytes', number: true, cell: (one) => bytes(one.received_bytes) },
  { head: 'Sent', sort: 'sent_bytes', number: true, cell: (one) => bytes(one.sent_bytes) },
];

export function Connections() {
  return (
    <>
      <Title title="Connections" about="A connection’s page says why it is slow, if it is." />
      <Listing
        label="connections"
        address="/v1/connections"
        columns={COLUMNS}
        id={(one) => one.id}
        sort="-rates.in_bytes"
        every={3000}
        placeholder="Search by address, user or client"
        empty={
          <Empty title="Nobody is connected.">
            <p>Kafka clients connect to port 9092, AMQP clients to 5672, if nothing else is configured.</p>
          </Empty>
        }
      />
    </>
  );
}
