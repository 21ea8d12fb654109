// Settings of a topic, of a group or of the broker: what is in force, where it comes from, and a change that is checked first.

import { useRef, useState } from 'preact/hooks';
import { Refusal, ask, withQuery } from '../api.ts';
import { spelled } from '../format.ts';
import { useAsked, useTyped } from '../router.ts';
import type { Setting } from '../types.ts';
import { Dialog } from '../ui/dialog.tsx';
import { Check, Choice, Form, Text, useWork } from '../ui/form.tsx';
import { Badge, Empty } from '../ui/parts.tsx';
import { Search, Table, type Column } from '../ui/table.tsx';

interface Props {
  settings: Setting[];
  /** Where changes go. */
  address: string;
  onChanged: () => void;
  /** All of them as they are now. */
  look: () => Promise<Setting[]>;
  /** May who looks change them? */
  fixed?: boolean;
}

/** Set for just this thing, not the default of what is above it. */
const OWN = ['topic', 'group', 'dynamic', 'set'];

export function SettingsTable({ settings, address, onChanged, look, fixed }: Props) {
  const { value: search } = useTyped('search');
  const [asked, setAsked] = useAsked('changed', 'false');
  const changed = asked === 'true';
  const [edited, setEdited] = useState<Setting | null>(null);
  const shown = settings.filter((one) => (!changed || OWN.includes(one.source)) && `${one.name} ${one.doc}`.toLowerCase().includes(search.trim().toLowerCase()));
  const columns: Column<Setting>[] = [
    {
      head: 'Setting',
      main: true,
      cell: (one) => (
        <>
          <code>{one.name}</code>
          {one.class === 'inert' && <span class="tag">without effect here</span>}
          <p class="doc">{one.doc}</p>
        </>
      ),
    },
    { head: 'Value', cell: (one) => <Value name={one.name} value={one.value} /> },
    { head: 'From', cell: (one) => <From setting={one} /> },
    {
      head: '',
      cell: (one) =>
        fixed || one.class === 'default_only' ? null : (
          <button type="button" class="small" aria-label={`Change ${one.name}`} onClick={() => setEdited(one)}>
            Change
          </button>
        ),
    },
  ];
  return (
    <>
      <div class="tools">
        <Search label="settings" placeholder="Search by name or meaning" />
        <Check label="Only what was set" value={changed} onValue={(on) => setAsked(String(on))} />
        <span class="total">
          {shown.length} of {settings.length}
        </span>
      </div>
      {shown.length === 0 ? <Empty title={changed ? 'Nothing was set: everything is as by default.' : 'No setting is called so.'} /> : <Table label="Settings" columns={columns} rows={shown} id={(one) => one.name} />}
      {edited && <Edit setting={edited} address={address} look={look} onClose={() => setEdited(null)} onChanged={onChanged} />}
    </>
  );
}

function Value({ name, value }: { name: string; value: string | null }) {
  if (value === null || value === '') return <span class="faint">{value === null ? 'none' : 'empty'}</span>;
  const said = spelled(name, value);
  return (
    <>
      <code>{value}</code>
      {said && <span class="faint"> {said}</span>}
    </>
  );
}

function From({ setting }: { setting: Setting }) {
  const own = OWN.includes(setting.source);
  return (
    <>
      {own ? <Badge>{setting.source === 'dynamic' ? 'set while running' : `set${setting.source === 'set' ? '' : ` for the ${setting.source}`}`}</Badge> : <span class="faint">{setting.source}</span>}
      {setting.apply === 'restart' && <span class="faint"> with a restart</span>}
    </>
  );
}

interface EditProps {
  setting: Setting;
  address: string;
  look: () => Promise<Setting[]>;
  onClose: () => void;
  onChanged: () => void;
}

function Edit({ setting, address, look, onClose, onChanged }: EditProps) {
  const [value, setValue] = useState(setting.value ?? '');
  // What somebody else has set meanwhile is not overwritten before it was seen.
  const seen = useRef(setting.value);
  const work = useWork();
  const send = async (body: unknown): Promise<void> => {
    const done = await work.run(async () => {
      // Everything is checked before anything is done.
      await ask('PATCH', withQuery(address, { dry_run: true }), body);
      const now = (await look()).find((one) => one.name === setting.name)?.value ?? null;
      if (now !== seen.current) {
        seen.current = now;
        throw new Refusal(409, 'conflict', `Meanwhile it has been set to ${now === null || now === '' ? 'nothing' : now}. Save once more to replace that.`, `set.${setting.name}`);
      }
      await ask('PATCH', address, body);
    });
    if (done) {
      onClose();
      onChanged();
    }
  };
  const own = OWN.includes(setting.source);
  const words = setting.type === 'bool' ? ['true', 'false'] : setting.type === 'one_of' ? setting.words : null;
  const said = [
    setting.default !== null && setting.default !== '' ? `By default ${setting.default}${withUnit(setting)}.` : '',
    setting.range ? `From ${setting.range[0]} to ${setting.range[1]}.` : '',
    setting.type === 'list_of' && setting.words ? `Any of ${setting.words.join(', ')}, with commas.` : '',
    setting.apply === 'restart' ? 'Takes effect with the next start.' : '',
  ].filter((part) => part !== '');
  const field = { label: setting.name, name: `set.${setting.name}`, value, onValue: setValue, help: said.join(' ') };
  return (
    <Dialog title="Change a setting" onClose={onClose}>
      <p class="said">{setting.doc}</p>
      <Form
        work={work}
        submit="Save"
        onSubmit={() => void send({ set: { [setting.name]: value } })}
        more={
          own && (
            <button type="button" disabled={work.busy} onClick={() => void send({ unset: [setting.name] })}>
              Back to the default
            </button>
          )
        }
      >
        {words ? <Choice {...field} choices={words.map((word) => ({ value: word, text: word }))} /> : <Text {...field} autofocus wide mono />}
      </Form>
    </Dialog>
  );
}

function withUnit(setting: Setting): string {
  const said = spelled(setting.name, setting.default ?? '');
  return said ? ` (${said})` : '';
}
