// Colours of the charts, read from the custom properties of style/theme.css, so that page and charts are of one palette.

const dark = window.matchMedia('(prefers-color-scheme: dark)');
const palette = new Map<string, string>();

/** The value of a custom property in the colour scheme of now. */
export function colour(property: string): string {
  const known = palette.get(property);
  if (known !== undefined) return known;
  const value = getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  palette.set(property, value);
  return value;
}

/** Without quotes: ECharts writes it into an attribute. */
export const FONT = 'system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif';

/** Calls back when the reader's scheme changes; the palette is read anew. */
export function onThemeChange(callback: () => void): void {
  dark.addEventListener('change', () => {
    palette.clear();
    callback();
  });
}
