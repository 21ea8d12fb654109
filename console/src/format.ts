// Numbers, sizes and times for people. Sizes are powers of 1024; times are those of the browser's time zone.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  let unit = 0;
  let scaled = value;
  while (Math.abs(scaled) >= 1024 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${digits(scaled, unit === 0 ? 0 : undefined)} ${UNITS[unit]}`;
}

export function byteRate(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : `${bytes(value)}/s`;
}

/** Three digits that count. */
function digits(value: number, places?: number): string {
  const size = Math.abs(value);
  const most = places ?? (size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2);
  return value.toLocaleString('en', { maximumFractionDigits: most });
}

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : value.toLocaleString('en', { maximumFractionDigits: 0 });
}

/** Large counts short: 1.2 M. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  const size = Math.abs(value);
  if (size >= 1e9) return `${digits(value / 1e9)} G`;
  if (size >= 1e6) return `${digits(value / 1e6)} M`;
  if (size >= 1e4) return `${digits(value / 1e3)} k`;
  return digits(value);
}

export function rate(value: number | null | undefined): string {
  return value === null || value === undefined ? '–' : `${short(value)}/s`;
}

export function millis(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  if (value >= 1000) return `${digits(value / 1000)} s`;
  if (value < 1) return `${digits(value, 2)} ms`;
  return `${digits(value)} ms`;
}

export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return '–';
  const seconds = Math.floor(ms / 1000);
  if (ms < 1000) return `${ms} ms`;
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return both(minutes, 'min', seconds % 60, 's');
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return both(hours, 'h', minutes % 60, 'min');
  return both(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

function both(large: number, unit: string, small: number, other: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${other}`;
}

const two = (value: number): string => String(value).padStart(2, '0');

/** 2026-03-01 14:05:09, local. */
export function time(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || ms < 0) return '–';
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function timeMillis(ms: number): string {
  return ms < 0 ? '–' : `${time(ms)}.${String(new Date(ms).getMilliseconds()).padStart(3, '0')}`;
}

/** A moment as a field for local times has it; none: empty. */
export function localInput(at: number): string {
  return Number.isFinite(at) && at > 0 ? time(at).replace(' ', 'T') : '';
}

/** The name of the time zone, and how far it is from UTC now. */
export function zone(): string {
  const offset = -new Date().getTimezoneOffset();
  const sign = offset < 0 ? '−' : '+';
  const far = Math.abs(offset);
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone ?? 'local';
  const utc = far === 0 ? 'UTC' : `UTC${sign}${Math.floor(far / 60)}${far % 60 ? `:${two(far % 60)}` : ''}`;
  return name === 'UTC' ? 'UTC' : `${name}, ${utc}`;
}

/** `retention.ms` and its like in words beside the number. */
export function spelled(name: string, value: string): string | null {
  if (!/^-?\d+$/.test(value)) return null;
  const number = Number(value);
  // As in Kafka: what is kept here without remote storage is what is kept at all.
  if (number === -2 && name.startsWith('local.')) return `as ${name.slice('local.'.length)}`;
  if (number === -1) return /(ms|bytes|minutes|byte\.rate)$/.test(name) ? 'no limit' : null;
  if (number < 0) return null;
  if (/(^|\.)ms$/.test(name) && number >= 1000) return number > 3.2e14 ? 'no limit' : duration(number);
  if (/bytes$/.test(name) && number >= 1024) return number > 2 ** 60 ? 'no limit' : bytes(number);
  if (/byte\.rate$/.test(name) && number >= 1024) return byteRate(number);
  return null;
}

/** A number of bytes as people write it (`10485760`, `10 MiB`, `1.5 MB`); what is none is left as it is, for the server to say so. */
export function sizeOf(text: string): number | string {
  const found = /^(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?$/i.exec(text.trim());
  if (found === null) return text.trim();
  const power = found[2] === undefined ? 0 : 'kmgt'.indexOf(found[2].toLowerCase()) + 1;
  return Math.round(Number(found[1]) * (found[3] ? 1024 : 1000) ** power);
}

/** What `sizeOf` reads as this number, as short as it can be. */
export function sizeText(value: number): string {
  let [scaled, unit] = [value, 0];
  while (scaled >= 1024 && scaled % 1024 === 0 && unit < 4) [scaled, unit] = [scaled / 1024, unit + 1];
  return unit === 0 ? String(value) : `${scaled} ${UNITS[unit]}`;
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}
