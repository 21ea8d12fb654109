// Letters that nobody would see.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { visible } from '../dist/test/ui/visible.js';

test('what would not be seen, or would turn others around, is shown by its number', () => {
  assert.equal(visible('user\u202egpj.exe'), 'user⟨U+202E⟩gpj.exe');
  assert.equal(visible('a\u0000b\u200bc\ufeff\u{e0041}'), 'a⟨U+0000⟩b⟨U+200B⟩c⟨U+FEFF⟩⟨U+E0041⟩');
});

test('what people write stays as it is', () => {
  for (const text of ['orders', 'línea 1\n\tline 2\r\n', '<b>"&\'', 'שלום', 'می‌خواهم', '👩‍👩‍👧🏽❤️', '漢字']) assert.equal(visible(text), text);
});
