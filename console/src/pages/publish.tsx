// One record by hand.

import { useState } from 'preact/hooks';
import { ask, path } from '../api.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Check, Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Notice } from '../ui/parts.tsx';
import { ENCODINGS, Headers, filled, type Header } from './headers.tsx';

interface Props {
  topic: string;
  partitions: number;
  onClose: () => void;
  onDone: () => void;
}

export function Publish({ topic, partitions, onClose, onDone }: Props) {
  const [key, setKey] = useState('');
  const [value, setValue] = useState('');
  const [tombstone, setTombstone] = useState(false);
  const [partition, setPartition] = useState('');
  const [headers, setHeaders] = useState<Header[]>([]);
  const [encoding, setEncoding] = useState('text');
  const [told, setTold] = useState('');
  const work = useWork();
  const send = async (): Promise<void> => {
    const body = {
      partition: partition === '' ? null : Number(partition),
      key: key === '' ? null : key,
      key_encoding: encoding,
      value: tombstone ? null : value,
      value_encoding: encoding,
      headers: filled(headers),
    };
    // A refusal counts the headers that were sent.
    setHeaders(filled(headers));
    setTold('');
    await work.run(async () => {
      const at = await ask<{ partition: number; offset: number }>('POST', path('topics', topic, 'records'), body);
      setTold(`Published to partition ${at.partition} at offset ${at.offset}.`);
      onDone();
    });
  };
  const all = Array.from({ length: Math.min(partitions, 1000) }, (_, number) => ({ value: String(number), text: String(number) }));
  return (
    <Dialog title={`Publish to ${topic}`} onClose={onClose} wide>
      <Form work={work} submit="Publish" onSubmit={() => void send()}>
        <Text label="Key" name="key" value={key} onValue={setKey} help="Empty: no key." autofocus mono />
        <Choice label="Partition" name="partition" value={partition} onValue={setPartition} choices={[{ value: '', text: 'by the key' }, ...all]} />
        <Choice label="Key and value are" name="value_encoding" value={encoding} onValue={setEncoding} choices={ENCODINGS} />
        {!tombstone && <Text label="Value" name="value" value={value} onValue={setValue} rows={8} wide mono />}
        <Check label="No value (a tombstone)" value={tombstone} onValue={setTombstone} />
        <Headers headers={headers} onHeaders={setHeaders} />
        {told !== '' && <Notice tone="good">{told}</Notice>}
      </Form>
    </Dialog>
  );
}
