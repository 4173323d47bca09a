"use strict";
// The page computes what the library computes in eval(): every random choice is replaced by its mean. tests/docs compares the two.
const data = JSON.parse(document.getElementById("data").textContent);
const { widths, c, points, span } = data;
const depth = widths.length - 2; // mollified layers; the last one is the output
const HALF_NORMAL_MEAN = Math.sqrt(2 / Math.PI);
const $ = id => document.getElementById(id);

// ---- the network -------------------------------------------------------------------------------------------------------
const sigmoid = x => 1 / (1 + Math.exp(-x));
const tangent = x => 0.25 * x + 0.5;

/** Algorithm 1 with a given |ξ|: the activation, moved toward its tangent by at most s. */
function push(x, p, a, xi) {
  const f = sigmoid(x), gap = tangent(x) - f, t = Math.tanh(0.5 * a * gap), s = p * c * 0.25 * t * t * xi;
  return f + Math.max(-s, Math.min(s, gap));
}

function decode({ scale, bits }) {
  const bytes = Uint8Array.from(atob(bits), letter => letter.charCodeAt(0));
  return Float32Array.from(new Int16Array(bytes.buffer), whole => whole * scale);
}

for (const run of [data.mollified, data.plain]) run.snapshots = run.snapshots.map(decode);

/** Weights between two snapshots, and the levels of that moment. */
function at(run, update) {
  const times = run.updates;
  let i = 0;
  while (i < times.length - 2 && times[i + 1] <= update) i++;
  const part = Math.max(0, Math.min(1, (update - times[i]) / (times[i + 1] - times[i])));
  const mix = (from, to) => from.map((value, j) => value + part * (to[j] - value));
  return { weights: mix(run.snapshots[i], run.snapshots[i + 1]), levels: run.levels.length ? mix(run.levels[i], run.levels[i + 1]) : Array(depth).fill(0) };
}

/** The output at n points, given as x0, y0, x1, y1, … */
function outputs(weights, levels, inputs, n) {
  let below = inputs, place = 0, width = widths[0];
  for (let layer = 0; layer < depth; layer++) {
    const units = widths[layer + 1], p = levels[layer], above = new Float32Array(n * units);
    const w = weights.subarray(place, (place += units * width)), b = weights.subarray(place, (place += units)), a = weights.subarray(place, (place += units));
    for (let i = 0; i < n; i++) {
      for (let unit = 0; unit < units; unit++) {
        let x = b[unit];
        for (let j = 0; j < width; j++) x += w[unit * width + j] * below[i * width + j];
        const value = p > 0 ? push(x, p, a[unit], HALF_NORMAL_MEAN) : sigmoid(x);
        above[i * units + unit] = p * (unit < width ? below[i * width + unit] : 0) + (1 - p) * value; // a wider layer copies zeros
      }
    }
    below = above;
    width = units;
  }
  const w = weights.subarray(place, place + width), out = new Float32Array(n).fill(weights[place + width]);
  for (let i = 0; i < n; i++) for (let j = 0; j < width; j++) out[i] += w[j] * below[i * width + j];
  return out;
}

const flat = Float32Array.from(points.flatMap(point => point.slice(0, 2)));
function rightly(weights, levels) {
  const out = outputs(weights, levels, flat, points.length);
  return points.filter((point, i) => out[i] > 0 === point[2] > 0.5).length / points.length;
}

// ---- the picture of the plane ------------------------------------------------------------------------------------------
const grids = {};
function grid(n) {
  return (grids[n] ??= Float32Array.from({ length: 2 * n * n }, (_, i) => {
    const cell = i >> 1, at = i & 1 ? n - 1 - Math.floor(cell / n) : cell % n;
    return span * ((2 * (at + 0.5)) / n - 1);
  }));
}
const COLOURS = {
  light: { low: [205, 92, 63], middle: [250, 247, 240], high: [22, 128, 116], ink: "#1d2527", edge: "#ffffff" },
  dark: { low: [232, 120, 90], middle: [30, 37, 40], high: [66, 176, 160], ink: "#f4f1e8", edge: "#14191b" },
};
let colours = COLOURS.light;

