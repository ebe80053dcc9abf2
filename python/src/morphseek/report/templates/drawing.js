// Drawing one view: the images, mixed as is asked for, and what lies over them.
// It stands in one function with viewer.js, whose state it reads.

// -------------------------------------------------------------------------------------- colours

const opaque = (r, g, b, alpha = 255) => ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
const mix = (a, b, share) => a.map((v, i) => v + (b[i] - v) * share);
const grey = { fixed: new Uint8Array(256), moving: new Uint8Array(256) };
const DIVERGING = [
  [60, 150, 230],
  [90, 90, 90],
  [245, 150, 40],
];
const HEAT = [
  [20, 11, 70],
  [120, 28, 109],
  [200, 64, 70],
  [246, 140, 20],
  [252, 250, 160],
];
const FOLD = opaque(255, 43, 214, 235);

const differences = Uint32Array.from({ length: 256 }, (_, i) => {
  const strength = Math.min(1, Math.abs(i - 128) / 90);
  return opaque(...mix(DIVERGING[1], DIVERGING[i < 128 ? 0 : 2], strength).map(Math.round));
});

function updateWindows() {
  for (const kind of ['fixed', 'moving']) {
    const [low, high] = state.windows[kind];
    for (let i = 0; i < 256; i++) {
      grey[kind][i] = Math.max(0, Math.min(255, (255 * (i - low)) / Math.max(1, high - low)));
    }
  }
}

function heatColor(share) {
  const place = Math.max(0, Math.min(1, share)) * (HEAT.length - 1);
  const low = Math.min(HEAT.length - 2, Math.floor(place));
  return mix(HEAT[low], HEAT[low + 1], place - low).map(Math.round);
}

function jacobianColor(share) {
  const strength = Math.min(1, Math.abs(share));
  return [...DIVERGING[share < 0 ? 0 : 2], Math.round(175 * strength)];
}

const overlayColors = {};
function colorsOf(name) {
  if (!overlayColors[name]) {
    const { most, shown } = meta.maps[name];
    overlayColors[name] = Uint32Array.from({ length: 256 }, (_, i) => {
      if (name === 'jacobian') return i ? opaque(...jacobianColor((((i - 128) / 127) * most) / shown)) : FOLD;
      const share = ((i / 255) * most) / shown;
      return opaque(...heatColor(share), Math.round(70 + 120 * Math.min(1, share)));
    });
  }
  return overlayColors[name];
}

// --------------------------------------------------------------------------------------- pixels

const buffers = new Map();
function buffer(plane, use) {
  const key = plane.name + use;
  if (!buffers.has(key)) {
    const canvas = document.createElement('canvas');
    canvas.width = plane.width;
    canvas.height = plane.height;
    const context = canvas.getContext('2d');
    const image = context.createImageData(plane.width, plane.height);
    buffers.set(key, { canvas, context, image, pixels: new Uint32Array(image.data.buffer) });
  }
  return buffers.get(key);
}

function painted(plane, use, paint) {
  const target = buffer(plane, use);
  paint(target.pixels);
  target.context.putImageData(target.image, 0, 0);
  return target.canvas;
}

const kindOf = (name) => (name === 'fixed' ? 'fixed' : 'moving');
const shownMoving = () => (state.after || !volumes.before ? 'after' : 'before');

function plain(name, plane, k) {
  return painted(plane, name, (pixels) => {
    const data = slice(name, plane, k);
    const shades = grey[kindOf(name)];
    for (let i = 0; i < pixels.length; i++) pixels[i] = 0xff000000 | (shades[data[i]] * 0x10101);
  });
}

// Paints a pixel from the shades of the fixed and the moving image there.
function combined(plane, k, pixel) {
  return painted(plane, 'combined', (pixels) => {
    const fixed = slice('fixed', plane, k);
    const moving = slice(shownMoving(), plane, k);
    for (let i = 0; i < pixels.length; i++)
      pixels[i] = pixel(grey.fixed[fixed[i]], grey.moving[moving[i]], i);
  });
}

