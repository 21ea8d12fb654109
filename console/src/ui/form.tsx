// Forms: labelled fields, the server's reason beside the field that it is about, buttons that wait for the answer.

import { createContext, type ComponentChildren, type JSX } from 'preact';
import { useContext, useEffect, useId, useRef, useState } from 'preact/hooks';
import { asRefusal, type Refusal } from '../api.ts';
import { Icon } from './icon.tsx';
import { Notice } from './parts.tsx';

interface Told {
  refusal: Refusal | null;
  /** Fields that show a refusal themselves. */
  names: Set<string>;
}

const Context = createContext<Told>({ refusal: null, names: new Set() });

export interface Work {
  busy: boolean;
  refusal: Refusal | null;
  /** Does something, keeps what the server has against it. True: it is done. */
  run: (act: () => Promise<unknown>) => Promise<boolean>;
  clear: () => void;
}

export function useWork(): Work {
  const [busy, setBusy] = useState(false);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const run = async (act: () => Promise<unknown>): Promise<boolean> => {
    setBusy(true);
    setRefusal(null);
    try {
      await act();
      return true;
    } catch (error) {
      setRefusal(asRefusal(error));
      return false;
    } finally {
      setBusy(false);
    }
  };
  return { busy, refusal, run, clear: () => setRefusal(null) };
}

interface FormProps {
  work: Work;
  onSubmit: () => void;
  children: ComponentChildren;
  /** The word on the button. */
  submit: string;
  danger?: boolean;
  disabled?: boolean;
  /** Beside the button. */
  more?: ComponentChildren;
  class?: string;
}

export function Form({ work, onSubmit, children, submit, danger, disabled, more, class: name }: FormProps) {
  const names = useRef(new Set<string>());
  const place = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (work.refusal === null) return;
    const wrong = place.current?.querySelector<HTMLElement>('[aria-invalid=true]');
    wrong?.focus();
    const at = placeOf(work.refusal.message);
    if (at !== null && (wrong instanceof HTMLTextAreaElement || (wrong instanceof HTMLInputElement && wrong.type === 'text'))) {
      // The server counts letters, fields count their halves.
      const start = [...wrong.value].slice(0, at).join('').length;
      wrong.setSelectionRange(start, start + ([...wrong.value][at]?.length ?? 0));
    }
  }, [work.refusal]);
  const field = work.refusal?.field ?? null;
  const beside = field !== null && claimed(field, names.current) !== null;
  return (
    <Context.Provider value={{ refusal: work.refusal, names: names.current }}>
      <form
        ref={place}
        class={`form ${name ?? ''}`}
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          if (!work.busy && !disabled) onSubmit();
        }}
      >
        {children}
        {work.refusal !== null && !beside && (
          <Notice tone="bad">
            {field !== null && <code>{field}: </code>}
            {work.refusal.message}
          </Notice>
        )}
        <div class="buttons">
          <button type="submit" class={danger ? 'danger' : 'primary'} disabled={work.busy || disabled} aria-busy={work.busy}>
            {submit}
          </button>
          {more}
        </div>
      </form>
    </Context.Provider>
  );
}

/** Where a text stops to make sense, if a refusal says so: letters before it. */
function placeOf(message: string): number | null {
  const found = /\bat character (\d+)/.exec(message);
  return found ? Number(found[1]) - 1 : null;
}

/** The field that shows a refusal: the one with its name, or the one that it is a part of. */
function claimed(field: string, names: Set<string>): string | null {
  let name = field;
  for (;;) {
    if (names.has(name)) return name;
    const at = name.lastIndexOf('.');
    if (at < 0) return null;
    name = name.slice(0, at);
  }
}

interface FieldProps {
  label: string;
  /** The server's name of it. */
  name: string;
  help?: ComponentChildren;
  wide?: boolean;
  children: (given: { id: string; name: string; 'aria-invalid': boolean; 'aria-describedby': string | undefined }) => JSX.Element;
}

export function Field({ label, name, help, wide, children }: FieldProps) {
  const id = useId();
  const { refusal, names } = useContext(Context);
  names.add(name);
  const wrong = refusal?.field !== null && refusal?.field !== undefined && claimed(refusal.field, names) === name ? refusal.message : null;
  const described = [wrong !== null ? `${id}-wrong` : '', help ? `${id}-help` : ''].filter((part) => part !== '').join(' ');
  return (
    <div class={`field ${wide ? 'wide' : ''}`}>
      <label for={id}>{label}</label>
      {children({ id, name, 'aria-invalid': wrong !== null, 'aria-describedby': described === '' ? undefined : described })}
      {wrong !== null && (
        <p class="wrong" id={`${id}-wrong`}>
          <Icon name="cross" /> {wrong}
        </p>
      )}
      {help && (
        <p class="help" id={`${id}-help`}>
          {help}
        </p>
      )}
    </div>
  );
}

interface TextProps {
  label: string;
  name: string;
  value: string;
  onValue: (value: string) => void;
  help?: ComponentChildren;
  type?: 'text' | 'password' | 'number' | 'datetime-local';
  placeholder?: string;
  autocomplete?: string;
  wide?: boolean;
  rows?: number;
  mono?: boolean;
  autofocus?: boolean;
  step?: string;
}

export function Text({ label, name, value, onValue, help, type = 'text', placeholder, autocomplete = 'off', wide, rows, mono, autofocus, step }: TextProps) {
  const place = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (autofocus) place.current?.focus();
  }, []);
  return (
    <Field label={label} name={name} help={help} wide={wide ?? false}>
      {(given) =>
        rows ? (
          <textarea {...given} class={mono ? 'mono' : ''} rows={rows} value={value} placeholder={placeholder} spellcheck={false} onInput={(event) => onValue(event.currentTarget.value)} />
        ) : (
          <input
            {...given}
            ref={place}
            class={mono ? 'mono' : ''}
            type={type as 'text'}
            step={step}
            value={value}
            placeholder={placeholder}
            autocomplete={autocomplete}
            spellcheck={false}
            onInput={(event) => onValue(event.currentTarget.value)}
          />
        )
      }
    </Field>
  );
}

interface ChoiceProps {
  label: string;
  name: string;
  value: string;
  onValue: (value: string) => void;
  choices: { value: string; text: string }[];
  help?: ComponentChildren;
}

export function Choice({ label, name, value, onValue, choices, help }: ChoiceProps) {
  return (
    <Field label={label} name={name} help={help}>
      {(given) => (
        <select {...given} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
          {choices.map((choice) => (
            <option key={choice.value} value={choice.value}>
              {choice.text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function Check({ label, value, onValue }: { label: string; value: boolean; onValue: (value: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(event) => onValue(event.currentTarget.checked)} /> {label}
    </label>
  );
}
