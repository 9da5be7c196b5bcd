"use strict";

const UNITS = 10000; // a weight of 1 is this number

// The weights of one kind, [layers, heads, rows, columns], from base64 of 16-bit numbers, the lowest byte first.
function readWeights(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, place) => view.getUint16(2 * place, true) / UNITS);
}

// The weights of one head, [rows * columns]; of all heads on average where `head` is the number of heads.
function weightsOf(kind, layer, head) {
  const size = kind.rows.length * kind.columns.length;
  const start = layer * kind.heads * size;
  if (head < kind.heads) return kind.weights.subarray(start + head * size, start + (head + 1) * size);
  const mean = new Float32Array(size);
  for (let each = 0; each < kind.heads; each++)
    for (let place = 0; place < size; place++) mean[place] += kind.weights[start + each * size + place] / kind.heads;
  return mean;
}

// How much of the colour a cell has. The square root: among many pieces most weights are small.
const strength = (weight) => Math.sqrt(weight);

function start(kinds) {
  const element = (name) => document.getElementById(name);
  const matrix = element("matrix");
  const context = matrix.getContext("2d");
  const chosen = { kind: 0, layer: 0, head: 0, cell: null };
  let weights, box; // of what is drawn: the weights, and where its cells are

  const kindOf = () => kinds[chosen.kind];
  const headName = (head) => (head < kindOf().heads ? `head ${head}` : "mean of all heads");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function button(parent, content, press) {
    const made = document.createElement("button");
    made.type = "button";
    made.append(content);
    made.addEventListener("click", press);
    parent.append(made);
    return made;
  }

  function text(parent, words) {
    const made = document.createElement("span");
    made.textContent = words;
    parent.append(made);
  }

  function thumbnail(values, rows, columns) {
    const made = document.createElement("canvas");
    made.width = columns;
    made.height = rows;
    const small = made.getContext("2d");
    small.fillStyle = colour("--bar");
    values.forEach((weight, place) => {
      small.globalAlpha = strength(weight);
      small.fillRect(place % columns, Math.floor(place / columns), 1, 1);
    });
    return made;
  }

  function showHeads() {
    const kind = kindOf();
    const grid = element("heads");
    grid.replaceChildren();
    grid.style.gridTemplateColumns = `repeat(${kind.heads + 2}, max-content)`;
    text(grid, "");
    for (let head = 0; head <= kind.heads; head++) text(grid, head < kind.heads ? `head ${head}` : "mean");
    for (let layer = 0; layer < kind.layers; layer++) {
      text(grid, `layer ${layer}`);
      for (let head = 0; head <= kind.heads; head++) {
        const values = weightsOf(kind, layer, head);
        const made = button(grid, thumbnail(values, kind.rows.length, kind.columns.length), () => choose({ layer, head }));
        made.setAttribute("aria-label", `layer ${layer}, ${headName(head)}`);
        made.dataset.place = `${layer} ${head}`;
      }
    }
  }

  function draw() {
    const { rows, columns } = kindOf();
    const cell = Math.max(3, Math.min(30, Math.floor(1000 / Math.max(rows.length, columns.length))));
    const labelled = cell >= 8;
    const font = `${Math.min(13, cell - 1)}px system-ui, sans-serif`;
    context.font = font;
    const widest = (pieces) => (labelled ? Math.ceil(Math.max(...pieces.map((piece) => context.measureText(piece).width))) + 8 : 2);
    box = { left: widest(rows), top: widest(columns), cell };
    const width = box.left + cell * columns.length + 1;
    const height = box.top + cell * rows.length + 1;
    const scale = Math.max(width, height) * devicePixelRatio > 8000 ? 1 : devicePixelRatio;
    matrix.width = width * scale;
    matrix.height = height * scale;
    matrix.style.width = `${width}px`;
    matrix.style.height = `${height}px`;
    context.scale(scale, scale);
    context.fillStyle = colour("--bar");
    weights.forEach((weight, place) => {
      context.globalAlpha = strength(weight);
      context.fillRect(box.left + cell * (place % columns.length), box.top + cell * Math.floor(place / columns.length), cell, cell);
    });
    context.globalAlpha = 1;
    context.strokeStyle = colour("--line");
    context.strokeRect(box.left, box.top, cell * columns.length, cell * rows.length);
    if (chosen.cell) {
      context.strokeStyle = colour("--mark");
      context.lineWidth = 2;
      context.strokeRect(box.left + cell * chosen.cell.column, box.top + cell * chosen.cell.row, cell, cell);
    }
    if (!labelled) return;
    context.font = font;
    context.textBaseline = "middle";
    rows.forEach((piece, row) => {
      context.fillStyle = colour(chosen.cell?.row === row ? "--mark" : "--ink");
      context.textAlign = "right";
      context.fillText(piece, box.left - 4, box.top + cell * (row + 0.5));
    });
    columns.forEach((piece, column) => {
      context.save();
      context.translate(box.left + cell * (column + 0.5), box.top - 4);
      context.rotate(-Math.PI / 2);
      context.fillStyle = colour(chosen.cell?.column === column ? "--mark" : "--ink");
      context.textAlign = "left";
      context.fillText(piece, 0, 0);
      context.restore();
    });
  }

  function say() {
    const kind = kindOf();
    const place = `layer ${chosen.layer}, ${headName(chosen.head)}`;
    element("readout").textContent = chosen.cell
      ? `${place}: “${kind.rows[chosen.cell.row]}” looks at “${kind.columns[chosen.cell.column]}” with ` +
        weights[chosen.cell.row * kind.columns.length + chosen.cell.column].toFixed(4)
      : `${place}. Rows: ${kind.row_kind}. Columns: ${kind.column_kind}.`;
  }

  function point(row, column) {
    const kind = kindOf();
    const inside = row >= 0 && column >= 0 && row < kind.rows.length && column < kind.columns.length;
    if (inside && chosen.cell?.row === row && chosen.cell?.column === column) return;
    chosen.cell = inside ? { row, column } : null;
    draw();
    say();
  }

  function choose(change) {
    const other = "kind" in change;
    Object.assign(chosen, change, { cell: null });
    const kind = kindOf();
    chosen.layer = Math.min(chosen.layer, kind.layers - 1);
    weights = weightsOf(kind, chosen.layer, chosen.head);
    if (other) showHeads();
    document.querySelectorAll("#kinds button").forEach((each, number) => each.setAttribute("aria-pressed", number === chosen.kind));
    for (const each of document.querySelectorAll("#heads button"))
      each.setAttribute("aria-pressed", each.dataset.place === `${chosen.layer} ${chosen.head}`);
    draw();
    say();
  }

  matrix.addEventListener("pointermove", (event) => {
    const edge = matrix.getBoundingClientRect();
    point(Math.floor((event.clientY - edge.top - box.top) / box.cell), Math.floor((event.clientX - edge.left - box.left) / box.cell));
  });
  matrix.addEventListener("pointerleave", () => point(-1, -1));
  matrix.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const from = chosen.cell ?? { row: 0, column: 0 };
    const within = (place, count) => Math.max(0, Math.min(count - 1, place));
    point(within(from.row + move[0], kindOf().rows.length), within(from.column + move[1], kindOf().columns.length));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => choose({ kind: chosen.kind }));

  kinds.forEach((kind, number) => button(element("kinds"), kind.title, () => choose({ kind: number })));
  const middle = Math.floor((kinds[0].layers - 1) / 2);
  choose({ kind: 0, layer: middle, head: kinds[0].heads });
}