function paint(canvas, weights, levels, n) {
  const z = outputs(weights, levels, grid(n), n * n), context = canvas.getContext("2d"), size = canvas.width;
  const scale = Math.max(0.25, z.reduce((sum, value) => sum + Math.abs(value), 0) / z.length);
  const small = new OffscreenCanvas(n, n), image = new ImageData(n, n);
  z.forEach((value, i) => {
    const t = Math.tanh((1.1 * value) / scale), end = t < 0 ? colours.low : colours.high;
    const strength = Math.round(Math.abs(t) * 9) / 9; // bands, like the contours of a map
    for (let k = 0; k < 3; k++) image.data[4 * i + k] = colours.middle[k] + 0.88 * strength * (end[k] - colours.middle[k]);
    image.data[4 * i + 3] = 255;
  });
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, size, size);
  context.strokeStyle = colours.ink;
  context.lineWidth = size / 190;
  context.lineCap = context.lineJoin = "round";
  context.stroke(boundary(z, n, size / n));
  for (const [x, y, label] of points) {
    context.beginPath();
    context.arc(((x / span + 1) * size) / 2, ((1 - y / span) * size) / 2, size / 118, 0, 2 * Math.PI);
    context.fillStyle = `rgb(${label > 0.5 ? colours.high : colours.low})`;
    context.fill();
    context.lineWidth = size / 420;
    context.strokeStyle = colours.edge;
    context.stroke();
  }
}

/** Where the output is 0, by marching squares. */
function boundary(z, n, cell) {
  const path = new Path2D();
  const between = (i, j, k, l) => {
    const from = z[j * n + i], part = from / (from - z[l * n + k]);
    return [(i + part * (k - i) + 0.5) * cell, (j + part * (l - j) + 0.5) * cell];
  };
  for (let j = 0; j + 1 < n; j++) {
    for (let i = 0; i + 1 < n; i++) {
      const corners = [[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]], cuts = [];
      corners.forEach(([x, y], side) => {
        const [u, v] = corners[(side + 1) % 4];
        if (z[y * n + x] > 0 !== z[v * n + u] > 0) cuts.push(between(x, y, u, v));
      });
      for (let k = 0; k + 1 < cuts.length; k += 2) path.moveTo(...cuts[k]), path.lineTo(...cuts[k + 1]);
    }
  }
  return path;
}

