'use strict';
// Draws the curves. All text is set as text, never as markup: names come from files. page.js follows in the same script.

const data = JSON.parse(document.getElementById('data').textContent);
const METRICS = [['episode_return', 'return'], ['cost_return', 'cost return'], ['cost_regret', 'cost regret']];
const SIZE = {width: 420, height: 250, left: 48, right: 10, top: 24, bottom: 26};
const colors = Object.fromEntries(data.algorithms.map(item => [item.name, item.color]));
const state = restore();

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function svg(name, attributes = {}, text = null) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

// What is switched off survives a reload, if the browser lets a file remember anything.
function restore() {
  const fresh = {hiddenAlgorithms: [], hiddenSeeds: [], singleSeeds: false, published: false};
  try {
    return Object.assign(fresh, JSON.parse(sessionStorage.getItem('lambda_kit') || '{}'));
  } catch (error) {
    return fresh;
  }
}

function remember() {
  try {
    sessionStorage.setItem('lambda_kit', JSON.stringify(state));
  } catch (error) {
    // The page works without it.
  }
}

function compact(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return +(value / 1e6).toFixed(2) + 'M';
  if (size >= 1e4) return +(value / 1e3).toFixed(1) + 'k';
  return String(+value.toPrecision(size >= 1000 ? 4 : 3));
}

function duration(seconds) {
  if (seconds < 120) return compact(seconds) + ' seconds';
  return seconds < 7200 ? compact(seconds / 60) + ' minutes' : compact(seconds / 3600) + ' hours';
}

function quantile(sorted, share) {
  const position = share * (sorted.length - 1), low = Math.floor(position);
  return sorted[low] + (position - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}

function interpolate(steps, values, step) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] <= step) low = middle; else high = middle;
  }
  if (step >= steps[high]) return values[high];
  const share = steps[high] === steps[low] ? 0 : (step - steps[low]) / (steps[high] - steps[low]);
  return values[low] + Math.max(0, share) * (values[high] - values[low]);
}

// Median and percentiles over seeds, at steps that all of them have reached.
function band(seeds, metric) {
  const start = Math.max(...seeds.map(seed => seed.steps[0]));
  const end = Math.min(...seeds.map(seed => seed.steps[seed.steps.length - 1]));
  const steps = [...new Set(seeds.flatMap(seed => seed.steps))].filter(step => step >= start && step <= end);
  return steps.sort((a, b) => a - b).map(step => {
    const values = seeds.map(seed => interpolate(seed.steps, seed[metric], step)).sort((a, b) => a - b);
    return {step, median: quantile(values, 0.5), low: quantile(values, 0.05), high: quantile(values, 0.95)};
  });
}

function visibleGroups(task) {
  return task.groups.filter(group => !state.hiddenAlgorithms.includes(group.algorithm)).map(group => {
    const seeds = group.seeds.filter(seed => !state.hiddenSeeds.includes(seed.seed) && seed.steps.length);
    const scored = seeds.filter(seed => seed.scored);
    return {algorithm: group.algorithm, seeds, averaged: scored.length ? scored : seeds};
  }).filter(group => group.seeds.length);
}

function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(factor => factor * power).find(value => value >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + 1e-9 * step; value += step) found.push(value);
  return found;
}

