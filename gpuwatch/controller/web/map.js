// The map: a block is a node, a square one of its GPUs.
// One of the page's scripts: they load in the order of page.html and share their names; page.js starts them.
"use strict";
// --- the map -----------------------------------------------------------------------------------------------------
const map = $("map"), brush = map.getContext("2d");
let blocks = []; // {node, x, y, w, h}
let picked = null;

function colours() {
  // Resolved by the browser from the classes of the style sheet, for whichever theme is on.
  const probe = el("span"), found = {};
  document.body.append(probe);
  for (const [name, value] of [...["busy", "idle", "occupied", "parked", "stalled", "unknown", "off", "healthy", "low", "high", "ink", "faint"].map((each) => [each, each])]) {
    probe.style.color = `var(--${value})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return { ...found, degraded: found.idle, failing: found.stalled };
}

const mix = (low, high, ratio) => {
  const [a, b] = [low, high].map((each) => each.match(/[\d.]+/g).map(Number));
  return `rgb(${[0, 1, 2].map((i) => Math.round(a[i] + (b[i] - a[i]) * Math.min(1, Math.max(0, ratio)))).join(" ")})`;
};

function layout(width) {
  const pools = new Map(fleet.pools.map((pool) => [pool.name, []]));
  for (const node of fleet.nodes) (pools.get(node.pool) ?? pools.set(node.pool, []).get(node.pool)).push(node);
  for (let cell = 16; ; cell -= 1) {
    const made = [], labels = [];
    let y = 0;
    for (const [pool, nodes] of pools) {
      if (!nodes.length) continue;
      labels.push({ pool, y: y + 11, nodes: nodes.length });
      y += 18;
      let x = 0, tall = 0;
      for (const node of nodes) {
        const many = Math.max(1, node.gpus.length), across = many <= 4 ? many : many <= 8 ? 4 : 8;
        const w = across * cell, h = Math.ceil(many / across) * cell;
        if (x + w > width) { x = 0; y += tall + 3; tall = 0; }
        made.push({ node, x, y, w, h, across });
        x += w + 4;
        tall = Math.max(tall, h);
      }
      y += tall + 10;
    }
    if (y <= 460 || cell <= 6) return { made, labels, height: Math.max(40, y), cell };
  }
}

function drawMap() {
  const width = map.parentElement.clientWidth - 24;
  if (!fleet || width <= 0) return;
  const { made, labels, height, cell } = layout(width), scale = devicePixelRatio || 1;
  blocks = made;
  const wide = Math.round(width * scale), high = Math.round(height * scale);
  if (map.width !== wide || map.height !== high) {
    map.width = wide;
    map.height = high;
    map.style.height = `${height}px`;
  }
  brush.setTransform(scale, 0, 0, scale, 0, 0);
  brush.clearRect(0, 0, width, height);
  const paint = colours(), by = $("colour").value, gap = cell > 8 ? 2 : 1, hatch = hatched(paint, scale);
  const all = shown.length === fleet.nodes.length, some = new Set(all ? [] : shown.map((node) => node.id));
  brush.font = "11px system-ui, sans-serif";
  brush.fillStyle = paint.faint;
  for (const label of labels) brush.fillText(`${label.pool} · ${count(label.nodes, "node")}`, 0, label.y);
  for (const block of made) {
    brush.globalAlpha = all || some.has(block.node.id) ? 1 : 0.15;
    const cells = block.node.gpus;
    if (!cells.length) {
      brush.strokeStyle = paint.unknown;
      brush.strokeRect(block.x + 0.5, block.y + 0.5, cell - gap - 1, cell - gap - 1);
      continue;
    }
    for (let index = 0; index < cells.length; index += 1) {
      const gpu = cells[index], value = gpu[by];
      if (value == null || value === "unknown") brush.fillStyle = hatch;
      else brush.fillStyle = typeof value === "number" ? mix(paint.low, paint.high, value) : paint[value];
      const x = block.x + (index % block.across) * cell, y = block.y + Math.floor(index / block.across) * cell;
      brush.fillRect(x, y, cell - gap, cell - gap);
      if (gpu.health === "failing" && by !== "health") {
        brush.fillStyle = paint.ink;
        brush.fillRect(x + (cell - gap) / 2 - 1.5, y + (cell - gap) / 2 - 1.5, 3, 3);
      }
    }
  }
  brush.globalAlpha = 1;
  const ring = made.find((block) => block.node.id === picked);
  if (ring) {
    brush.strokeStyle = paint.ink;
    brush.lineWidth = 2;
    brush.strokeRect(ring.x - 2, ring.y - 2, ring.w + 4 - gap, ring.h + 4 - gap);
    brush.lineWidth = 1;
  }
  legend(by);
}

function hatched(paint, scale) {
  const tile = el("canvas", { width: 4, height: 4 }), pen = tile.getContext("2d");
  pen.fillStyle = paint.off;
  pen.fillRect(0, 0, 4, 4);
  pen.fillStyle = paint.unknown;
  for (const [x, y] of [[0, 3], [1, 2], [2, 1], [3, 0], [0, 0], [3, 3]]) if ((x + y) % 4 === 3) pen.fillRect(x, y, 1.5, 1.5);
  const made = brush.createPattern(tile, "repeat");
  made.setTransform(new DOMMatrix().scale(1 / Math.min(scale, 2)));
  return made;
}

function legend(by) {
  const names = by === "activity" ? USES : by === "health" ? HEALTHS : ["0 %", "ramp", "100 %", "unknown"];
  if ($("legend").dataset.by === by) return;
  $("legend").dataset.by = by;
  $("legend").replaceChildren(...names.map((name) => name === "ramp" ? el("span", { className: "ramp" }) : name.endsWith("%") ? el("span", {}, name) : el("span", { title: word(MEANINGS[name] ?? "") }, dot(name), word(name))));
}

function pick(block) {
  const id = block?.node.id ?? null;
  if (id === picked) return;
  picked = id;
  put($("caption"), block ? caption(block.node) : t`A block is a node, a square one of its GPUs.`);
  drawMap();
}

function caption(node) {
  const held = node.held_seconds == null ? node.doubt ?? "" : t`for ${span(node.held_seconds)}`;
  const [main] = nextWords(node.next);
  return `${title(node)} · ${node.pool} · ${count(node.gpus.length, "GPU")} · ${word(node.activity ?? node.state)} ${held} · ${t`next: ${main === "–" ? t`nothing` : main}`}`;
}

const under = (event) => {
  const box = map.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  return blocks.find((block) => x >= block.x - 2 && x <= block.x + block.w + 2 && y >= block.y - 2 && y <= block.y + block.h + 2);
};
map.onmousemove = (event) => pick(under(event));
map.onmouseleave = () => { if (document.activeElement !== map) pick(null); };
map.onclick = (event) => { const block = under(event); if (block) explain(block.node.id); };
map.onkeydown = (event) => {
  const at = blocks.findIndex((block) => block.node.id === picked), here = blocks[at];
  if (event.key === "Enter" && here) explain(picked);
  if (!event.key.startsWith("Arrow") || !blocks.length) return;
  event.preventDefault();
  if (!here) return pick(blocks[0]);
  const row = (sign) => blocks.filter((block) => sign * (block.y - here.y) > 0).sort((a, b) => sign * (a.y - b.y) || Math.abs(a.x - here.x) - Math.abs(b.x - here.x))[0];
  pick({ ArrowLeft: blocks[at - 1], ArrowRight: blocks[at + 1], ArrowUp: row(-1), ArrowDown: row(1) }[event.key] ?? here);
};