// ---- one unit, the layers, the loss ------------------------------------------------------------------------------------
function random(seed) { // mulberry32: the same dots at every visit
  return () => {
    let t = (seed += 0x6d2b79f5);
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
const draw = random(7);
const samples = Array.from({ length: 170 }, () => [16 * draw() - 8, Math.abs(Math.sqrt(-2 * Math.log(1 - draw())) * Math.cos(2 * Math.PI * draw()))]);
const thresholds = Array.from({ length: depth }, (_, layer) => Array.from({ length: widths[layer + 1] }, draw));
const A = 2; // the unit that is drawn: noise grows with |a|, and a starts between −2 and 2
const line = (xs, f, sx, sy) => xs.map((x, i) => `${i ? "L" : "M"}${sx(x).toFixed(1)} ${sy(f(x)).toFixed(1)}`).join("");

function paintUnit(p) {
  const sx = x => 180 + (x / 8) * 172, sy = y => 115 - (y - 0.5) * 42;
  const xs = Array.from({ length: 81 }, (_, i) => -8 + i / 5);
  const dots = p > 0 ? samples.map(([x, xi]) => `<circle class="fill-teal" opacity=".38" r="2.1" cx="${sx(x).toFixed(1)}" cy="${sy(push(x, p, A, xi)).toFixed(1)}"/>`).join("") : "";
  $("unit").innerHTML = `<path class="axis" d="M8 ${sy(0)}H352M180 8V222"/><path class="thin" d="${line(xs, tangent, sx, sy)}"/>
    <path class="curve stroke-ink" d="${line(xs, sigmoid, sx, sy)}"/>${dots}
    <path class="curve stroke-teal" id="mean" d="${line(xs, x => push(x, p, A, HALF_NORMAL_MEAN), sx, sy)}"/>
    <text x="${sx(5.1)}" y="${sy(2.2)}" text-anchor="end">tangent</text><text x="350" y="${sy(0.72)}" text-anchor="end">sigmoid</text>`;
  $("unit-score").textContent = p > 0 ? "dots: in training; line: in eval()" : "the sigmoid itself";
  $("unit").setAttribute("aria-label", `A sigmoid, its tangent, and what the noise makes of the sigmoid at level ${p.toFixed(2)}`);
}

function paintLayers(levels) {
  const wide = 344 / depth, rows = Math.max(...widths.slice(1, -1)), high = 140 / rows;
  $("layers").innerHTML = levels
    .map((p, layer) => {
      const x = 8 + wide * (layer + 0.5);
      const units = thresholds[layer].map((threshold, unit) => {
        const copied = threshold < p;
        return `<circle class="${copied ? "copied" : "computed"}" cx="${x.toFixed(1)}" cy="${(10 + high * unit).toFixed(1)}" r="${(Math.min(wide, high) * 0.33).toFixed(1)}"/>`;
      });
      return `${units.join("")}<text x="${x.toFixed(1)}" y="164" text-anchor="middle" data-level="${p.toFixed(3)}">${p === 1 || p === 0 ? p : p.toFixed(1).replace("0.", ".")}</text>`;
    })
    .join("");
  $("layers").setAttribute("aria-label", `Levels of the ${depth} layers, from the input up: ${levels.map(p => p.toFixed(2)).join(", ")}`);
}

function paintLoss(update) {
  const last = data.updates, top = 0.8, sx = x => (900 * x) / last, sy = y => 146 - (140 * Math.min(y, top)) / top;
  const curve = run => run.loss.map((y, i) => `${i ? "L" : "M"}${sx((i * last) / (run.loss.length - 1)).toFixed(1)} ${sy(y).toFixed(1)}`).join("");
  $("loss").innerHTML = `<path class="axis" d="M0 146H900"/><path class="curve stroke-coral" d="${curve(data.plain)}"/>
    <path class="curve stroke-teal" d="${curve(data.mollified)}"/><path class="cursor" d="M${sx(update)} 0V150"/>`;
}

// ---- what the controls do ----------------------------------------------------------------------------------------------
const state = { mode: "level", position: 0 };
const percent = part => `${Math.round(100 * part)} %`;
let refining = 0, queued = false;

function frame(n) {
  const training = state.mode === "training", part = state.position / 1000;
  const update = training ? part * data.updates : data.updates, level = (1 - part) ** 2; // finer near 0, where the boundary bends
  const ours = at(data.mollified, update);
  const levels = training ? ours.levels : Array(depth).fill(level);
  const score = rightly(ours.weights, levels);
  paint($("surface"), ours.weights, levels, n);
  $("score").textContent = `${percent(score)} of the points correct`;
  $("surface").setAttribute("aria-label", `The plane as the network sees it: ${percent(score)} of the points are on the right side`);
  const shown = training ? levels[Math.floor(depth / 2)] : level;
  paintUnit(shown);
  $("unit-title").textContent = training ? `One unit of layer ${Math.floor(depth / 2) + 1}` : "One unit";
  paintLayers(levels);
  let twin = null;
  if (training) {
    const plain = at(data.plain, update), none = Array(depth).fill(0);
    twin = rightly(plain.weights, none);
    paint($("twin"), plain.weights, none, n);
    $("twin-score").textContent = `${percent(twin)} right`;
    $("twin").setAttribute("aria-label", `The plain network at the same update: ${percent(twin)} of the points are on the right side`);
    $("score").textContent = `${percent(score)} right`;
    paintLoss(update);
  }
  $("value").textContent = training ? Math.round(update).toLocaleString("en") : level.toFixed(2);
  $("slider").setAttribute("aria-valuetext", training ? `update ${Math.round(update)} of ${data.updates}` : `level ${level.toFixed(2)}`);
  if (n > 100 || !$("story").textContent) $("story").textContent = training ? storyOfTraining(levels, score, twin) : storyOfLevel(level, score);
}

function storyOfLevel(level, score) {
  if (level > 0.995) return `Level 1. Every unit copies the unit below, so the whole network is one straight cut through the plane. With these weights it classifies ${percent(score)} of the points correctly. Finding the best cut is a convex problem, and training starts there.`;
  if (level < 0.005) return `Level 0. Nothing is copied and nothing is pushed: this is the plain network, bit for bit, and it is what you deploy. ${percent(score)} of the points are on the right side.`;
  return `Level ${level.toFixed(2)}. On average ${percent(level)} of the units copy the unit below; the others compute a sigmoid that noise pushes toward its tangent. The lower the level, the more the boundary may bend. The weights stay the same.`;
}

function storyOfTraining(levels, score, twin) {
  const plain = levels.filter(p => p < 0.005).length, full = levels.filter(p => p > 0.995).length;
  const who = plain === depth ? "All layers are plain, and training continues." : plain ? `${plain} of ${depth} layers are plain${full ? `, ${full} still only copy` : ""}.` : full === depth ? "All layers only copy: a linear network." : "The first layers begin to compute.";
  const other = twin < 0.6 ? "The plain twin started from the same weights and had the same updates. It sees no difference between the points." : `The plain twin is at ${percent(twin)}.`;
  return `${who} ${percent(score)} of the points are on the right side. ${other}`;
}

function refresh() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => {
    queued = false;
    frame(56);
    clearTimeout(refining);
    refining = setTimeout(() => frame(150), 140);
  });
}

