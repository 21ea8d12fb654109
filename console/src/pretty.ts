// JSON as it is stored, with line breaks: only white space between its parts is another. (To parse and write it again would round large
// numbers, drop names that come twice, and spell out escapes.)

/** What is nested deeper is shown as it is: its indents would be longer than itself. */
const DEPTH_MAX = 100;

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** The place after the string that begins at one. */
function afterString(text: string, start: number): number {
  let at = start + 1;
  while (text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at + 1;
}

/** An object or a list with a line for each of its parts; any other text as it is. */
export function pretty(text: string): string {
  if (!/^\s*[[{]/.test(text) || !isJson(text)) return text;
  const out: string[] = [];
  let depth = 0;
  // An object or a list has just begun: what is empty stays on its line.
  let opened = false;
  const newLine = (): string => `\n${'  '.repeat(depth)}`;
  for (let at = 0; at < text.length; ) {
    const letter = text.charAt(at);
    const end = letter === '"' ? afterString(text, at) : at + 1;
    const part = text.slice(at, end);
    at = end;
    if (' \t\r\n'.includes(letter)) continue;
    if (letter === '}' || letter === ']') {
      depth -= 1;
      if (!opened) out.push(newLine());
    } else if (opened) out.push(newLine());
    opened = letter === '{' || letter === '[';
    if (opened) depth += 1;
    if (depth > DEPTH_MAX) return text;
    out.push(part);
    if (letter === ',') out.push(newLine());
    if (letter === ':') out.push(' ');
  }
  return out.join('');
}
