// The icons: strokes in a square of 16.

const PATHS = {
  overview: 'M2 13V9m4 4V3m4 10V6m4 7v-3',
  topics: 'M2 4h12M2 8h12M2 12h8',
  groups: 'M5.5 7a2 2 0 1 0 0-4 2 2 0 0 0 0 4Zm5 1a1.7 1.7 0 1 0 0-3.4M2 13c0-2.2 1.6-3.5 3.5-3.5S9 10.800 9 13m2-3.300c1.800.2 3 1.400 3 3.300',
  queues: 'M3 3h10v3H3zM3 8h10M3 10.500h10M3 13h10',
  exchanges: 'M2 8h4m0 0 6-4.500M6 8l6 4.500M12 3.500h2M12 12.500h2M6 8h8',
  connections: 'M6 10 4.500 11.500a2.100 2.100 0 0 1-3-3L4 6m6 0 1.500-1.500a2.100 2.100 0 0 1 3 3L12 10M6 9.500 10 6.500',
  users: 'M8 8a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5Zm-5 6c0-2.800 2.200-4.500 5-4.500s5 1.700 5 4.500',
  access: 'M8 2 3 4v4c0 3 2 5 5 6 3-1 5-3 5-6V4zm-2 6 1.500 1.500L10.500 6.500',
  quotas: 'M2.500 12.500a6 6 0 1 1 11 0M8 10l3-3.500',
  journal: 'M3 2.500h8.500A1.500 1.500 0 0 1 13 4v9.500H4.500A1.500 1.500 0 0 1 3 12zm0 9A1.500 1.500 0 0 1 4.500 10H13M6 5.500h4',
  config: 'M2 5h6m4 0h2M2 11h2m4 0h6M10 3.200v3.600M6 9.200v3.600',
  back: 'M10 3 5 8l5 5',
  check: 'm3 8.500 3.200 3.200L13 4.800',
  cross: 'm4 4 8 8m0-8-8 8',
  warn: 'M8 2.500 14.500 13.500h-13zM8 6.500v3.200m0 2v.1',
  info: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Zm0-6.500V11m0-6v.1',
  plus: 'M8 3v10M3 8h10',
  menu: 'M2 4h12M2 8h12M2 12h12',
  theme: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Zm0 0V2',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10Zm3.700-1.300L14 14',
  down: 'm4 6 4 4 4-4',
  out: 'M6 3H3v10h3m4-2 3-3-3-3m3 3H6.500',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.600" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}