// The numbers of a table, [rows, columns], from base64 of 32-bit floats, the lowest byte first.
function readNumbers(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, place) => view.getFloat32(4 * place, true));
}

// Draws a table of positions: numbers above 0 in one colour, those below 0 in another, both stronger away from it.
function showTable(canvas, readout, table) {
  const [rows, columns] = table.shape;
  const values = table.values;
  const most = values.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0) || 1;
  const width = Math.max(1, Math.min(30, Math.floor(1000 / columns)));
  const height = Math.max(2, Math.min(30, Math.floor(400 / rows)));
  const context = canvas.getContext("2d");
  canvas.width = width * columns;
  canvas.height = height * rows;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw() {
    context.clearRect(0, 0, canvas.width, canvas.height);
    values.forEach((value, place) => {
      context.fillStyle = colour(value < 0 ? "--bar" : "--mark");
      context.globalAlpha = Math.abs(value) / most;
      context.fillRect(width * (place % columns), height * Math.floor(place / columns), width, height);
    });
  }

  const last = table.first + columns - 1;
  const legend =
    `Down: ${table.rows}, 0 to ${rows - 1}. Across: ${table.columns}, ${table.first} to ${last}. ` +
    `The strongest colours are ${most.toPrecision(3)} and -${most.toPrecision(3)}.`;
  readout.textContent = legend;
  canvas.addEventListener("pointermove", (event) => {
    const edge = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - edge.top) / height);
    const column = Math.floor((event.clientX - edge.left) / width);
    const inside = row >= 0 && column >= 0 && row < rows && column < columns;
    readout.textContent = inside
      ? `${table.rows} ${row}, ${table.columns} ${table.first + column}: ${values[row * columns + column].toPrecision(4)}`
      : legend;
  });
  canvas.addEventListener("pointerleave", () => (readout.textContent = legend));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}

if (typeof document !== "undefined") {
  const kinds = JSON.parse(document.getElementById("attention").textContent);
  for (const kind of kinds) kind.weights = readWeights(kind.weights);
  start(kinds);
  const tables = JSON.parse(document.getElementById("positions").textContent);
  document.querySelectorAll("canvas.positions").forEach((canvas, number) => {
    const table = tables[number];
    table.values = readNumbers(table.values);
    showTable(canvas, canvas.parentElement.nextElementSibling, table);
  });
}
