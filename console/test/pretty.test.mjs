// JSON with line breaks, and otherwise as it is stored.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pretty } from '../dist/test/pretty.js';

test('only white space between parts is another', () => {
  const stored = ' {"id":12345678901234567890, "n":1.0,"twice" :1,"twice":2,"e":1E400,"t":"a, {b}: \\"[\\u00e9","l":[ ],"o":{},"m":[1,[true,null]]}';
  const lines = [
    '{', '  "id": 12345678901234567890,', '  "n": 1.0,', '  "twice": 1,', '  "twice": 2,', '  "e": 1E400,', '  "t": "a, {b}: \\"[\\u00e9",', '  "l": [],',
    '  "o": {},', '  "m": [', '    1,', '    [', '      true,', '      null', '    ]', '  ]', '}',
  ];
  assert.equal(pretty(stored), lines.join('\n'));
  assert.equal(pretty('[]'), '[]');
  const plain = { a: [{ b: 'c' }, [], {}], d: null };
  assert.equal(pretty(JSON.stringify(plain)), JSON.stringify(plain, null, 2));
});

test('what is no object or list, or is nested very deeply, stays as it is', () => {
  const deep = '['.repeat(5000) + ']'.repeat(5000);
  for (const text of ['', '12345678901234567890', '"[1]"', '{"a":', '[1,]', '{a}', deep]) assert.equal(pretty(text), text);
});