const painters = {
  blend: (plane, k) =>
    combined(plane, k, (f, m) => 0xff000000 | (Math.round(f + (m - f) * state.share) * 0x10101)),
  checker(plane, k) {
    const side = Math.max(...plane.mm) / 8;
    const columns = side / spacing[plane.across];
    const rows = side / spacing[plane.down];
    return combined(plane, k, (f, m, i) => {
      const odd = (Math.floor((i % plane.width) / columns) + Math.floor(i / plane.width / rows)) & 1;
      return 0xff000000 | ((odd ? m : f) * 0x10101);
    });
  },
  difference: (plane, k) => combined(plane, k, (f, m) => differences[128 + ((m - f) >> 1)]),
  colours: (plane, k) => combined(plane, k, (f, m) => opaque(m, (f + m) >> 1, f)),
  edges(plane, k) {
    const { width } = plane;
    const shades = Int16Array.from(slice(shownMoving(), plane, k), (v) => grey.moving[v]);
    const last = shades.length - 1;
    return combined(plane, k, (f, _, i) => {
      const across = shades[Math.min(last, i + 1)] - shades[Math.max(0, i - 1)];
      const down = shades[Math.min(last, i + width)] - shades[Math.max(0, i - width)];
      const strength = Math.max(0, Math.min(1, (Math.abs(across) + Math.abs(down) - 30) / 90));
      return opaque(f + (240 - f) * strength, f + (169 - f) * strength, f + (74 - f) * strength);
    });
  },
};

function overlayPicture(plane, k) {
  const colors = colorsOf(state.overlay);
  return painted(plane, 'overlay', (pixels) => {
    const data = slice(state.overlay, plane, k);
    for (let i = 0; i < pixels.length; i++) pixels[i] = colors[data[i]];
  });
}

// ---------------------------------------------------------------------------------- coordinates

// From the page's voxels along an axis to the view's pixels, and back.
function projection(view) {
  const { plane } = view;
  const fx = spacing[plane.across] * view.scale * state.zoom;
  const fy = spacing[plane.down] * view.scale * state.zoom * (plane.flip ? -1 : 1);
  const [cx, cy] = [state.center[plane.across], state.center[plane.down]];
  return {
    fx,
    fy,
    x: (voxel) => view.width / 2 + (voxel - cx) * fx,
    y: (voxel) => view.height / 2 + (voxel - cy) * fy,
    across: (x) => cx + (x - view.width / 2) / fx,
    down: (y) => cy + (y - view.height / 2) / fy,
  };
}

const times = (matrix, [x, y, z]) => matrix.map((row) => row[0] * x + row[1] * y + row[2] * z + row[3]);
const clamped = (value, count) => Math.max(0, Math.min(count - 1, Math.round(value)));

function place(view, picture) {
  const { plane, context } = view;
  const to = projection(view);
  const left = to.x(-0.5);
  const top = plane.flip ? to.y(plane.height - 0.5) : to.y(-0.5);
  context.drawImage(picture, left, top, plane.width * to.fx, plane.height * Math.abs(to.fy));
}

// -------------------------------------------------------------------------------------- drawing

const kindShown = (view) => (view.kind === 'after' && state.mode !== 'rows' ? shownMoving() : view.kind);

function drawView(view) {
  const { context, plane } = view;
  const k = state.position[plane.through];
  const kind = kindShown(view);
  context.setTransform(view.ratio, 0, 0, view.ratio, 0, 0);
  context.fillStyle = '#000';
  context.fillRect(0, 0, view.width, view.height);
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = 'high';
  if (kind === 'swipe') drawSwipe(view, k);
  else place(view, painters[kind] ? painters[kind](plane, k) : plain(kind, plane, k));
  const moved = kind !== 'fixed' && (painters[kind] || kind === 'swipe' ? shownMoving() : kind) === 'after';
  if (meta.maps[state.overlay] && moved) place(view, overlayPicture(plane, k));
  drawOutlines(view, k, kind);
  if ((state.overlay === 'grid' || state.overlay === 'arrows') && moved) drawField(view, k);
  drawLandmarks(view, k, moved ? 'after' : kind === 'fixed' ? 'fixed' : 'before');
  drawFurniture(view, k, kind);
}

function drawSwipe(view, k) {
  const { context } = view;
  const at = view.width * state.share;
  place(view, plain('fixed', view.plane, k));
  context.save();
  context.beginPath();
  context.rect(at, 0, view.width, view.height);
  context.clip();
  context.fillRect(at, 0, view.width, view.height);
  place(view, plain(shownMoving(), view.plane, k));
  context.restore();
  context.fillStyle = '#fff';
  context.fillRect(at - 0.75, 0, 1.5, view.height);
}

