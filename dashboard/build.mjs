// Bundles the page: dist/ holds what agentd embeds, and is committed, so that a build of Macrame needs no
// node. With --tests it bundles the unit tests into out/ instead; with --to FOLDER the page goes there.
import {build} from 'esbuild';
import {copyFileSync, mkdirSync, readdirSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
process.chdir(here);

if (process.argv.includes('--tests')) {
  const tests = readdirSync('test').filter((name) => name.endsWith('.test.ts'));
  await build({
    entryPoints: tests.map((name) => join('test', name)),
    outdir: 'out', outExtension: {'.js': '.mjs'},
    bundle: true, format: 'esm', platform: 'node', target: 'node20', logLevel: 'warning',
  });
} else {
  const to = process.argv.indexOf('--to');
  const folder = to > 0 ? process.argv[to + 1] : 'dist';
  mkdirSync(folder, {recursive: true});
  await build({
    entryPoints: {app: 'src/main.tsx'},
    outdir: folder,
    bundle: true, minify: true, format: 'esm', target: ['es2022', 'safari16'],
    jsx: 'automatic', jsxImportSource: 'preact',
    legalComments: 'none', charset: 'utf8', logLevel: 'warning',
  });
  for (const name of ['index.html', 'favicon.svg']) copyFileSync(join('src', name), join(folder, name));
}
