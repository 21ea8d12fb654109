// Median and range, over numbers that may be missing.

/** A number, or what stands for none. */
export type Maybe = number | null | undefined;

export interface Spread {
  median: number;
  least: number;
  greatest: number;
  count: number;
}

/** Those that are numbers. */
export function present(values: readonly Maybe[]): number[] {
  return values.filter((value): value is number => typeof value === 'number' && Number.isFinite(value));
}

/** The middle one; of an even count the mean of the two in the middle. */
export function median(values: readonly Maybe[]): number | null {
  const sorted = present(values).sort((a, b) => a - b);
  if (sorted.length === 0) return null;
  const half = Math.floor(sorted.length / 2);
  const upper = sorted[half]!;
  return sorted.length % 2 === 1 ? upper : (sorted[half - 1]! + upper) / 2;
}

/** Least and greatest. */
export function range(values: readonly Maybe[]): [number, number] | null {
  const numbers = present(values);
  if (numbers.length === 0) return null;
  return numbers.reduce<[number, number]>(
    ([least, greatest], value) => [Math.min(least, value), Math.max(greatest, value)],
    [Infinity, -Infinity],
  );
}

export function spread(values: readonly Maybe[]): Spread | null {
  const middle = median(values);
  const ends = range(values);
  if (middle === null || ends === null) return null;
  return { median: middle, least: ends[0], greatest: ends[1], count: present(values).length };
}

/** Index of the value next to the median; the lower of two. */
export function medianIndex(values: readonly Maybe[]): number {
  const order = values
    .map((value, index) => ({ value, index }))
    .filter((entry) => typeof entry.value === 'number' && Number.isFinite(entry.value))
    .sort((a, b) => a.value! - b.value!);
  return order[Math.floor((order.length - 1) / 2)]?.index ?? -1;
}

/** Where a percentile stands on an axis of 1/(1-p): 90 is 1, 99 is 2, 99.9 is 3. Infinite at 100. */
export function nines(percentile: number): number {
  return percentile >= 100 ? Infinity : Math.max(0, -Math.log10(1 - percentile / 100));
}