function path(points) {
  return points.map(([x, y], i) => `${i ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');
}

function drawChart(holder, task, [metric, title], index) {
  const groups = visibleGroups(task);
  const bands = groups.map(group => ({algorithm: group.algorithm, points: band(group.averaged, metric)}));
  const published = state.published ? task.published : [];
  const limit = metric === 'cost_return' ? task.limit : null;
  const values = [...bands.flatMap(item => item.points.flatMap(point => [point.low, point.high])),
    ...(state.singleSeeds ? groups.flatMap(group => group.seeds.flatMap(seed => seed[metric])) : []),
    ...published.map(row => row.values[index]), ...(limit === null ? [] : [limit])].filter(Number.isFinite);
  let low = Infinity, high = -Infinity, last = 1;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  for (const group of groups) for (const seed of group.seeds) last = Math.max(last, seed.steps[seed.steps.length - 1]);
  if (!values.length) { low = 0; high = 1; }
  if (metric !== 'episode_return') low = Math.min(low, 0);
  if (high - low < 1e-12) { low -= 0.5; high += 0.5; }
  const pad = 0.04 * (high - low);
  high += pad;
  if (low < 0 || metric === 'episode_return') low -= pad;
  const {width, height, left, right, top, bottom} = SIZE;
  const x = step => left + step / last * (width - left - right);
  const y = value => height - bottom - (value - low) / (high - low) * (height - top - bottom);

  const image = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `${task.name}, ${title}`});
  image.append(svg('text', {x: left, y: 14, class: 'title'}, title));
  for (const value of ticks(low, high, 4)) {
    image.append(svg('line', {x1: left, x2: width - right, y1: y(value), y2: y(value), class: 'grid'}));
    image.append(svg('text', {x: left - 6, y: y(value) + 4, 'text-anchor': 'end'}, compact(value)));
  }
  for (const value of ticks(0, last, 4)) {
    image.append(svg('text', {x: x(value), y: height - 8, 'text-anchor': 'middle'}, compact(value)));
  }
  for (const {algorithm, points} of bands) {
    const edge = [...points.map(point => [x(point.step), y(point.high)]),
      ...points.slice().reverse().map(point => [x(point.step), y(point.low)])];
    image.append(svg('path', {d: path(edge) + 'Z', fill: colors[algorithm], opacity: 0.18, class: 'band'}));
  }
  if (state.singleSeeds) for (const group of groups) for (const seed of group.seeds) {
    image.append(svg('path', {d: path(seed.steps.map((step, i) => [x(step), y(seed[metric][i])])), fill: 'none',
      stroke: colors[group.algorithm], 'stroke-width': 0.8, opacity: 0.7, 'stroke-dasharray': seed.scored ? '' : '3 2',
      class: 'seed'}));
  }
  for (const row of published) {
    image.append(svg('line', {x1: left, x2: width - right, y1: y(row.values[index]), y2: y(row.values[index]),
      stroke: colors[row.algorithm], 'stroke-dasharray': '6 4', class: 'published'}));
  }
  for (const {algorithm, points} of bands) {
    image.append(svg('path', {d: path(points.map(point => [x(point.step), y(point.median)])), fill: 'none',
      stroke: colors[algorithm], 'stroke-width': 2, class: 'median', 'data-algorithm': algorithm}));
    if (points.length === 1) {
      image.append(svg('circle', {cx: x(points[0].step), cy: y(points[0].median), r: 3, fill: colors[algorithm]}));
    }
  }
  if (limit !== null) {
    image.append(svg('line', {x1: left, x2: width - right, y1: y(limit), y2: y(limit), class: 'limit'}));
  }
  const cursor = svg('line', {y1: top, y2: height - bottom, class: 'cursor', visibility: 'hidden'});
  image.append(cursor);
  image.addEventListener('pointermove', event => {
    const box = image.getBoundingClientRect();
    const wanted = ((event.clientX - box.left) / box.width * width - left) / (width - left - right) * last;
    pointAt(bands, wanted, title, event, step => {
      cursor.setAttribute('x1', x(step));
      cursor.setAttribute('x2', x(step));
      cursor.setAttribute('visibility', 'visible');
    });
  });
  image.addEventListener('pointerleave', () => {
    cursor.setAttribute('visibility', 'hidden');
    document.getElementById('tooltip').hidden = true;
  });
  holder.replaceChildren(image);
}

// Shows the numbers of all curves at the step nearest to the pointer.
function pointAt(bands, wanted, title, event, moveCursor) {
  const tooltip = document.getElementById('tooltip');
  const nearest = points => points.reduce((best, point) =>
    Math.abs(point.step - wanted) < Math.abs(best.step - wanted) ? point : best);
  const found = bands.filter(item => item.points.length).map(item => [item.algorithm, nearest(item.points)]);
  if (!found.length) return;
  const step = found.map(([, point]) => point.step).reduce((best, value) =>
    Math.abs(value - wanted) < Math.abs(best - wanted) ? value : best);
  moveCursor(step);
  tooltip.replaceChildren(element('strong', {}, `${title} at ${compact(step)} steps`), ...found.map(
      ([algorithm, point]) => element('div', {},
        element('span', {class: 'swatch', style: `background:${colors[algorithm]}`}),
        `${algorithm}: ${compact(point.median)} [${compact(point.low)}, ${compact(point.high)}]` +
        (point.step === step ? '' : ` at ${compact(point.step)}`))));
  tooltip.hidden = false;
  const room = tooltip.getBoundingClientRect();
  tooltip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - room.width - 4)) + 'px';
  tooltip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - room.height - 4)) + 'px';
}

function drawCharts() {
  for (const draw of redraws) draw();
}

const redraws = [];

function buildCharts() {
  const charts = document.getElementById('charts');
  for (const task of data.tasks) {
    const line = element('div', {class: 'task'});
    charts.append(element('h3', {}, task.name, ' ', element('span', {class: 'faint'}, task.protocol)), line);
    METRICS.forEach((metric, index) => {
      const holder = element('div', {class: 'chart', 'data-task': task.name, 'data-metric': metric[0]});
      line.append(holder);
      redraws.push(() => drawChart(holder, task, metric, index));
    });
  }
  drawCharts();
}