function drawOutlines(view, k, kind) {
  if (state.outlines === 'none' || !volumes['labels-fixed']) return;
  const colorful = kind === 'difference' || kind === 'colours';
  outline(view, 'labels-fixed', k, colorful ? '#fff' : COLORS.fixed);
  if (kind === 'fixed') return;
  const when = kind === 'before' || kind === 'after' ? kind : shownMoving();
  outline(view, `labels-${when}`, k, colorful ? '#8dff8a' : COLORS.moving);
}

// Joins the middles of the sides where labels change, square by square of four voxels.
function outline(view, name, k, color) {
  const { context, plane } = view;
  const chosen = state.outlines === 'all' ? 0 : Number(state.outlines);
  const labels = chosen ? slice(name, plane, k).map((v) => (v === chosen ? 1 : 0)) : slice(name, plane, k);
  const to = projection(view);
  const top = plane.flip ? to.y(plane.height - 1) : to.y(0);
  const [left, fx, fy] = [to.x(0), to.fx, Math.abs(to.fy)];
  context.strokeStyle = color;
  context.lineWidth = 1.4;
  context.beginPath();
  const w = plane.width;
  for (let r = 0; r + 1 < plane.height; r++) {
    for (let c = 0, i = r * w; c + 1 < w; c++, i++) {
      const [a, b, d, e] = [labels[i], labels[i + 1], labels[i + w], labels[i + w + 1]];
      if (a === b && a === d && a === e) continue;
      const ends = [];
      if (a !== b) ends.push([c + 0.5, r]);
      if (a !== d) ends.push([c, r + 0.5]);
      if (b !== e) ends.push([c + 1, r + 0.5]);
      if (d !== e) ends.push([c + 0.5, r + 1]);
      const start = ends.length === 2 ? ends.pop() : [c + 0.5, r + 0.5];
      for (const end of ends) {
        context.moveTo(left + start[0] * fx, top + start[1] * fy);
        context.lineTo(left + end[0] * fx, top + end[1] * fy);
      }
    }
  }
  context.stroke();
}

function fieldReader() {
  const { size: n, step, start, mm } = meta.field;
  const data = new Int8Array(volumes.field.data.buffer);
  const count = n[0] * n[1] * n[2];
  const nodeOf = (voxel, axis) => Math.max(0, Math.min(n[axis] - 1, Math.floor(voxel / step[axis])));
  return {
    n,
    nodeOf,
    voxelOf: (node, axis) => Math.min(size[axis] - 1, start[axis] + node * step[axis]),
    at: (node, axis) => data[axis * count + (node[2] * n[1] + node[1]) * n[0] + node[0]] * mm,
  };
}

function drawField(view, k) {
  const { context, plane } = view;
  const field = fieldReader();
  const to = projection(view);
  const pixel = view.scale * state.zoom;
  const node = [0, 0, 0];
  node[plane.through] = field.nodeOf(k, plane.through);
  const ends = (a, b) => {
    node[plane.across] = a;
    node[plane.down] = b;
    const x = to.x(field.voxelOf(a, plane.across));
    const y = to.y(field.voxelOf(b, plane.down));
    const sign = plane.flip ? -1 : 1;
    return [x, y, x + field.at(node, plane.across) * pixel, y + sign * field.at(node, plane.down) * pixel];
  };
  context.beginPath();
  const counts = [field.n[plane.across], field.n[plane.down]];
  if (state.overlay === 'grid') gridPath(context, counts, ends);
  else arrowPath(context, counts, ends);
  context.strokeStyle = state.overlay === 'grid' ? COLORS.fixed : '#ffe08a';
  context.lineWidth = state.overlay === 'grid' ? 0.9 : 1.2;
  context.stroke();
}

function gridPath(context, [columns, rows], ends) {
  const line = (first, a, b) => {
    const [, , x, y] = ends(a, b);
    if (first) context.moveTo(x, y);
    else context.lineTo(x, y);
  };
  for (let b = 0; b < rows; b++) for (let a = 0; a < columns; a++) line(a === 0, a, b);
  for (let a = 0; a < columns; a++) for (let b = 0; b < rows; b++) line(b === 0, a, b);
}

function arrowPath(context, [columns, rows], ends) {
  for (let b = 0; b < rows; b++) {
    for (let a = 0; a < columns; a++) {
      const [x, y, ex, ey] = ends(a, b);
      const length = Math.hypot(ex - x, ey - y);
      if (length < 1.5) continue;
      const head = Math.min(5, length * 0.4);
      const [ux, uy] = [((ex - x) / length) * head, ((ey - y) / length) * head];
      context.moveTo(x, y);
      context.lineTo(ex, ey);
      context.moveTo(ex - ux - uy / 2, ey - uy + ux / 2);
      context.lineTo(ex, ey);
      context.lineTo(ex - ux + uy / 2, ey - uy - ux / 2);
    }
  }
}

