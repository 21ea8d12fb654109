// What /v1 answers, as far as the console shows it. Times are milliseconds since 1970, sizes bytes, rates per second.

export interface Totals {
  in_bytes: number;
  out_bytes: number;
  kafka_in_records: number;
  kafka_in_bytes: number;
  kafka_out_bytes: number;
  amqp_published: number;
  amqp_confirmed: number;
  amqp_delivered: number;
  amqp_acknowledged: number;
  amqp_in_bytes: number;
  amqp_out_bytes: number;
}

export interface Memory {
  budget_bytes: number;
  resident_bytes: number;
  uses: { name: string; bytes: number; text: string }[];
}

export interface Percentiles {
  p50_ms: number | null;
  p99_ms: number | null;
  p999_ms: number | null;
}

export interface NodeSample {
  at: number;
  rates: Totals;
  memory: Memory;
  connections: number;
  latency: Record<'produce' | 'fetch' | 'commit', Percentiles>;
}

export interface Journal {
  journal: number;
  status: 'running' | 'stopped' | 'disk_full';
  reason: string | null;
  term: number;
  durable_index: number;
  file_bytes: number;
  window_bytes: number | null;
  segment_count: number;
  segment_bytes: number;
  live_bytes: number;
  queued_bytes: number;
  waits_for_archive: boolean;
  tail: { allocated_bytes: number; used_bytes: number };
  state_bytes: number;
  archive: { objects: number; deletes: number; written_bytes: number; read_bytes: number };
}

export interface Segment {
  sequence: number;
  file: string;
  bytes: number;
  sealed: boolean;
}

export interface Overview {
  version: string;
  cluster_id: string;
  node_id: number;
  host: string;
  phase: 'ready' | 'recovering' | 'stopped' | 'draining';
  started_at: number;
  uptime_ms: number;
  now_at: number;
  counts: Record<string, number>;
  // These are null for those who do not look after the node.
  totals: Totals | null;
  rates: Totals | null;
  memory: Memory | null;
  disk: { folder: string; free_bytes: number; journal_bytes: number } | null;
  journals: Journal[] | null;
  listeners: { protocol: string; address: string; tls: boolean }[] | null;
  warnings: { code: string; text: string }[];
}

export interface Topic {
  name: string;
  id: string;
  partitions: number;
  records: number;
  bytes: number;
  queue: { vhost: string; name: string; type: string } | null;
  internal: boolean;
  durability: string;
  cleanup_policy: string;
  retention_ms: number | null;
  rates: { in_records: number };
}

export interface Partition {
  partition: number;
  start: number;
  high_watermark: number;
  last_stable: number;
  records: number;
  bytes: number;
  leader_epoch: number;
  archived_until: number;
  journal: number;
  rates: { in_records: number };
}

export interface Setting {
  name: string;
  value: string | null;
  default: string | null;
  source: string;
  apply?: 'dynamic' | 'restart';
  class?: 'enforced' | 'inert' | 'default_only';
  type: string;
  range: [number, number] | null;
  words: string[] | null;
  doc: string;
}

export interface TopicFull extends Topic {
  partition_list: Partition[];
  config: Setting[];
  groups: string[];
}

export interface FieldValue {
  text: string | null;
  base64: string | null;
  bytes: number;
  truncated: boolean;
}

export interface RecordShown {
  partition: number;
  offset: number;
  timestamp: number;
  bytes: number;
  key: FieldValue | null;
  value: FieldValue | null;
  headers: { name: string; value: FieldValue | null }[];
  headers_left_out: number;
  amqp: { exchange: string; routing_key: string } | null;
}

export interface RecordsFound {
  records: RecordShown[];
  cursor: string | null;
  looked_records: number;
  looked_bytes: number;
  cut: boolean;
  unread: { partition: number; offset: number; reason: string }[];
}

export interface Group {
  name: string;
  kind: string;
  state: string;
  protocol_type: string;
  members: number;
  topics: number;
  lag: number | null;
  /** Partitions that members read and of which there is no offset: where the group begins there is not known. */
  without_offset: { partitions: number; records: number };
  filter: string | null;
}

/** Which records members of a group get. */
export interface Filter {
  /** The group. */
  name: string;
  expression: string;
  client_ids: string[];
}

export interface GroupOffset {
  topic: string;
  partition: number;
  committed: number | null;
  start: number;
  high_watermark: number;
  lag: number | null;
  committed_at: number | null;
  metadata: string | null;
  member: string | null;
  in_flight: number | null;
}

export interface GroupMember {
  id: string;
  instance: string | null;
  client_id: string;
  host: string;
  session_timeout_ms: number | null;
  epoch: number | null;
  assignment: { topic: string; partitions: number[] }[];
}

export interface GroupFull extends Group {
  epoch: number | null;
  assignor: string | null;
  member_list: GroupMember[];
  offsets: GroupOffset[];
}

export interface Queue {
  vhost: string;
  name: string;
  type: string;
  durable: boolean;
  auto_delete: boolean;
  exclusive: boolean;
  arguments: Record<string, unknown>;
  policy: string | null;
  messages: number;
  ready: number;
  unacknowledged: number;
  consumers: number;
  bytes: number;
  topic: string | null;
  rates: { in: number; out: number; acknowledged: number };
}

export interface Consumer {
  tag: string;
  connection: string;
  user: string | null;
  prefetch: number;
  ack_required: boolean;
  active: boolean;
  exclusive: boolean;
}

export interface Exchange {
  vhost: string;
  name: string;
  type: string;
  durable: boolean;
  auto_delete: boolean;
  internal: boolean;
  arguments: Record<string, unknown>;
  bindings: number;
}

export interface Binding {
  vhost: string;
  source: string;
  destination: string;
  destination_kind: 'queue' | 'exchange';
  routing_key: string;
  arguments: Record<string, unknown>;
}

export interface QueueFull extends Queue {
  consumers_list: Consumer[];
  bindings: Binding[];
}

export interface Connection {
  id: string;
  protocol: string;
  user: string | null;
  address: string;
  local: string;
  client_id: string | null;
  software: string | null;
  vhost: string | null;
  mechanism: string | null;
  tls?: boolean | null;
  connected_at: number;
  channels: number | null;
  received_bytes: number;
  sent_bytes: number;
  rates: { in_bytes: number; out_bytes: number };
  name: string;
}

export interface Permission {
  user: string;
  vhost: string;
  configure: string;
  write: string;
  read: string;
}

export interface User {
  name: string;
  tags: string[];
  has_password: boolean;
  hash: string | null;
  scram: { mechanism: string; iterations: number }[];
  limits: { max_connections: number | null; max_channels: number | null };
  connections: number;
}

export interface UserFull extends User {
  permissions: Permission[];
  topic_permissions: { vhost: string; exchange: string; write: string; read: string }[];
}

export interface Vhost {
  name: string;
  description: string;
}

export interface Acl {
  /** `User:NAME`; `User:*` is everybody. */
  principal: string;
  /** An address; `*` is any. */
  host: string;
  operation: string;
  permission: string;
  resource: string;
  pattern: string;
  name: string;
}

export interface AclState {
  enforced: boolean;
  count: number;
}

/** Quotas of users, client ids or an address; a name that is null is the default. */
export interface Quota {
  name: string;
  entity: Record<string, string | null>;
  values: Record<string, number>;
}

/** What is taken of a quota, of whomever's. */
export interface QuotaUse {
  name: string;
  entity: Record<string, string>;
  key: string;
  limit: number | null;
  /** Since the limit came into force. */
  taken: number;
  wait_ms: number;
  rules: string | null;
}
