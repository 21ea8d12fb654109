// One message by hand, to an exchange.

import { useState } from 'preact/hooks';
import { Refusal, ask, asRefusal, path } from '../api.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Check, Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Notice } from '../ui/parts.tsx';
import { ENCODINGS, Headers, filled, type Header } from './headers.tsx';

interface Props {
  vhost: string;
  /** Where to; empty: the default exchange. */
  exchange: string;
  /** Others that may be chosen in its place. */
  exchanges?: string[];
  routingKey?: string;
  onClose: () => void;
  onDone?: () => void;
}

/** How paths name the default exchange. */
const DEFAULT = 'amq.default';

/** Bytes of the name of a header. */
const NAME_MAX = 255;

/** The server knows headers by their names, the form by their places. */
function inPlace(refusal: Refusal, headers: Header[]): Refusal {
  const at = headers.findIndex((header) => refusal.field === `headers.${header.name}`);
  const part = new TextEncoder().encode(headers[at]?.name).length > NAME_MAX ? 'name' : 'value';
  return at < 0 ? refusal : new Refusal(refusal.status, refusal.code, refusal.message, `headers.${at}.${part}`);
}

/** A name that comes twice would be lost. */
function checkTwice(headers: Header[]): void {
  const at = headers.findIndex((header, number) => headers.findIndex((other) => other.name === header.name) < number);
  if (at >= 0) throw new Refusal(400, 'invalid', 'A message has a header of a name once.', `headers.${at}.name`);
}

export function PublishMessage({ vhost, exchange, exchanges = [], routingKey = '', onClose, onDone }: Props) {
  const [to, setTo] = useState(exchange);
  const [key, setKey] = useState(routingKey);
  const [body, setBody] = useState('');
  const [type, setType] = useState('');
  const [expiration, setExpiration] = useState('');
  const [encoding, setEncoding] = useState('text');
  const [persistent, setPersistent] = useState(true);
  const [headers, setHeaders] = useState<Header[]>([]);
  const [routed, setRouted] = useState<boolean | null>(null);
  const work = useWork();
  const send = async (): Promise<void> => {
    setRouted(null);
    // A refusal counts the headers that were sent.
    const sent = filled(headers);
    setHeaders(sent);
    const given = { content_type: type, expiration };
    const properties = { ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== '')), ...(persistent ? { delivery_mode: 2 } : {}) };
    await work.run(async () => {
      checkTwice(sent);
      const message = { routing_key: key, body, body_encoding: encoding, headers: Object.fromEntries(sent.map((header) => [header.name, header.value])), properties };
      try {
        setRouted((await ask<{ routed: boolean }>('POST', path('exchanges', vhost, to === '' ? DEFAULT : to, 'publish'), message)).routed);
      } catch (error) {
        throw inPlace(asRefusal(error), sent);
      }
      onDone?.();
    });
  };
  const named = (name: string): string => (name === '' ? 'the default exchange' : name);
  return (
    <Dialog title={`Publish to ${named(to)} in ${vhost}`} onClose={onClose} wide>
      <Form work={work} submit="Publish" onSubmit={() => void send()}>
        {exchanges.length > 0 && <Choice label="Exchange" name="exchange" value={to} onValue={setTo} choices={exchanges.map((name) => ({ value: name, text: named(name) }))} />}
        <Text label="Routing key" name="routing_key" value={key} onValue={setKey} mono autofocus help={to === '' ? 'The name of a queue.' : undefined} />
        <Text label="Body" name="body" value={body} onValue={setBody} rows={6} wide mono />
        <Text label="Content type" name="properties.content_type" value={type} onValue={setType} placeholder="application/json" />
        <Text label="Expires after, ms" name="properties.expiration" value={expiration} onValue={setExpiration} placeholder="never" />
        <Choice label="Body is" name="body_encoding" value={encoding} onValue={setEncoding} choices={ENCODINGS} />
        <Check label="Persistent" value={persistent} onValue={setPersistent} />
        <Headers headers={headers} onHeaders={setHeaders} />
        {routed === true && <Notice tone="good">Published: at least one queue has it.</Notice>}
        {routed === false && <Notice tone="warn">No queue is bound for this message: it went nowhere.</Notice>}
      </Form>
    </Dialog>
  );
}
