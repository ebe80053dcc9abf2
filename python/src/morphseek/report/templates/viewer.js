// The viewer of a registration's page: three linked planes of the two images, drawn by Canvas 2D.
// It stands in one function with volumes.js and drawing.js.

const $ = (id) => document.getElementById(id);
const meta = JSON.parse($('meta').textContent);
const { size, spacing } = meta;

const AXIS_NAMES = [
  ['L', 'R'],
  ['P', 'A'],
  ['S', 'I'],
];
const COLORS = { fixed: '#4fb3d9', moving: '#f0a94a', cross: 'rgba(120,230,140,.85)', letter: '#e8d36b' };
const MODES = {
  overview: 'overview',
  rows: 'three images',
  swipe: 'swipe',
  blend: 'blend',
  checker: 'checkerboard',
  difference: 'difference',
  colours: 'two colours',
  edges: 'edges',
};
const OVERLAYS = {
  none: ['none', ''],
  grid: ['grid', 'The grid shows the deformation behind the initial transform.'],
  arrows: [
    'arrows',
    'Arrows run from a point to where the moving image has it, behind the initial transform.',
  ],
  jacobian: [
    'volume change (log-Jacobian)',
    'Blue: tissue is smaller in the moving image; orange: larger; magenta: the map folds, which no tissue does.',
  ],
  uncertainty: [
    'uncertainty',
    'Standard deviation of the displacement, mm. Bright: do not measure here without looking.',
  ],
  error: ['estimated error', 'The error to be expected, mm.'],
};
// Rows run down the screen: from front to back, or from head to foot, for which z is turned.
const PLANES = [
  { name: 'axial', across: 0, down: 1, through: 2, flip: false },
  { name: 'coronal', across: 0, down: 2, through: 1, flip: true },
  { name: 'sagittal', across: 1, down: 2, through: 0, flip: true },
];
for (const plane of PLANES) {
  plane.width = size[plane.across];
  plane.height = size[plane.down];
  plane.mm = [plane.width * spacing[plane.across], plane.height * spacing[plane.down]];
  const [top, bottom] = meta.letters[plane.down];
  plane.letters = [...meta.letters[plane.across], ...(plane.flip ? [bottom, top] : [top, bottom])];
}

// The plane of a slice, which is what there is to see; of a volume all three.
function slicePlane() {
  const of = PLANES.findIndex((plane) => size[plane.through] === 1);
  return of < 0 ? 'all' : String(of);
}

const volumes = {};
const slice = (name, plane, k) => sliceOf(volumes[name], plane, k);
const state = {
  position: [0, 0, 0],
  center: [0, 0, 0],
  zoom: 1,
  mode: 'overview',
  after: true,
  share: 0.5,
  outlines: 'none',
  overlay: 'none',
  plane: slicePlane(),
  cross: true,
  windows: {},
};
let views = [];

let waiting = false;
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    paint();
  });
}

function paint() {
  views.forEach(drawView);
  showReadout();
  tellState();
}

// --------------------------------------------------------------------------------------- layout

function kinds() {
  if (state.mode === 'overview') return volumes.before ? ['before', 'after'] : ['after'];
  return state.mode === 'rows' ? ['fixed', 'before', 'after'] : [state.mode];
}

// Makes the views: a row for each kind and a column for each plane, or the other way round where
// that lets them be larger.
function layOut() {
  const box = $('views');
  const planes = state.plane === 'all' ? PLANES : [PLANES[state.plane]];
  const shown = kinds();
  const wide = window.innerWidth >= 1100 && shown.length > 1;
  $('stage').classList.toggle('side', wide); // high views leave room beside them, wide ones below
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const width = Math.max(200, box.clientWidth - 12);
  const narrow = width < 700;
  const above = box.getBoundingClientRect().top + window.scrollY;
  const height = narrow ? 1e6 : Math.max(300, window.innerHeight - above - (wide ? 8 : 96));
  const [across, down] = [0, 1].map((side) => planes.map((p) => p.mm[side]));
  const repeated = (sides) => shown.map(() => Math.max(...sides));
  const upright = scaleThatFits(across, repeated(down), width, height);
  const turned = scaleThatFits(repeated(across), down, width, height);
  const sideways = shown.length > 1 && (planes.length === 1 || turned > 1.15 * upright);
  const scale = Math.min(sideways ? turned : upright, narrow ? 14 : 24);
  const [widest, tallest] = [Math.max(...across), Math.max(...down)];
  const pairs = sideways
    ? planes.flatMap((plane) => shown.map((kind) => [kind, plane, widest, plane.mm[1]]))
    : shown.flatMap((kind) => planes.map((plane) => [kind, plane, plane.mm[0], tallest]));
  const columns = sideways ? shown.length : planes.length;
  box.style.gridTemplateColumns = `repeat(${columns}, auto)`;
  box.style.setProperty('--columns', columns);
  box.style.setProperty('--rows', pairs.length / columns);
  views = pairs.map(([kind, plane, w, h], i) =>
    makeView(i, kind, plane, w * scale, h * scale, scale, ratio),
  );
  box.replaceChildren(...views.map((view) => view.canvas));
  draw();
}

