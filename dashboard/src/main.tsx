import {render} from 'preact';
import './app.css';
import {App} from './app';
import {keepUpToDate} from './store';

render(<App />, document.getElementById('app')!);
void keepUpToDate();
