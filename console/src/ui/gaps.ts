// Where nothing was told for a while, because the broker was away or nobody looked, a line has a gap and does not lead across.

/** Milliseconds between two values that belong together, at most. */
export const TOGETHER_MAX = 10_000;

interface Values<Line> {
  at: number[];
  lines: Line[];
}

/** The same with a moment without values in each gap. */
export function withGaps<Line extends { values: (number | null)[] }>({ at, lines }: Values<Line>): Values<Line> {
  const gaps = at.flatMap((moment, place) => (place > 0 && moment - (at[place - 1] ?? moment) > TOGETHER_MAX ? [place] : []));
  if (gaps.length === 0) return { at, lines };
  const filled = <Value>(values: Value[], of: (place: number) => Value): Value[] => values.flatMap((value, place) => (gaps.includes(place) ? [of(place), value] : [value]));
  return {
    at: filled(at, (place) => (at[place - 1] ?? 0) + 1),
    lines: lines.map((line) => ({ ...line, values: filled<number | null>(line.values, () => null) })),
  };
}
