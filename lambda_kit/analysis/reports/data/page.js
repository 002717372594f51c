// Lists problems, videos and runs, and lets readers choose what is drawn. charts.js precedes it in the same script.

function checkbox(text, name, isOn, onChange, swatch = null) {
  const box = element('input', {type: 'checkbox', 'data-toggle': name});
  box.checked = isOn;
  box.addEventListener('change', () => {
    onChange(box.checked);
    remember();
    drawCharts();
  });
  const color = swatch ? [element('span', {class: 'swatch', style: `background:${swatch}`})] : [];
  return element('label', {}, box, ...color, text);
}

// A box that is ticked unless its value is in the list of hidden ones.
function hider(value, key, swatch = null) {
  return checkbox(String(value), value, !state[key].includes(value), isOn => {
    state[key] = state[key].filter(item => item !== value).concat(isOn ? [] : [value]);
  }, swatch);
}

function buildToggles() {
  const groups = data.tasks.flatMap(task => task.groups);
  const seeds = [...new Set(groups.flatMap(group => group.seeds.map(run => run.seed)))];
  const drawn = new Set(groups.map(group => group.algorithm));
  const form = document.getElementById('toggles');
  const field = (title, ...labels) => element('fieldset', {}, element('legend', {}, title), ...labels);
  const shown = data.algorithms.filter(item => drawn.has(item.name));
  form.append(field('Algorithms', ...shown.map(item => hider(item.name, 'hiddenAlgorithms', item.color))));
  form.append(field('Seeds', ...seeds.sort((a, b) => a - b).map(seed => hider(seed, 'hiddenSeeds'))));
  const options = [checkbox('single seeds', 'single-seeds', state.singleSeeds, isOn => { state.singleSeeds = isOn; })];
  if (data.tasks.some(task => task.published.length)) {
    options.push(checkbox('long training (paper)', 'published', state.published, isOn => { state.published = isOn; }));
  }
  form.append(field('Show', ...options));
}

function buildProblems() {
  const section = document.getElementById('problems');
  if (!data.problems.length) section.append(element('p', {}, 'No problems found in the runs.'));
  for (const kind of new Set(data.problems.map(problem => problem.kind))) {
    const found = data.problems.filter(problem => problem.kind === kind);
    const list = element('ul', {}, ...found.slice(0, 500).map(
      problem => element('li', {}, element('strong', {}, problem.where), ': ', problem.message)));
    const title = element('span', {class: 'bad'}, `${found.length} × ${kind}`);
    const box = element('details', {}, element('summary', {}, title), list);
    box.open = found.length <= 10;
    section.append(box);
  }
  const warned = data.runs.filter(run => run.diagnoses.length);
  if (!warned.length) {
    section.append(element('p', {}, 'No warnings from diagnostics.'));
    return;
  }
  const list = element('ul', {}, ...warned.slice(0, 200).flatMap(run => run.diagnoses.map(item => element('li', {},
    element('strong', {}, `${run.workdir}, step ${compact(item.step)}, ${item.name}`), ': ', item.message))));
  section.append(element('details', {class: 'diagnoses'}, element('summary', {},
    `Warnings from diagnostics in ${warned.length} of ${data.runs.length} runs`), list));
}

function player(run) {
  const source = data.videos[run.workdir];
  return source.startsWith('data:image') ? element('img', {src: source, alt: `Video of ${run.workdir}`})
    : element('video', {src: source, controls: '', muted: '', loop: '', playsinline: '', preload: 'metadata'});
}

function buildVideos() {
  const section = document.getElementById('videos');
  const shown = data.runs.filter(run => Object.hasOwn(data.videos, run.workdir));
  if (!shown.length) {
    section.append(element('p', {}, 'No run has a video yet: runs film an episode at their end.'));
    return;
  }
  const without = data.runs.filter(run => run.has_video).length - shown.length;
  if (without > 0) {
    section.append(element('p', {class: 'faint'},
      `${without} more would make the page too large; they are in the workdirs.`));
  }
  section.append(element('div', {}, ...shown.map(run => element('figure', {}, player(run),
    element('figcaption', {}, `${run.task}, ${run.algorithm}, seed ${run.seed}`)))));
}

function describe(run) {
  const config = data.configs[run.config_hash];
  const facts = [`Configuration ${run.config_hash}.`];
  if (run.mujoco !== null) facts.push(`MuJoCo ${run.mujoco}.`);
  if (run.score) {
    facts.push(`Wall time ${duration(run.score.wall_seconds)}.`,
      `Recorded at step ${run.score.environment_steps.toLocaleString('en')}.`);
  }
  const difference = config.diff === null ? element('p', {}, 'The paper\'s configuration is not available for comparison.')
    : config.diff.length ? element('pre', {class: 'diff'}, ...config.diff.map(
      line => element('span', {class: line[0] === '+' ? 'added' : 'removed'}, line + '\n')))
      : element('p', {}, 'None.');
  return element('div', {}, element('p', {}, facts.join(' ')),
    ...run.diagnoses.map(item => element('p', {class: 'bad'},
      `Step ${compact(item.step)}, ${item.name}: ${item.message}`)),
    ...(config.diff === null ? [] : [element('h3', {}, `Difference from ${config.against}`)]), difference,
    element('h3', {}, 'All bindings, macros resolved, without the seed'), element('pre', {}, config.text));
}

function buildRuns() {
  const section = document.getElementById('runs');
  for (const run of data.runs) {
    const list = values => values.map(compact).join(' / ');
    const score = run.score ? `return ${compact(run.score.episode_return)}, cost ${list(run.score.cost_return)}, ` +
      `regret ${list(run.score.cost_regret)}${run.score.safe ? '' : ', over the limit'}` : `no score, at step ${compact(run.last_step)}`;
    const mark = run.refused ? ' (refused)' : '';
    const summary = element('summary', {}, element('strong', {}, run.workdir),
      ` ${run.task}, ${run.algorithm}, seed ${run.seed}${mark}: `,
      element('span', {class: run.score && !run.score.safe ? 'bad' : ''}, score));
    const box = element('details', {class: 'run'}, summary);
    box.addEventListener('toggle', () => {
      if (box.open && box.children.length === 1) box.append(describe(run));
    });
    section.append(box);
  }
}

document.getElementById('overview').textContent = data.overview;
buildToggles();
buildCharts();
buildProblems();
buildVideos();
buildRuns();
const refresh = Number(document.body.dataset.refresh);
if (refresh > 0) setTimeout(() => location.reload(), 1000 * refresh);
