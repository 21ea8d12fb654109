// One record by hand.

import { useState } from 'preact/hooks';
import { ask, path } from '../api.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Check, Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Icon } from '../ui/icon.tsx';
import { Notice } from '../ui/parts.tsx';

interface Props {
  topic: string;
  partitions: number;
  onClose: () => void;
  onDone: () => void;
}

interface Header {
  name: string;
  value: string;
}

export function Publish({ topic, partitions, onClose, onDone }: Props) {
  const [key, setKey] = useState('');
  const [value, setValue] = useState('');
  const [tombstone, setTombstone] = useState(false);
  const [partition, setPartition] = useState('');
  const [headers, setHeaders] = useState<Header[]>([]);
  const [told, setTold] = useState('');
  const work = useWork();
  const send = async (): Promise<void> => {
    const body = {
      partition: partition === '' ? null : Number(partition),
      key: key === '' ? null : key,
      value: tombstone ? null : value,
      headers: headers.filter((header) => header.name !== '' || header.value !== ''),
    };
    setTold('');
    await work.run(async () => {
      const at = await ask<{ partition: number; offset: number }>('POST', path('topics', topic, 'records'), body);
      setTold(`Published to partition ${at.partition} at offset ${at.offset}.`);
      onDone();
    });
  };
  const change = (place: number, changes: Partial<Header>): void => setHeaders(headers.map((header, number) => (number === place ? { ...header, ...changes } : header)));
  const all = Array.from({ length: Math.min(partitions, 1000) }, (_, number) => ({ value: String(number), text: String(number) }));
  return (
    <Dialog title={`Publish to ${topic}`} onClose={onClose} wide>
      <Form work={work} submit="Publish" onSubmit={() => void send()}>
        <Text label="Key" name="key" value={key} onValue={setKey} help="Empty: no key." autofocus mono />
        <Choice label="Partition" name="partition" value={partition} onValue={setPartition} choices={[{ value: '', text: 'by the key' }, ...all]} />
        {!tombstone && <Text label="Value" name="value" value={value} onValue={setValue} rows={8} wide mono />}
        <Check label="No value (a tombstone)" value={tombstone} onValue={setTombstone} />
        <fieldset class="wide">
          <legend>Headers</legend>
          {headers.map((header, number) => (
            <div class="pair" key={number}>
              <Text label="Name" name={`headers.${number}.name`} value={header.name} onValue={(name) => change(number, { name })} />
              <Text label="Value" name={`headers.${number}.value`} value={header.value} onValue={(text) => change(number, { value: text })} />
              <button type="button" class="quiet" aria-label={`Remove header ${number + 1}`} onClick={() => setHeaders(headers.filter((_, other) => other !== number))}>
                <Icon name="cross" />
              </button>
            </div>
          ))}
          <button type="button" class="small" onClick={() => setHeaders([...headers, { name: '', value: '' }])}>
            <Icon name="plus" /> Header
          </button>
        </fieldset>
        {told !== '' && <Notice tone="good">{told}</Notice>}
      </Form>
    </Dialog>
  );
}