// The pixels a mm of columns and rows, with gaps of 2 pixels between them.
function scaleThatFits(across, down, width, height) {
  const sum = (sides) => sides.reduce((a, b) => a + b, 0);
  return Math.min((width - 2 * (across.length - 1)) / sum(across), (height - 2 * down.length) / sum(down));
}

function makeView(number, kind, plane, width, height, scale, ratio) {
  const kept = views[number];
  const canvas = kept ? kept.canvas : document.createElement('canvas');
  const view = {
    kind,
    plane,
    scale,
    ratio,
    canvas,
    width: Math.max(90, width),
    height: Math.max(70, height),
  };
  view.context = canvas.getContext('2d');
  canvas.width = Math.round(view.width * ratio);
  canvas.height = Math.round(view.height * ratio);
  canvas.style.width = `${view.width}px`;
  canvas.style.height = `${view.height}px`;
  canvas.view = view;
  canvas.setAttribute('aria-valuemin', 1);
  canvas.setAttribute('aria-valuemax', size[plane.through]);
  if (!kept) {
    canvas.tabIndex = 0;
    canvas.setAttribute('role', 'slider');
    canvas.setAttribute('aria-orientation', 'vertical');
    listen(canvas);
  }
  return view;
}

// -------------------------------------------------------------------------------------- readout

const signed = ([positive, negative], value) =>
  `${value >= 0 ? positive : negative} ${Math.abs(value).toFixed(1)}`;
const number = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3));

function intensity(name) {
  const [low, high] = meta.ranges[kindOf(name)];
  return `\u2248 ${number(low + (valueAt(volumes[name], state.position) * (high - low)) / 255)}`;
}

// The displacement behind the initial transform, and all of it, mm.
function displacementAt(position) {
  const field = fieldReader();
  const node = position.map((v, axis) => field.nodeOf(v, axis));
  const bend = [0, 1, 2].map((axis) => field.at(node, axis));
  const here = times(meta.toMm, position);
  const bent = here.map(
    (v, r) => v + [0, 1, 2].reduce((s, a) => s + (meta.toMm[r][a] / spacing[a]) * bend[a], 0),
  );
  const there = times(meta.initial, bent);
  return [Math.hypot(...bend), Math.hypot(...there.map((v, i) => v - here[i]))];
}

function facts() {
  const { position } = state;
  const mm = times(meta.toMm, position);
  const found = [['position', `${mm.map((v, i) => signed(AXIS_NAMES[i], v)).join('  ')} mm`]];
  found.push([
    'voxel',
    times(meta.toVoxel, position)
      .map((v) => +v.toFixed(1))
      .join(', '),
  ]);
  for (const [name, said] of [
    ['fixed', 'fixed'],
    ['before', 'moving before'],
    ['after', 'after'],
  ]) {
    if (volumes[name]) found.push([said, intensity(name)]);
  }
  const [bend, all] = displacementAt(position);
  found.push(['displacement', `${all.toFixed(1)} mm, bend ${bend.toFixed(1)} mm`]);
  const volume = valueAt(volumes.jacobian, position);
  const change = Math.exp(((volume - 128) / 127) * meta.maps.jacobian.most);
  found.push(['Jacobian (volume)', volume ? `\u00d7${change.toFixed(2)}` : 'folded']);
  for (const name of ['uncertainty', 'error']) {
    if (!volumes[name]) continue;
    const value = (valueAt(volumes[name], position) / 255) * meta.maps[name].most;
    found.push([OVERLAYS[name][0], `${value.toFixed(1)} mm`]);
  }
  if (volumes['labels-fixed']) {
    const label = (name) => labelName(valueAt(volumes[name], position));
    found.push(['label', `fixed ${label('labels-fixed')}, moving ${label('labels-after')}`]);
  }
  return found;
}

