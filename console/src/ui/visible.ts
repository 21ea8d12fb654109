// Letters that nobody would see, or that change how others are shown (controls, marks of direction, spaces without width), are shown by their
// number, wherever the text comes from: two names that differ are never shown alike, and none is shown backwards.

import { options } from 'preact';

/** Without those that emoji and words of some languages are made with (U+200C, U+200D, U+FE0F). */
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

const number = (letter: string): string => (letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');

export function visible(text: string): string {
  return text.replace(UNSEEN, (letter) => `⟨U+${number(letter)}⟩`);
}

/** What is said in attributes. What is in fields that somebody changes stays as it is. */
const ATTRIBUTES = ['title', 'aria-label', 'data-head'];

/** From now on, in all text that is rendered. */
export function showUnseen(): void {
  const before = options.vnode;
  options.vnode = (vnode) => {
    const props = vnode.props as Record<string, unknown>;
    const { children } = props;
    if (typeof children === 'string') props.children = visible(children);
    else if (Array.isArray(children)) props.children = children.map((child: unknown) => (typeof child === 'string' ? visible(child) : child));
    if (typeof vnode.type === 'string') for (const name of ATTRIBUTES) if (typeof props[name] === 'string') props[name] = visible(props[name]);
    before?.(vnode);
  };
}
