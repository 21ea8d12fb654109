// Builds the console into three files with fixed names, which the broker carries (crates/admin/console) and serves by ETag.

import { readFileSync } from 'node:fs';
import { defineConfig } from 'vite';

const OUT = process.env.CONSOLE_OUT ?? '../crates/admin/console';
const CARRIED = ['preact', 'uplot'];

/** The licences of the libraries whose code is in the script ask to go with it. */
function licences() {
  return {
    name: 'licences',
    generateBundle() {
      const texts = CARRIED.map((name) => {
        const { version } = JSON.parse(readFileSync(`node_modules/${name}/package.json`, 'utf8'));
        return `${name} ${version}\n\n${readFileSync(`node_modules/${name}/LICENSE`, 'utf8').trim()}\n`;
      });
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source: texts.join('\n----\n\n') });
    },
  };
}

export default defineConfig({
  base: '/',
  plugins: [licences()],
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  server: { proxy: { '/v1': 'http://127.0.0.1:8160' } },
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: {
        entryFileNames: 'console.js',
        assetFileNames: (asset) => (asset.names?.[0]?.endsWith('.css') ? 'console.css' : '[name][extname]'),
      },
    },
  },
});
