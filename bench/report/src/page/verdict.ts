// What may be said with a run, as chips with a sentence each.

import { h } from '../element.ts';
import type { Run } from '../types.ts';

export interface Chip {
  text: string;
  kind: 'good' | 'bad' | 'care';
  meaning: string;
}

export function chips(run: Run): Chip[] {
  const { verdict } = run;
  const found: Chip[] = [];
  if (run.stopped !== null)
    found.push({ text: 'stopped', kind: 'bad', meaning: 'The run broke off; what was measured until then is kept.' });
  if (!verdict.valid)
    found.push({
      text: 'invalid',
      kind: 'bad',
      meaning: 'The generator did not keep up: the run says nothing about the target.',
    });
  if (verdict.complete === false)
    found.push({ text: 'incomplete', kind: 'bad', meaning: 'Not every acknowledged message arrived exactly once.' });
  if (verdict.ordered === false)
    found.push({ text: 'out of order', kind: 'bad', meaning: 'A message came after a later one of its producer: the run is not ranked.' });
  if (verdict.intact === false)
    found.push({ text: 'content changed', kind: 'bad', meaning: 'A message had another content than was sent: the run is not ranked.' });
  if (!verdict.stable)
    found.push({ text: 'unstable', kind: 'care', meaning: 'What was due was not acknowledged or received at this rate, or too late: the run is not ranked.' });
  if (run.priming === null)
    found.push({ text: 'not primed', kind: 'care', meaning: 'This was the first load of the target: the run is not ranked.' });
  if (run.measured.failed > 0)
    found.push({ text: 'failed messages', kind: 'bad', meaning: 'Messages were refused or given up: the run is not ranked.' });
  if (verdict.client_limited) {
    found.push({
      text: 'client-limited',
      kind: 'care',
      meaning: 'Above 80 % of what the generator can do: compare CPU per GB, not throughput.',
    });
  }
  if (run.measured.drain?.finished === false) {
    found.push({ text: 'time ran out', kind: 'care', meaning: 'The backlog was not read to its end.' });
  }
  if (verdict.valid && found.length === 0)
    found.push({ text: 'valid', kind: 'good', meaning: 'The generator kept up and the run came to its end.' });
  return found;
}

/** Meaning and remarks on hover and focus; the details of the run have the same as text. */
export function chipElement(chip: Chip, remarks: readonly string[] = []): HTMLElement {
  const text = [chip.meaning, ...remarks].join(' ');
  return h(`span.chip`, { 'data-kind': chip.kind, title: text, tabindex: remarks.length > 0 ? 0 : null }, chip.text);
}
