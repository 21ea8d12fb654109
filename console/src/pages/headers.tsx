// Headers of a record or a message that is put together: names with values.

import { Text } from '../ui/form.tsx';
import { Icon } from '../ui/icon.tsx';

export interface Header {
  name: string;
  value: string;
}

export const filled = (headers: Header[]): Header[] => headers.filter((header) => header.name !== '' || header.value !== '');

/** How what is typed is written. */
export const ENCODINGS = [
  { value: 'text', text: 'text' },
  { value: 'base64', text: 'base64, for bytes that are no text' },
];

export function Headers({ headers, onHeaders }: { headers: Header[]; onHeaders: (headers: Header[]) => void }) {
  const change = (place: number, changes: Partial<Header>): void => onHeaders(headers.map((header, number) => (number === place ? { ...header, ...changes } : header)));
  return (
    <fieldset class="wide">
      <legend>Headers</legend>
      {headers.map((header, number) => (
        <div class="pair" key={number}>
          <Text label="Name" name={`headers.${number}.name`} value={header.name} onValue={(name) => change(number, { name })} />
          <Text label="Value" name={`headers.${number}.value`} value={header.value} onValue={(value) => change(number, { value })} />
          <button type="button" class="quiet" aria-label={`Remove header ${number + 1}`} onClick={() => onHeaders(headers.filter((_, other) => other !== number))}>
            <Icon name="cross" />
          </button>
        </div>
      ))}
      <button type="button" class="small" onClick={() => onHeaders([...headers, { name: '', value: '' }])}>
        <Icon name="plus" /> Header
      </button>
    </fieldset>
  );
}