function drawLandmarks(view, k, when) {
  const { context, plane } = view;
  const to = projection(view);
  const thick = Math.max(0.5, 2 / spacing[plane.through]);
  for (const mark of meta.landmarks) {
    const moving = mark[when];
    const near = (point) => Math.abs(point[plane.through] - k) <= thick;
    if (!near(mark.fixed) && !near(moving)) continue;
    const [fx, fy] = [to.x(mark.fixed[plane.across]), to.y(mark.fixed[plane.down])];
    drawMark(context, fx, fy, COLORS.fixed, 'circle');
    if (when === 'fixed') continue;
    const [mx, my] = [to.x(moving[plane.across]), to.y(moving[plane.down])];
    drawMark(context, mx, my, COLORS.moving, 'square');
    context.strokeStyle = COLORS.moving;
    context.beginPath();
    context.moveTo(fx, fy);
    context.lineTo(mx, my);
    context.stroke();
    const error = when === 'after' ? mark.mmAfter : mark.mmBefore;
    write(context, `${mark.name}: ${error.toFixed(1)} mm`, fx + 8, fy - 8, 'left', '#fff');
  }
}

function drawMark(context, x, y, color, shape) {
  context.strokeStyle = color;
  context.lineWidth = 1.6;
  context.beginPath();
  if (shape === 'circle') context.arc(x, y, 5, 0, 7);
  else context.rect(x - 4, y - 4, 8, 8);
  context.stroke();
}

function write(context, text, x, y, align, color, font = '12px system-ui, sans-serif') {
  context.font = font;
  context.textAlign = align;
  context.textBaseline = 'middle';
  context.lineJoin = 'round';
  context.lineWidth = 3;
  context.strokeStyle = 'rgba(0,0,0,.75)';
  context.strokeText(text, x, y);
  context.fillStyle = color;
  context.fillText(text, x, y);
}

function drawFurniture(view, k, kind) {
  const { context, plane, width, height } = view;
  if (state.cross) drawCross(view);
  const bold = 'bold 13px system-ui, sans-serif';
  const [left, right, top, bottom] = plane.letters;
  write(context, left, 6, height / 2, 'left', COLORS.letter, bold);
  write(context, right, width - 6, height / 2, 'right', COLORS.letter, bold);
  write(context, top, width / 2, 26, 'center', COLORS.letter, bold);
  write(context, bottom, width / 2, height - 12, 'center', COLORS.letter, bold);
  const oblique = meta.tilt >= 1 && width > 230 ? ` \u00b7 oblique ${Math.round(meta.tilt)}\u00b0` : '';
  const title = `${nameOf(kind)} \u00b7 ${plane.name} ${k + 1}/${size[plane.through]}${oblique}`;
  write(context, title, 5, 11, 'left', '#eee');
  drawScaleBar(view);
  view.canvas.setAttribute('aria-label', `${nameOf(kind)}, ${plane.name}`);
  view.canvas.setAttribute('aria-valuenow', k + 1);
  view.canvas.setAttribute('aria-valuetext', `slice ${k + 1} of ${size[plane.through]}`);
}

function nameOf(kind) {
  if (kind === 'after' || kind === 'before' || kind === 'fixed') return kind;
  return `${MODES[kind]}, ${shownMoving()}`;
}

function drawCross(view) {
  const { context, plane } = view;
  const to = projection(view);
  const x = to.x(state.position[plane.across]);
  const y = to.y(state.position[plane.down]);
  const gap = 8;
  context.strokeStyle = COLORS.cross;
  context.lineWidth = 1;
  context.beginPath();
  for (const [x0, y0, x1, y1] of [
    [0, y, x - gap, y],
    [x + gap, y, view.width, y],
    [x, 0, x, y - gap],
    [x, y + gap, x, view.height],
  ]) {
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
  }
  context.stroke();
}

function drawScaleBar(view) {
  const { context, width, height } = view;
  const pixel = view.scale * state.zoom;
  const length = [100, 50, 20, 10, 5, 2, 1].find((mm) => mm * pixel < width / 4) || 1;
  context.fillStyle = '#eee';
  context.fillRect(width - 8 - length * pixel, height - 8, length * pixel, 2);
  write(context, `${length} mm`, width - 8, height - 17, 'right', '#eee', '11px system-ui, sans-serif');
}
