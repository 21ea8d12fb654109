// Puts the page together from the data within it.

import './style/theme.css';
import './style/page.css';
import './style/header.css';
import './style/navigation.css';
import './style/experiment.css';
import './style/findings.css';
import './style/charts.css';
import './style/tables.css';
import './style/settings.css';
import './style/print.css';

import { drawAllCharts } from './chart.ts';
import { readReport } from './data.ts';
import { h } from './element.ts';
import { claims } from './page/claims.ts';
import { experimentSection } from './page/experiment.ts';
import { findings } from './page/findings.ts';
import { header } from './page/header.ts';
import { matrix } from './page/matrix.ts';
import { cuts, missing } from './page/missing.ts';
import { followReader, navigation } from './page/navigation.ts';
import { settings } from './page/settings.ts';
import type { Report } from './types.ts';

const report = readReport(document.getElementById('data')?.textContent ?? '');
if (typeof report === 'string') document.body.append(h('main.page', {}, h('p.notice', {}, report)));
else show(report);

function show(data: Report): void {
  document.title = data.title;
  const links = navigation(data);
  const lists = [missing(data.missing), cuts(data.cuts ?? [])].filter((list) => list !== null);
  document.body.append(
    h('a.skip', { href: '#experiments' }, 'To the experiments'),
    h(
      'main.page',
      {},
      header(data),
      ...[matrix(data), claims(data)].filter((part) => part !== null),
      h('div.verdict-block', {}, ...findings(data), ...lists),
      links,
      h(
        'div.experiment-block',
        {},
        ...data.experiments.map((experiment) => experimentSection(experiment, data)),
        settings(data),
      ),
    ),
  );
  followReader(links);
  window.addEventListener('beforeprint', drawAllCharts);
  // An anchor in the address could not be followed while its section did not exist.
  if (location.hash !== '') document.getElementById(location.hash.slice(1))?.scrollIntoView();
  if (new URLSearchParams(location.search).has('all')) drawAllCharts();
}
