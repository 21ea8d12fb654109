// Builds the page into one file: script and style go into the HTML, and a policy forbids everything that is not in it.

import { createHash } from 'node:crypto';
import { defineConfig } from 'vite';

/** What the benchmark replaces by the data; it looks for exactly this, once. */
const PLACE = '<script type="application/json" id="data">/*DATA*/</script>';

function oneFile() {
  return {
    name: 'one-file',
    enforce: 'post',
    generateBundle(_options, bundle) {
      const parts = Object.values(bundle);
      const page = parts.find((part) => part.fileName === 'index.html');
      const script = parts
        .filter((part) => part.type === 'chunk')
        .map((part) => part.code)
        .join('\n')
        .replaceAll('</script', '<\\/script')
        .replaceAll('<!--', '<\\!--');
      const style = parts
        .filter((part) => part.fileName.endsWith('.css'))
        .map((part) => part.source)
        .join('\n');
      const hash = createHash('sha256').update(script).digest('base64');
      // Charts set styles on elements; scripts are this one only, and nothing is fetched from anywhere.
      const policy = `default-src 'none'; script-src 'sha256-${hash}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'`;
      page.source = page.source
        .replace(/\s*<script type="module"[^>]*><\/script>/, '')
        .replace(/\s*<link rel="stylesheet"[^>]*>/, '')
        .replace('<title>', () => `<meta http-equiv="Content-Security-Policy" content="${policy}" />\n    <title>`)
        .replace('</head>', () => `  <style>${style}</style>\n  </head>`)
        .replace('</body>', () => `  <script type="module">${script}</script>\n  </body>`);
      if (page.source.split('/*DATA*/').length !== 2 || !page.source.includes(PLACE)) {
        throw new Error(`index.html must have exactly one ${PLACE}`);
      }
      for (const part of parts) if (part !== page) delete bundle[part.fileName];
    },
  };
}

export default defineConfig({
  base: './',
  plugins: [oneFile()],
  build: {
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: Number.MAX_SAFE_INTEGER,
    chunkSizeWarningLimit: 900,
    reportCompressedSize: false,
  },
});