function labelName(label) {
  const known = meta.labels.find((entry) => entry.number === label);
  return label ? (known?.name ?? String(label)) : 'none';
}

function showReadout() {
  const rows = facts().map(([what, value]) => {
    const row = document.createElement('div');
    row.append(element('dt', what), element('dd', value));
    return row;
  });
  $('readout').replaceChildren(...rows);
  speakLater(rows.map((row) => row.textContent).join('; '));
}

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

let speaking = 0;
function speakLater(text) {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    $('live').textContent = text;
  }, 900);
}

// For who looks at the page from outside, tests say.
function tellState() {
  Object.assign($('viewer').dataset, {
    mode: state.mode,
    moving: shownMoving(),
    position: state.position.join(' '),
    overlay: state.overlay,
    outlines: state.outlines,
    zoom: state.zoom.toFixed(2),
    windows: [...state.windows.fixed, ...state.windows.moving].map(Math.round).join(' '),
    ready: 'yes',
  });
}

// ---------------------------------------------------------------------------------------- input

function step(axis, by) {
  state.position[axis] = clamped(state.position[axis] + by, size[axis]);
  keepInSight(axis);
  draw();
}

// Where the view is zoomed, it follows the crosshair.
function keepInSight(axis) {
  if (state.zoom <= 1) return;
  const half = size[axis] / 2 / state.zoom;
  const off = state.position[axis] - state.center[axis];
  if (Math.abs(off) > half) state.center[axis] += off - Math.sign(off) * half * 0.8;
}

function zoomBy(factor, view, x, y) {
  const zoom = Math.max(1, Math.min(16, state.zoom * factor));
  if (view) {
    const { plane } = view;
    const from = projection(view);
    const [across, down] = [from.across(x), from.down(y)];
    state.zoom = zoom;
    const to = projection(view);
    state.center[plane.across] += across - to.across(x);
    state.center[plane.down] += down - to.down(y);
  }
  state.zoom = zoom;
  if (zoom === 1) state.center = size.map((n) => (n - 1) / 2);
  draw();
}

function moveWindow(kindsMoved, from, level, width) {
  for (const kind of kindsMoved) {
    const [low, high] = from[kind];
    const middle = (low + high) / 2 + level;
    const half = Math.max(2, (high - low) / 2 + width);
    state.windows[kind] = [middle - half, middle + half];
  }
  updateWindows();
  draw();
}

function windowKinds(view) {
  if (view.kind === 'fixed') return ['fixed'];
  return view.kind === 'before' || view.kind === 'after' ? ['moving'] : ['fixed', 'moving'];
}

function resetView() {
  state.zoom = 1;
  state.center = size.map((n) => (n - 1) / 2);
  state.windows = structuredClone(meta.windows);
  if (!state.windows.fixed) state.windows.fixed = [0, 255];
  updateWindows();
  draw();
}

function pointTo(view, x, y) {
  const { plane } = view;
  const to = projection(view);
  state.position[plane.across] = clamped(to.across(x), size[plane.across]);
  state.position[plane.down] = clamped(to.down(y), size[plane.down]);
  draw();
}

function placeIn(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

function listen(canvas) {
  const fingers = new Map();
  let drag = null;
  canvas.addEventListener('pointerdown', (event) => {
    const at = placeIn(canvas, event);
    canvas.setPointerCapture(event.pointerId);
    canvas.focus({ preventScroll: true });
    fingers.set(event.pointerId, at);
    const swiping = state.mode === 'swipe' && Math.abs(at[0] - canvas.view.width * state.share) < 14;
    drag = { at, button: event.button, swiping, windows: structuredClone(state.windows) };
    if (event.button === 0) dragTo(canvas.view, drag, at);
    event.preventDefault();
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!drag) return;
    const at = placeIn(canvas, event);
    if (fingers.size === 2) pinch(canvas.view, fingers, event.pointerId, at);
    else dragTo(canvas.view, drag, at);
    fingers.set(event.pointerId, at);
  });
  const end = (event) => {
    fingers.delete(event.pointerId);
    if (!fingers.size) drag = null;
  };
  canvas.addEventListener('pointerup', end);
  canvas.addEventListener('pointercancel', end);
  canvas.addEventListener('contextmenu', (event) => event.preventDefault());
  canvas.addEventListener('dblclick', resetView);
  canvas.addEventListener('wheel', (event) => onWheel(canvas, event), { passive: false });
  canvas.addEventListener('keydown', (event) => onViewKey(canvas.view, event));
}

