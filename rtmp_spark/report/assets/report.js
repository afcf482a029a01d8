'use strict';
// Cursor, zoom, choice of a connection, sorting, filters, copying, light and dark theme. The page is complete without it.
(function () {
  const body = document.body;
  body.classList.add('scripted');
  const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));

  // ---- light and dark theme
  const theme = document.querySelector('button.theme');
  theme.hidden = false;
  theme.addEventListener('click', () => {
    const dark = body.dataset.theme ? body.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    body.dataset.theme = dark ? 'light' : 'dark';
  });

  // ---- show one connection at a time if there are several
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

  // ---- copy filters and commands by click or Enter
  function copy(code) {
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
  }
  all('code.copy').forEach(code => {
    code.tabIndex = 0;
    code.setAttribute('role', 'button');
    code.title = 'copy';
    code.addEventListener('click', () => copy(code));
    code.addEventListener('keydown', event => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); copy(code); } });
  });

  // ---- filter and sort tables
  all('input.search').forEach(input => {
    input.hidden = false;
    const rows = all('table tbody tr', input.parentElement);
    const texts = rows.map(row => row.textContent.toLowerCase());
    input.addEventListener('input', () => {
      const words = input.value.toLowerCase().split(/\s+/);
      rows.forEach((row, i) => { row.hidden = !words.every(word => texts[i].includes(word)); });
    });
  });
  const UNITS = { ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, 'kb/s': 1e3, 'Mb/s': 1e6 };
  function quantity(text) {
    const parts = [...text.matchAll(/(-?[\d.,]+)\s*([A-Za-z/]*)/g)];
    return parts.length ? parts.reduce((sum, part) => sum + Number(part[1].replace(/,/g, '')) * (UNITS[part[2]] || 1), 0) : -Infinity;
  }
  function sortable(table) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 3 || !table.tHead) return;
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      if (!head.textContent.trim()) return;
      const button = document.createElement('button');
      button.type = 'button';
      button.className = 'sort';
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener('click', () => {
        const down = head.getAttribute('aria-sort') === 'ascending';
        heads.forEach(other => other.removeAttribute('aria-sort'));
        head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
        const numbers = head.classList.contains('n');
        const key = row => { const text = row.cells[column].innerText.trim(); return numbers ? quantity(text) : text.toLowerCase(); };
        const rows = Array.from(body.rows).map(row => [key(row), row]);
        rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }
  all('table:not(.declared):not(.matrix)').forEach(sortable);

  // ---- plots
  const LAYOUT = { line: [2, 0, 1], dots: [3, 0, 1], stems: [3, 0, 2], bars: [5, 0, 2] };
  const SCALES = {
    'b/s': [[1e6, 1e6, 'Mb/s'], [0, 1e3, 'kb/s']], B: [[1e9, 1e9, 'GB'], [1e6, 1e6, 'MB'], [1e3, 1e3, 'kB'], [0, 1, 'B']],
    ms: [[1e4, 1e3, 's'], [0, 1, 'ms']], s: [[0, 1, 's']],
  };
  function axisTexts(ticks, unit) {
    const largest = Math.max(...ticks.map(Math.abs));
    const [, divisor, name] = (SCALES[unit] || []).find(([least]) => largest >= least) || [0, 1, ''];
    return ticks.map(tick => (Number((tick / divisor).toPrecision(4)).toLocaleString('en') + ' ' + name).trim());
  }
  function timeText(seconds, span) {
    if (span < 180) return seconds.toFixed(span >= 5 ? 0 : span >= 0.5 ? 1 : 3) + ' s';
    const whole = Math.abs(Math.round(seconds)), two = n => String(n).padStart(2, '0'), sign = seconds < 0 ? '-' : '';
    const hours = Math.floor(whole / 3600), rest = whole % 3600;
    return span >= 3600 ? sign + hours + ':' + two(Math.floor(rest / 60)) + ':' + two(rest % 60) : sign + Math.floor(whole / 60) + ':' + two(whole % 60);
  }
  function niceTicks(low, high, wanted, time) {
    const rough = (high - low) / wanted;
    const scale = Math.pow(10, Math.floor(Math.log10(rough)));
    let step = (time ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10]).map(m => m * scale).find(s => s >= rough * 0.999);
    if (time && rough > 5) step = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200].find(s => s >= rough) || 86400 * Math.ceil(rough / 86400);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9; i++) found.push(i * step);
    return found;
  }
  function points(path) {
    const style = Object.keys(LAYOUT).find(name => path.classList.contains(name));
    const numbers = (path.getAttribute('d').match(/-?\d+(?:\.\d+)?/g) || []).map(Number);
    const [stride, atX, atY] = LAYOUT[style], xs = [], ys = [], tops = [];
    for (let i = 0; i + stride <= numbers.length; i += stride) {
      xs.push(numbers[i + atX]);
      tops.push(numbers[i + atY]);
      ys.push(style === 'bars' ? numbers[i + 2] - numbers[i + 1] : numbers[i + atY]);
    }
    return { name: path.dataset.name, style, xs, ys, tops };
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
  function clockTexts(microseconds, seconds) {
    const date = new Date(microseconds / 1000 + seconds * 1000);
    if (Number.isNaN(date.getTime())) return [];
    const utc = date.toISOString().slice(0, 23).replace('T', ' ') + ' UTC';
    if (!date.getTimezoneOffset()) return [utc];
    return [utc, new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(11, 23) + ' local time'];
  }

  class Chart {
    constructor(figure, group, session) {
      this.figure = figure;
      this.group = group;
      this.session = session;
      this.unit = figure.dataset.unit;
      this.area = figure.querySelector('.area');
      this.svgs = all('svg', figure);
      this.main = this.area.querySelector('svg');
      this.box = this.main.getAttribute('viewBox');
      this.grid = this.main.querySelector('.grid');
      this.lines = this.grid.getAttribute('d');
      this.scale = figure.querySelector('.ylabels');
      this.steps = Array.from(this.scale.children);
      this.whole = figure.dataset.x.split(' ').map(Number);
      this.now = this.whole.slice();
      this.labels = figure.querySelector('.xlabels');
      this.marks = all('.marks span', figure);
      this.markAt = all('path.mark', figure).map(path => Number(path.getAttribute('d').match(/-?\d+(?:\.\d+)?/)[0]));
      this.flags = all('.flags i', figure).map(flag => ({ flag, x: Number(flag.dataset.x) }));
      for (const name of ['cursor', 'brush', 'tip']) {
        this[name] = document.createElement('div');
        this[name].className = name;
        this.area.append(this[name]);
      }
      this.reset = document.createElement('button');
      Object.assign(this.reset, { type: 'button', className: 'reset', textContent: 'reset zoom', hidden: true });
      this.reset.addEventListener('click', () => this.zoom(this.whole));
      figure.querySelector('figcaption').append(this.reset);
      this.area.tabIndex = 0;
      this.area.title = 'drag to zoom; arrow keys move the cursor, + and - zoom, Escape resets';
      this.area.addEventListener('pointerdown', event => {
        if (event.button !== 0) return;
        this.from = this.at(event);
        this.area.setPointerCapture(event.pointerId);
        this.move(event);
      });
      this.area.addEventListener('pointermove', event => this.move(event));
      this.area.addEventListener('pointerup', event => this.up(event));
      this.area.addEventListener('pointercancel', () => { this.from = undefined; this.brush.style.display = 'none'; });
      this.area.addEventListener('pointerleave', () => this.group.forEach(chart => chart.leave()));
      this.area.addEventListener('blur', () => this.group.forEach(chart => chart.leave()));
      this.area.addEventListener('dblclick', () => this.zoom(this.whole));
      this.area.addEventListener('keydown', event => this.key(event));
    }
    at(event) {
      const box = this.area.getBoundingClientRect();
      return this.now[0] + (event.clientX - box.left) / box.width * (this.now[1] - this.now[0]);
    }
    place(x) { return (x - this.now[0]) / (this.now[1] - this.now[0]) * 100; }
    point(x) {
      this.x = x;
      this.group.forEach(chart => chart.follow(x, chart === this));
    }
    move(event) {
      const x = this.at(event);
      this.point(x);
      if (this.from !== undefined) {
        const [a, b] = [Math.min(this.from, x), Math.max(this.from, x)];
        Object.assign(this.brush.style, { display: 'block', left: this.place(a) + '%', width: this.place(b) - this.place(a) + '%' });
      }
    }
    key(event) {
      const [low, high] = this.now, span = high - low;
      const x = this.x === undefined || this.x < low || this.x > high ? (low + high) / 2 : this.x;
      const step = span * (event.shiftKey ? 0.1 : 0.01);
      if (event.key === 'ArrowLeft') this.point(Math.max(low, x - step));
      else if (event.key === 'ArrowRight') this.point(Math.min(high, x + step));
      else if (event.key === '+' || event.key === '=') { this.zoom([x - span / 4, x + span / 4]); this.point(x); }
      else if (event.key === '-') { this.zoom([x - span, x + span]); this.point(x); }
      else if (event.key === 'Escape' || event.key === '0') this.zoom(this.whole);
      else return;
      event.preventDefault();
    }
    follow(x, talk) {
      Object.assign(this.cursor.style, { display: 'block', left: this.place(x) + '%' });
      if (!talk) return;
      const span = this.now[1] - this.now[0];
      this.tip.textContent = '';
      const add = (words, role) => { const line = document.createElement('div'); line.textContent = words; line.className = role || ''; this.tip.append(line); };
      add(span < 180 ? x.toFixed(3) + ' s' : timeText(x, span));
      clockTexts(Number(this.session.dataset.start), x).forEach(words => add(words, 'dim'));
      const packets = this.session.packets;
      if (packets.xs.length) add('near packet ' + packets.ys[nearest(packets, x)], 'dim');
      for (const series of this.series()) {
        if (!series.xs.length) continue;
        const i = nearest(series, x);
        if (Math.abs(series.xs[i] - x) <= Math.max(span / 30, series.style === 'bars' ? 1 : 0)) add(series.name + ': ' + axisTexts([series.ys[i]], this.unit)[0]);
      }
      this.flags.filter(({ x: at }) => Math.abs(at - x) <= span / 60).slice(0, 4).forEach(({ flag }) => add(flag.title, 'found ' + flag.className));
      const right = this.place(x) > 60;
      Object.assign(this.tip.style, { display: 'block', left: right ? 'auto' : 'calc(' + this.place(x) + '% + 10px)', right: right ? 'calc(' + (100 - this.place(x)) + '% + 10px)' : 'auto' });
    }
    series() {
      if (!this.points) this.points = all('svg path[data-name]', this.area).map(points);
      return this.points;
    }
    leave() { this.cursor.style.display = this.tip.style.display = 'none'; }
    up(event) {
      if (this.from === undefined) return;
      const range = [this.from, this.at(event)].sort((a, b) => a - b);
      this.from = undefined;
      this.brush.style.display = 'none';
      if (range[1] - range[0] > (this.now[1] - this.now[0]) / 100) this.zoom(range);
    }
    zoom(range) {
      const low = Math.max(range[0], this.whole[0]), high = Math.min(range[1], this.whole[1]);
      if (high - low >= 0.001) this.group.forEach(chart => chart.show([low, high]));
    }
    show(range) {
      this.now = range;
      const span = range[1] - range[0], all_of_it = range[0] === this.whole[0] && range[1] === this.whole[1];
      this.reset.hidden = all_of_it;
      for (const svg of this.svgs) {
        const box = svg.getAttribute('viewBox').split(' ');
        svg.setAttribute('viewBox', [range[0], box[1], span, box[3]].join(' '));
      }
      if (all_of_it) this.unscale(); else this.rescale();
      this.labels.textContent = '';
      for (const tick of niceTicks(range[0], range[1], 6, true)) {
        const label = document.createElement('span');
        label.textContent = timeText(tick, span);
        const share = this.place(tick);
        label.style.transform = 'translateX(-' + share + '%)';
        label.style.left = share + '%';
        this.labels.append(label);
      }
      this.marks.forEach((mark, i) => { mark.style.left = this.place(this.markAt[i]) + '%'; });
      this.flags.forEach(({ flag, x }) => { flag.style.left = this.place(x) + '%'; });
    }
    unscale() {
      this.main.setAttribute('viewBox', this.box);
      this.grid.setAttribute('d', this.lines);
      this.scale.replaceChildren(...this.steps);
    }
    rescale() {
      let low = Infinity, high = -Infinity, from_zero = false;
      for (const series of this.series()) {
        const wide = series.style === 'bars' ? 1 : 0;
        series.xs.forEach((x, i) => {
          if (x + wide < this.now[0] || x > this.now[1]) return;
          low = Math.min(low, series.tops[i]);
          high = Math.max(high, series.tops[i]);
          from_zero = from_zero || series.style === 'bars' || series.style === 'stems';
        });
      }
      if (low > high) return;
      if (low > 0 && (from_zero || low < 0.6 * high)) low = 0;
      if (high <= low) { low -= 1; high += 1; }
      const ticks = niceTicks(low, high, 4, false), margin = (high - low) * 0.06;
      high += margin;
      if (low !== 0) low -= margin;
      this.main.setAttribute('viewBox', [this.now[0], -high, this.now[1] - this.now[0], high - low].join(' '));
      this.grid.setAttribute('d', ticks.map(tick => 'M' + this.whole[0] + ',' + tick + 'H' + this.whole[1]).join(''));
      this.scale.replaceChildren(...axisTexts(ticks, this.unit).map((words, i) => {
        const label = document.createElement('span');
        label.textContent = words;
        label.style.top = (high - ticks[i]) / (high - low) * 100 + '%';
        return label;
      }));
    }
  }
  sessions.forEach(session => {
    const group = [];
    const places = (session.dataset.packets || '').split(' ').filter(Boolean).map(word => word.split(':').map(Number));
    session.packets = { style: 'line', xs: places.map(place => place[0]), ys: places.map(place => place[1]) };
    all('figure.chart[data-x]', session).forEach(figure => group.push(new Chart(figure, group, session)));
  });
})();
