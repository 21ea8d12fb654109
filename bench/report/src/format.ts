// Numbers and times as text. Every function takes a missing number and writes a dash.

import type { Maybe } from './statistics.ts';

export const NONE = '–';
/** Of a broker whose processes are not to be seen; never a zero. */
export const NOT_MEASURED = 'not measured';

/** A figure of a broker, written, or that it was not measured. */
export function measuredOr(value: Maybe, write: (value: Maybe) => string): string {
  return missing(value) ? NOT_MEASURED : write(value);
}

function missing(value: Maybe): value is null | undefined {
  return typeof value !== 'number' || !Number.isFinite(value);
}

/** Three digits that count; below 1 two, so that noise does not look like precision. */
export function digits(value: Maybe): string {
  if (missing(value)) return NONE;
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 9999.5) return grouped(value);
  if (size >= 99.95) return grouped(Math.round(value));
  if (size >= 9.995) return value.toFixed(1);
  if (size >= 0.0995) return value.toFixed(2);
  if (size >= 0.00995) return value.toFixed(3);
  return value.toPrecision(1);
}

/** For an axis: 0.5, 1, 20, not 0.50, 1.00, 20.0. */
export function trimmed(value: number): string {
  const written = digits(value);
  return written.includes('.') ? written.replace(/\.?0+$/, '') : written;
}

/** A whole number with a thin space between thousands, so that no reader takes it for a decimal point. */
export function grouped(value: Maybe): string {
  if (missing(value)) return NONE;
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f');
}

/** 512k, 1.25M: three digits that count. */
export function short(value: Maybe): string {
  if (missing(value)) return NONE;
  const size = Math.abs(value);
  for (const [unit, suffix] of [
    [1e9, 'G'],
    [1e6, 'M'],
    [1e3, 'k'],
  ] as const) {
    if (size >= unit * 0.9995) {
      const scaled = value / unit;
      const places = Math.abs(scaled) >= 99.95 ? 0 : Math.abs(scaled) >= 9.995 ? 1 : 2;
      return scaled.toFixed(places).replace(/\.0+$|(\.\d*[1-9])0+$/, '$1') + suffix;
    }
  }
  return Number.isInteger(value) || size >= 100 ? String(Math.round(value)) : digits(value);
}

export function messageRate(value: Maybe): string {
  return missing(value) ? NONE : `${short(value)} msg/s`;
}

export function milliseconds(value: Maybe): string {
  if (missing(value)) return NONE;
  return value >= 9999.5 ? `${digits(value / 1000)} s` : `${digits(value)} ms`;
}

export function microseconds(value: Maybe): string {
  if (missing(value)) return NONE;
  return value >= 999.5 ? milliseconds(value / 1000) : `${digits(value)} µs`;
}

export function megabytesPerSecond(value: Maybe): string {
  if (missing(value)) return NONE;
  return value >= 9999.5 ? `${digits(value / 1000)} GB/s` : `${digits(value)} MB/s`;
}

export function megabytes(value: Maybe): string {
  if (missing(value)) return NONE;
  return value >= 999.5 ? `${digits(value / 1000)} GB` : `${digits(value)} MB`;
}

export function seconds(value: Maybe): string {
  return missing(value) ? NONE : `${digits(value)} s`;
}

export function cpuSecondsPerGigabyte(value: Maybe): string {
  return missing(value) ? NONE : `${digits(value)} CPU-s/GB`;
}

/** 4.16–5.00 ms: the unit once when both ends have the same. */
export function rangeText(write: (value: Maybe) => string, least: Maybe, greatest: Maybe): string {
  const [from, to] = [write(least), write(greatest)];
  const unit = /[^\d.]*$/.exec(to)?.[0] ?? '';
  return unit !== '' && from.endsWith(unit) && /[\d.]$/.test(from.slice(0, -unit.length))
    ? `${from.slice(0, -unit.length)}–${to}`
    : `${from}–${to}`;
}

/** 1.84×. */
export function times(value: Maybe): string {
  return missing(value) ? NONE : `${digits(value)}×`;
}

export function percent(value: Maybe): string {
  return missing(value) ? NONE : `${digits(value)} %`;
}

/** Minutes are enough; UTC, so that two readers read the same. */
export function moment(unixSeconds: Maybe): string {
  if (missing(unixSeconds)) return NONE;
  return `${new Date(unixSeconds * 1000).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
}

export function count(number: number, one: string, many = `${one}s`): string {
  return `${grouped(number)} ${number === 1 ? one : many}`;
}

/** a, b and c. */
export function list(words: readonly string[]): string {
  if (words.length < 2) return words[0] ?? '';
  return `${words.slice(0, -1).join(', ')} and ${words[words.length - 1]}`;
}
