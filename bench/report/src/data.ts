// The report within the page: the text that the benchmark put into the element `data`.

import { type ExperimentRecord, FORMAT, type Report } from './types.ts';

/** The report, or a sentence saying why there is none. */
export function readReport(text: string): Report | string {
  if (text.trim() === '' || text.trim().startsWith('/*'))
    return 'This page has no data. The benchmark puts it in: mainstem-bench report.';
  let report: Report;
  try {
    report = JSON.parse(text) as Report;
  } catch (error) {
    return `The data of this page is not JSON: ${String(error)}`;
  }
  if (report.format !== FORMAT)
    return `The data of this page has format ${String(report.format)}; this page reads format ${FORMAT}.`;
  return { ...report, experiments: [...report.experiments, ...unlisted(report)] };
}

/** Experiments that only runs name: no run may be missing from the page. */
function unlisted(report: Report): ExperimentRecord[] {
  const listed = new Set(report.experiments.map((experiment) => experiment.id));
  const found = new Map<string, ExperimentRecord>();
  for (const { experiment: id, title } of report.runs) {
    if (!listed.has(id)) found.set(id, { id, title, question: '', published: '', figure: 'publish-rate' });
  }
  return [...found.values()];
}
