// The entry: styles, and the application in its place.

import { render } from 'preact';
import 'uplot/dist/uPlot.min.css';
import './style/theme.css';
import './style/page.css';
import './style/forms.css';
import './style/tables.css';
import './style/charts.css';
import './style/records.css';
import { App } from './app.tsx';
import { applyTheme } from './theme.ts';
import { showUnseen } from './ui/visible.ts';

showUnseen();
applyTheme();
const place = document.getElementById('app');
if (place) render(<App />, place);
