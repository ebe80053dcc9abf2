// Volumes: from the text in the page to bytes, and slices of them.

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

async function inflated(element) {
  const packed = new Blob([bytesOf(element.textContent)]);
  const stream = packed.stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function undoDifferences(data, width, bits) {
  for (let row = 0; row < data.length; row += width) {
    for (let i = row + 1; i < row + width; i++) data[i] += data[i - 1];
  }
  if (bits === 7) for (let i = 0; i < data.length; i++) data[i] = (data[i] << 1) | (data[i] >> 6);
}

// Doubles a volume along one axis, linearly: every second voxel lies between two of the old ones.
function doubled(volume, axis, size) {
  const from = volume.size;
  const to = from.slice();
  to[axis] = size[axis];
  const stride = [1, from[0], from[0] * from[1]];
  const out = new Uint8Array(to[0] * to[1] * to[2]);
  const index = [0, 0, 0];
  let o = 0;
  for (index[2] = 0; index[2] < to[2]; index[2]++) {
    for (index[1] = 0; index[1] < to[1]; index[1]++) {
      for (index[0] = 0; index[0] < to[0]; index[0]++) {
        const there = index[axis];
        const half = there >> 1;
        const other = Math.max(0, Math.min(from[axis] - 1, half + (there & 1 ? 1 : -1)));
        let base = 0;
        for (let a = 0; a < 3; a++) if (a !== axis) base += index[a] * stride[a];
        const s = stride[axis];
        out[o++] = (3 * volume.data[base + half * s] + volume.data[base + other * s] + 2) >> 2;
      }
    }
  }
  return { ...volume, size: to, data: out };
}

async function load(entry, size) {
  const element = document.getElementById(`volume-${entry.id}`);
  const data = await inflated(element);
  element.remove(); // its text is no longer needed
  undoDifferences(data, entry.size[0], entry.bits);
  let volume = { ...entry, data };
  if (entry.linear) {
    entry.halves.forEach((half, axis) => {
      if (half === 2) volume = doubled(volume, axis, size);
    });
    volume.halves = [1, 1, 1];
  }
  volume.slices = new Map();
  volume.offsets = [0, 1, 2].map((axis) => offsetsAlong(volume, axis, size));
  return volume;
}

// For every voxel of the page along an axis, the offset of the volume's voxel there.
function offsetsAlong(volume, axis, size) {
  const stride = [1, volume.size[0], volume.size[0] * volume.size[1]][axis];
  return Int32Array.from(
    { length: size[axis] },
    (_, i) => stride * Math.min(volume.size[axis] - 1, Math.floor(i / volume.halves[axis])),
  );
}

function valueAt(volume, [x, y, z]) {
  const [ox, oy, oz] = volume.offsets;
  return volume.data[ox[x] + oy[y] + oz[z]];
}

// The volume's slice k of a plane, row by row as it is shown.
function sliceOf(volume, plane, k) {
  const kept = volume.slices.get(plane.name);
  if (kept && kept.k === k) return kept.data;
  const data = kept ? kept.data : new Uint8Array(plane.width * plane.height);
  const columns = volume.offsets[plane.across];
  const rows = volume.offsets[plane.down];
  const base = volume.offsets[plane.through][k];
  for (let r = 0, o = 0; r < plane.height; r++) {
    const row = base + rows[plane.flip ? plane.height - 1 - r : r];
    for (let c = 0; c < plane.width; c++) data[o++] = volume.data[row + columns[c]];
  }
  volume.slices.set(plane.name, { k, data });
  return data;
}
