// Sorting and filtering the index of pairs; without it, the table stands as it was written.
const table = document.getElementById('pairs');
const body = table.tBodies[0];
const rows = [...body.rows];
const heads = [...table.tHead.rows[0].cells];
const find = document.getElementById('find');
const grade = document.getElementById('grade');

function keyOf(row, column, kind) {
  const cell = row.cells[column];
  if (kind === 'text') return cell.textContent.toLowerCase();
  return cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
}

function compare(a, b) {
  if (typeof a === 'string') return a.localeCompare(b, undefined, { numeric: true });
  return a - b;
}

// What has no value is last, whichever way the others go.
function sortBy(head) {
  const way = head.getAttribute('aria-sort') === 'ascending' ? 'descending' : 'ascending';
  for (const other of heads) other.removeAttribute('aria-sort');
  head.setAttribute('aria-sort', way);
  const sign = way === 'ascending' ? 1 : -1;
  const keyed = rows.map((row) => [keyOf(row, head.cellIndex, head.dataset.kind), row]);
  keyed.sort(([a], [b]) => {
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return sign * compare(a, b);
  });
  body.replaceChildren(...keyed.map(([, row]) => row));
}

function filter() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !(
      words.every((word) => text.includes(word)) &&
      (!grade.value || row.dataset.grade === grade.value || grade.value in row.dataset)
    );
    shown += !row.hidden;
  }
  document.getElementById('shown').textContent = `${shown} of ${rows.length} pairs`;
}

for (const head of heads) {
  if (head.dataset.kind) head.firstChild.addEventListener('click', () => sortBy(head));
}
find.addEventListener('input', filter);
grade.addEventListener('change', filter);
document.getElementById('search').hidden = false;
filter();
