// Windows above the page: the browser's own dialog keeps the keyboard inside and gives it back.

import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { Form, Text, useWork } from './form.tsx';
import { Icon } from './icon.tsx';
import { visible } from './visible.ts';

interface Props {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}

export function Dialog({ title, onClose, children, wide }: Props) {
  const place = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    place.current?.showModal();
    // Not on the cross, which comes first: on the first field, or where there is none on what leads out of it.
    place.current?.querySelector<HTMLElement>('.inside :is(input, select, textarea, button.cancel):not([disabled])')?.focus();
    // However it ends: the keyboard is where it was, or, if that is gone, on the page.
    return () =>
      void setTimeout(() => {
        if (document.querySelector('dialog[open]') !== null) return;
        if (before instanceof HTMLElement && before.isConnected && before !== document.body) before.focus();
        else document.getElementById('main')?.focus();
      });
  }, []);
  // The way back leads out of it.
  useEffect(() => {
    window.addEventListener('popstate', onClose);
    return () => window.removeEventListener('popstate', onClose);
  });
  return (
    <dialog ref={place} class={wide ? 'wide' : ''} aria-labelledby={id} onClose={onClose}>
      <header>
        <h2 id={id}>{title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={() => place.current?.close()}>
          <Icon name="cross" />
        </button>
      </header>
      <div class="inside">{children}</div>
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  /** What happens. */
  children: ComponentChildren;
  /** The word on the button. */
  submit: string;
  /** Has to be typed, so that it is no slip. */
  typed?: string;
  act: () => Promise<unknown>;
  onClose: () => void;
  onDone: () => void;
}

/** Asks before something is gone. */
export function Confirm({ title, children, submit, typed, act, onClose, onDone }: ConfirmProps) {
  const work = useWork();
  const [text, setText] = useState('');
  const run = async (): Promise<void> => {
    if (await work.run(act)) {
      onClose();
      onDone();
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <Form
        work={work}
        submit={submit}
        danger
        disabled={typed !== undefined && text !== typed && text !== visible(typed)}
        onSubmit={() => void run()}
        more={
          <button type="button" class="cancel" onClick={onClose}>
            Cancel
          </button>
        }
      >
        <div class="said">{children}</div>
        {typed !== undefined && <Text label={`Type “${typed}” to confirm`} name="typed" value={text} onValue={setText} autofocus />}
      </Form>
    </Dialog>
  );
}
