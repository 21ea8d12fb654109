// Who are you? Nothing else is shown before that is known.

import { useEffect, useState } from 'preact/hooks';
import { ask, type Session } from '../api.ts';
import { Form, Text, useWork } from '../ui/form.tsx';
import { Notice } from '../ui/parts.tsx';

export function Login({ ended, onSession }: { ended: string; onSession: (session: Session) => void }) {
  const [user, setUser] = useState('');
  const [password, setPassword] = useState('');
  const work = useWork();
  useEffect(() => {
    document.title = 'Log in · Mainstem';
  }, []);
  const enter = (): Promise<boolean> => work.run(async () => onSession(await ask<Session>('POST', '/v1/session', { user, password })));
  return (
    <main class="start">
      <div class="login">
        <img src="/icon.svg" alt="" width="40" height="40" />
        <h1>Mainstem</h1>
        <p class="about">{location.host}</p>
        {ended !== '' && <Notice tone="warn">{ended}</Notice>}
        <Form work={work} submit={work.busy ? 'Logging in…' : 'Log in'} onSubmit={() => void enter()}>
          <Text label="User" name="user" value={user} onValue={setUser} autocomplete="username" autofocus wide />
          <Text label="Password" name="password" type="password" value={password} onValue={setPassword} autocomplete="current-password" wide />
        </Form>
      </div>
    </main>
  );
}
