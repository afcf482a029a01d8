'use strict';
// Pointer, zoom, choosing a connection, filtering, copying, light and dark. The page is whole without it.
(function () {
  const body = document.body;
  body.classList.add('scripted');
  const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));

  // ---- light and dark
  const theme = document.querySelector('button.theme');
  theme.hidden = false;
  theme.addEventListener('click', () => {
    const dark = body.dataset.theme ? body.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    body.dataset.theme = dark ? 'light' : 'dark';
  });

  // ---- one connection at a time, when there are several
  const sessions = all('article.session');
  const overview = document.querySelector('.overview');
  const choose = document.querySelector('select.choose');
  function route() {
    if (!overview) return;
    const wanted = decodeURIComponent(location.hash.slice(1));
    const chosen = sessions.find(s => wanted === s.id || wanted.startsWith(s.id + '-'));
    overview.classList.toggle('away', Boolean(chosen));
    sessions.forEach(s => s.classList.toggle('away', s !== chosen));
    if (choose) choose.value = chosen ? chosen.id : '';
    const part = chosen && wanted !== chosen.id && document.getElementById(wanted);
    if (part) part.scrollIntoView(); else scrollTo(0, 0);
  }
  if (choose) {
    choose.hidden = false;
    choose.addEventListener('change', () => { location.hash = choose.value || 'overview'; });
  }
  addEventListener('hashchange', route);
  route();

  // ---- copy what is meant to be pasted elsewhere
  document.addEventListener('click', event => {
    const code = event.target.closest && event.target.closest('code.copy');
    if (!code) return;
    const done = () => { code.classList.add('copied'); setTimeout(() => code.classList.remove('copied'), 900); };
    const byHand = () => {
      const range = document.createRange();
      range.selectNodeContents(code);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      if (document.execCommand('copy')) done();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, byHand); else byHand();
  });

  // ---- filter the list of connections
  all('input.search').forEach(input => {
    input.hidden = false;
    const rows = all('tbody tr', input.parentElement.querySelector('table.connections'));
    const texts = rows.map(row => row.textContent.toLowerCase());
    input.addEventListener('input', () => {
      const words = input.value.toLowerCase().split(/\s+/);
      rows.forEach((row, i) => { row.hidden = !words.every(word => texts[i].includes(word)); });
    });
  });

  // ---- plots
  const LAYOUT = { line: [2, 0, 1], dots: [3, 0, 1], stems: [3, 0, 2], bars: [5, 0, 2] };
  const round = (value, digits) => Number(value.toPrecision(digits)).toLocaleString('en');
  function valueText(value, unit) {
    if (unit === 'b/s') return Math.abs(value) >= 1e6 ? round(value / 1e6, 4) + ' Mb/s' : round(value / 1e3, 4) + ' kb/s';
    if (unit === 'B') {
      for (const [name, scale] of [['GB', 1e9], ['MB', 1e6], ['kB', 1e3]]) if (Math.abs(value) >= scale) return round(value / scale, 4) + ' ' + name;
      return Math.round(value) + ' B';
    }
    return round(value, 5) + (unit && unit !== 'count' ? ' ' + unit : '');
  }
  function timeText(seconds, span) {
    if (span < 180) return seconds.toFixed(span >= 5 ? 0 : span >= 0.5 ? 1 : 3) + ' s';
    const whole = Math.abs(Math.round(seconds)), two = n => String(n).padStart(2, '0'), sign = seconds < 0 ? '-' : '';
    const hours = Math.floor(whole / 3600), rest = whole % 3600;
    return span >= 3600 ? sign + hours + ':' + two(Math.floor(rest / 60)) + ':' + two(rest % 60) : sign + Math.floor(whole / 60) + ':' + two(whole % 60);
  }
  function niceTicks(low, high, wanted) {
    const rough = (high - low) / wanted;
    const scale = Math.pow(10, Math.floor(Math.log10(rough)));
    let step = [1, 2, 5, 10].map(m => m * scale).find(s => s >= rough * 0.999);
    if (rough > 5) step = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200].find(s => s >= rough) || 86400 * Math.ceil(rough / 86400);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9; i++) found.push(i * step);
    return found;
  }
  function points(path) {
    const style = Object.keys(LAYOUT).find(name => path.classList.contains(name));
    const numbers = (path.getAttribute('d').match(/-?\d+(?:\.\d+)?/g) || []).map(Number);
    const [stride, atX, atY] = LAYOUT[style], xs = [], ys = [];
    for (let i = 0; i + stride <= numbers.length; i += stride) {
      xs.push(numbers[i + atX]);
      ys.push(style === 'bars' ? numbers[i + 2] - numbers[i + 1] : numbers[i + atY]);
    }
    return { name: path.dataset.name, style, xs, ys };
  }
  function nearest(series, x) {
    const xs = series.xs;
    let low = 0, high = xs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < x) low = middle + 1; else high = middle;
    }
    if (series.style === 'bars') return xs[low] > x && low > 0 ? low - 1 : low;
    return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
  }

  class Chart {
    constructor(figure, group) {
      this.figure = figure;
      this.group = group;
      this.area = figure.querySelector('.area');
      this.svgs = all('svg', figure);
      this.whole = figure.dataset.x.split(' ').map(Number);
      this.now = this.whole.slice();
      this.labels = figure.querySelector('.xlabels');
      this.marks = all('.marks span', figure);
      this.markAt = all('path.mark', figure).map(path => Number(path.getAttribute('d').match(/-?\d+(?:\.\d+)?/)[0]));
      for (const name of ['cursor', 'brush', 'tip']) {
        this[name] = document.createElement('div');
        this[name].className = name;
        this.area.append(this[name]);
      }
      this.area.addEventListener('pointermove', event => this.move(event));
      this.area.addEventListener('pointerleave', () => this.group.forEach(chart => chart.leave()));
      this.area.addEventListener('pointerdown', event => { if (event.button === 0 && event.pointerType === 'mouse') { this.from = this.at(event); event.preventDefault(); } });
      addEventListener('pointerup', event => this.up(event));
      this.area.addEventListener('dblclick', () => this.group.forEach(chart => chart.show(chart.whole)));
      this.area.title = 'drag to zoom, double-click to go back';
    }
    at(event) {
      const box = this.area.getBoundingClientRect();
      return this.now[0] + (event.clientX - box.left) / box.width * (this.now[1] - this.now[0]);
    }
    place(x) { return (x - this.now[0]) / (this.now[1] - this.now[0]) * 100; }
    move(event) {
      const x = this.at(event);
      this.group.forEach(chart => chart.point(x, chart === this));
      if (this.from !== undefined) {
        const [a, b] = [Math.min(this.from, x), Math.max(this.from, x)];
        Object.assign(this.brush.style, { display: 'block', left: this.place(a) + '%', width: this.place(b) - this.place(a) + '%' });
      }
    }
    point(x, talk) {
      Object.assign(this.cursor.style, { display: 'block', left: this.place(x) + '%' });
      if (!talk) return;
      if (!this.series) this.series = all('svg path[data-name]', this.area).map(points);
      const span = this.now[1] - this.now[0];
      this.tip.textContent = '';
      const add = words => { const line = document.createElement('div'); line.textContent = words; this.tip.append(line); };
      add(span < 180 ? x.toFixed(3) + ' s' : timeText(x, span));
      for (const series of this.series) {
        if (!series.xs.length) continue;
        const i = nearest(series, x);
        if (Math.abs(series.xs[i] - x) <= Math.max(span / 30, series.style === 'bars' ? 1 : 0)) add(series.name + ': ' + valueText(series.ys[i], this.figure.dataset.unit));
      }
      const right = this.place(x) > 60;
      Object.assign(this.tip.style, { display: 'block', left: right ? 'auto' : 'calc(' + this.place(x) + '% + 10px)', right: right ? 'calc(' + (100 - this.place(x)) + '% + 10px)' : 'auto' });
    }
    leave() { this.cursor.style.display = this.tip.style.display = 'none'; }
    up(event) {
      if (this.from === undefined) return;
      const range = [this.from, this.at(event)].sort((a, b) => a - b);
      this.from = undefined;
      this.brush.style.display = 'none';
      range[0] = Math.max(range[0], this.whole[0]);
      range[1] = Math.min(range[1], this.whole[1]);
      if (range[1] - range[0] > (this.now[1] - this.now[0]) / 100) this.group.forEach(chart => chart.show(range));
    }
    show(range) {
      this.now = range.slice();
      const span = range[1] - range[0];
      for (const svg of this.svgs) {
        const box = svg.getAttribute('viewBox').split(' ');
        svg.setAttribute('viewBox', [range[0], box[1], span, box[3]].join(' '));
      }
      this.labels.textContent = '';
      for (const tick of niceTicks(range[0], range[1], 6)) {
        const label = document.createElement('span');
        label.textContent = timeText(tick, span);
        const share = this.place(tick);
        label.className = share < 2 ? 'first' : share > 97 ? 'last' : '';
        label.style.left = share + '%';
        this.labels.append(label);
      }
      this.marks.forEach((mark, i) => { mark.style.left = this.place(this.markAt[i]) + '%'; });
    }
  }
  sessions.forEach(session => {
    const group = [];
    all('figure.chart[data-x]', session).forEach(figure => group.push(new Chart(figure, group)));
  });
})();