function dragTo(view, drag, at) {
  const [dx, dy] = [at[0] - drag.at[0], at[1] - drag.at[1]];
  if (drag.button === 2) {
    moveWindow(windowKinds(view), drag.windows, dy * 0.6, dx * 0.6);
  } else if (drag.button === 1) {
    pan(view, dx, dy);
    drag.at = at;
  } else if (drag.swiping) {
    setShare(at[0] / view.width);
  } else {
    pointTo(view, ...at);
  }
}

function pan(view, dx, dy) {
  const to = projection(view);
  state.center[view.plane.across] -= dx / to.fx;
  state.center[view.plane.down] -= dy / to.fy;
  draw();
}

function pinch(view, fingers, moved, at) {
  const other = [...fingers].find(([id]) => id !== moved)[1];
  const before = fingers.get(moved);
  const distance = (p) => Math.max(10, Math.hypot(p[0] - other[0], p[1] - other[1]));
  pan(view, (at[0] - before[0]) / 2, (at[1] - before[1]) / 2);
  zoomBy(distance(at) / distance(before), view, (at[0] + other[0]) / 2, (at[1] + other[1]) / 2);
}

let rolled = 0;
function onWheel(canvas, event) {
  event.preventDefault();
  const way = event.deltaMode ? event.deltaY * 40 : event.deltaY;
  if (event.ctrlKey || event.metaKey) {
    zoomBy(Math.exp(-Math.max(-60, Math.min(60, way)) / 300), canvas.view, ...placeIn(canvas, event));
    return;
  }
  rolled += way; // a touchpad sends many small ones
  if (Math.abs(rolled) < 40) return;
  step(canvas.view.plane.through, rolled < 0 ? 1 : -1);
  rolled = 0;
}

function onViewKey(view, event) {
  const { plane } = view;
  const down = plane.flip ? -1 : 1;
  const moves = {
    ArrowLeft: [plane.across, -1],
    ArrowRight: [plane.across, 1],
    ArrowUp: [plane.down, -down],
    ArrowDown: [plane.down, down],
    PageUp: [plane.through, 1],
    PageDown: [plane.through, -1],
  };
  if (!moves[event.key]) return;
  step(...moves[event.key]);
  event.preventDefault();
}

function onKey(event) {
  if (event.target.matches('input, select') || event.altKey || event.ctrlKey || event.metaKey) return;
  const both = ['fixed', 'moving'];
  const shift = (level, width) => moveWindow(both, structuredClone(state.windows), level, width);
  const actions = {
    o: () => choose('outlines', state.outlines === 'none' ? preferredOutlines() : 'none'),
    f: () => chooseNext('overlay'),
    p: () => chooseNext('plane'),
    c: () => {
      state.cross = !state.cross;
      draw();
    },
    '+': () => zoomBy(1.25),
    '-': () => zoomBy(0.8),
    0: resetView,
    '[': () => shift(-8, 0),
    ']': () => shift(8, 0),
    '{': () => shift(0, -8),
    '}': () => shift(0, 8),
  };
  const mode = availableModes()[Number(event.key) - 1];
  if (event.key === ' ' && !event.target.matches('button, summary')) toggleMoving();
  else if (mode) setMode(mode);
  else if (actions[event.key]) actions[event.key]();
  else return;
  event.preventDefault();
}

// ------------------------------------------------------------------------------------- controls

function availableModes() {
  if (!volumes.fixed || !volumes.before) return ['overview'];
  return Object.keys(MODES).filter((mode) => mode !== 'difference' || meta.same);
}

function setMode(mode) {
  state.mode = mode;
  for (const button of $('modes').children) button.setAttribute('aria-pressed', button.dataset.mode === mode);
  $('share-box').hidden = mode !== 'swipe' && mode !== 'blend';
  layOut();
}

function toggleMoving() {
  state.after = !state.after;
  showMovingButton();
  draw();
}

function showMovingButton() {
  $('when').textContent = state.after ? 'after' : 'before';
  $('when').setAttribute('aria-pressed', !state.after);
  $('when').setAttribute('aria-label', `moving image: ${state.after ? 'after' : 'before'}`);
}

function setShare(share) {
  state.share = Math.max(0, Math.min(1, share));
  $('share').value = Math.round(100 * state.share);
  draw();
}

function choose(name, value) {
  state[name] = value;
  $(name).value = value;
  showLegend();
  if (name === 'plane') layOut();
  else draw();
}

