// Paths of names.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { path } from '../dist/test/api.js';

/** What a browser makes of it. */
const sent = (address) => new URL(address, 'http://localhost').pathname;

test('no name leads out of its place in a path', () => {
  for (const name of ['.', '..', '\\..', '...', '%2F', '%2e%2e', '/', 'a/../b', '#', '?x=1', 'ü', '<b>', '..\\', ' ', '\u202e']) {
    const parts = sent(path('users', name, 'permissions', name)).split('/');
    assert.equal(parts.length, 6, name);
    // As the server reads it.
    const read = decodeURIComponent(parts[5]).replace(/^\\(?=\\*\.\.?$)/, '');
    assert.equal(read, name);
  }
});