function choose(mode) {
  state.mode = mode;
  const training = mode === "training";
  $("twin-figure").hidden = $("loss-figure").hidden = !training;
  document.querySelector(".stage").classList.toggle("training", training);
  $("slider-label").textContent = training ? "Updates of training" : "Level";
  $("left-end").textContent = training ? "0: all layers copy" : "1: linear";
  $("right-end").textContent = training ? `${data.updates.toLocaleString("en")}: plain` : "0: the network itself";
  $("surface-title").textContent = training ? "Mollified" : "The network";
  refresh();
}

let playing = 0;
function play(on) {
  clearInterval(playing);
  playing = 0;
  $("play").setAttribute("aria-pressed", String(on));
  $("play").querySelector(".name").textContent = on ? "Pause" : "Play";
  if (!on) return;
  if (state.position >= 1000) move(0);
  playing = setInterval(() => (state.position >= 1000 ? play(false) : move(state.position + 5)), 50);
}

function move(position) {
  state.position = Math.max(0, Math.min(1000, position));
  $("slider").value = state.position;
  refresh();
}

$("slider").addEventListener("input", event => { play(false); move(Number(event.target.value)); });
$("slider").addEventListener("keydown", event => {
  const steps = { ArrowLeft: -10, ArrowDown: -10, ArrowRight: 10, ArrowUp: 10, PageDown: -100, PageUp: 100, Home: -1000, End: 1000 };
  if (!(event.key in steps)) return;
  event.preventDefault();
  play(false);
  move(state.position + steps[event.key]);
});
$("play").addEventListener("click", () => play(!playing));
document.querySelectorAll("[name=mode]").forEach(radio => radio.addEventListener("change", () => { play(false); choose(radio.value); }));

// ---- light and dark: as the site has it, else as the system has it -----------------------------------------------------
const system = matchMedia("(prefers-color-scheme: dark)");
function site() { // the body of the page around this one, where the browser allows to see it
  try { return parent === window ? null : parent.document.body; } catch { return null; }
}
function scheme() {
  const chosen = site()?.dataset.mdColorScheme;
  const dark = chosen ? chosen === "slate" : system.matches;
  document.documentElement.dataset.scheme = dark ? "dark" : "light";
  colours = dark ? COLOURS.dark : COLOURS.light;
  refresh();
}
system.addEventListener("change", scheme);
if (site()) new MutationObserver(scheme).observe(site(), { attributes: true, attributeFilter: ["data-md-color-scheme"] });

$("facts").textContent = data.facts;
scheme();
choose("level");