function chooseNext(name) {
  const values = [...$(name).options].map((option) => option.value);
  choose(name, values[(values.indexOf(state[name]) + 1) % values.length]);
}

const preferredOutlines = () =>
  state.lastOutlines && state.lastOutlines !== 'none' ? state.lastOutlines : 'all';

function jump(to) {
  state.position = to.at.slice();
  [0, 1, 2].forEach(keepInSight);
  state.after = true;
  showMovingButton();
  if (to.label) choose('outlines', String(to.label));
  choose('overlay', to.overlay || (to.label ? 'none' : state.overlay));
}

function showLegend() {
  const [, said] = OVERLAYS[state.overlay];
  const scale = meta.maps[state.overlay];
  $('legend').hidden = !said;
  $('legend-said').textContent = said;
  for (const id of ['legend-low', 'legend-bar', 'legend-high']) $(id).hidden = !scale;
  if (!scale) return;
  const volume = state.overlay === 'jacobian';
  $('legend-low').textContent = volume ? `\u00d7${Math.exp(-scale.shown).toFixed(2)}` : '0';
  $('legend-high').textContent = volume
    ? `\u00d7${Math.exp(scale.shown).toFixed(2)}`
    : `${scale.shown.toFixed(1)} mm`;
  const context = $('legend-bar').getContext('2d');
  for (let x = 0; x < 220; x++) {
    const [r, g, b, alpha] = volume ? jacobianColor(x / 109.5 - 1) : heatColor(x / 219);
    context.fillStyle = volume
      ? `rgb(${mix([90, 90, 90], [r, g, b], alpha / 175).join(' ')})`
      : `rgb(${r} ${g} ${b})`;
    context.fillRect(x, 0, 1, 10);
  }
}

function fillSelects() {
  const option = (value, text) => element('option', text, { value });
  const worstFirst = meta.labels.slice().sort((a, b) => (a.dice ?? 2) - (b.dice ?? 2));
  $('outlines').append(
    option('none', 'none'),
    option('all', 'all'),
    ...worstFirst.map((l) =>
      option(l.number, l.dice === null ? l.name : `${l.name} (Dice ${l.dice.toFixed(2)})`),
    ),
  );
  $('outlines-box').hidden = !meta.labels.length;
  for (const [name, [said]] of Object.entries(OVERLAYS)) {
    const exists = meta.maps[name] || ['none', 'grid', 'arrows'].includes(name);
    if (exists) $('overlay').append(option(name, said));
  }
}

function fillBars() {
  availableModes().forEach((mode, i) => {
    const button = element('button', '', { type: 'button', 'data-mode': mode });
    button.append(element('kbd', i + 1), MODES[mode]);
    button.addEventListener('click', () => setMode(mode));
    $('modes').append(button);
  });
  for (const to of meta.jumps) {
    const button = element('button', to.text, { type: 'button', title: to.tip });
    button.addEventListener('click', () => jump(to));
    $('jumps').append(button);
  }
  $('when').hidden = !volumes.before;
  $('when').addEventListener('click', toggleMoving);
  $('reset').addEventListener('click', resetView);
  $('share').addEventListener('input', (event) => setShare(event.target.value / 100));
  $('plane').value = state.plane;
  for (const name of ['outlines', 'overlay', 'plane']) {
    $(name).addEventListener('change', (event) => choose(name, event.target.value));
  }
  $('outlines').addEventListener('change', () => {
    state.lastOutlines = state.outlines;
  });
}

function remark() {
  const said = [meta.said];
  if (volumes.before) {
    const { data } = volumes.before;
    said.push(
      data.every((v) => v === data[0])
        ? '\u201cbefore\u201d is empty: by the headers the moving image lies outside this field of view'
        : '\u201cbefore\u201d is cut to the fixed image\u2019s field of view',
    );
  }
  said.push('values are read from 8 bits');
  $('remarks').textContent = `${said.filter(Boolean).join('; ')}.`;
}

async function start() {
  if (!('DecompressionStream' in window)) return; // an old browser keeps the picture
  for (const entry of meta.volumes) volumes[entry.id] = await load(entry, size);
  fillSelects();
  fillBars();
  remark();
  showMovingButton();
  if (meta.labels.length && meta.labels.length <= 12) state.outlines = 'all';
  $('outlines').value = state.outlines;
  state.position = meta.jumps[0].at.slice();
  resetView();
  $('viewer').hidden = false;
  $('still').hidden = true;
  setMode('overview');
  addEventListener('resize', layOut);
  document.addEventListener('keydown', onKey);
}

start();
