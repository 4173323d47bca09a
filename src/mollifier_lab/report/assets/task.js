"use strict";
// The plots of one task: what is drawn of its data in the state that its controls are in.
const Task = (() => {
  const { format, number, average, smooth } = Scales;
  const { css } = Plot;
  const DASHES = [null, "7 4", "2 3", "8 3 2 3"];
  const COLOURS = 7;
  const AXES = { updates: "updates", epochs: "epochs", seconds: "seconds of wall-clock" };
  const KEYS = "Arrow keys read the values, Enter shows one variant alone, plus and minus zoom.";

  const colour = (variant) => css(`--c${variant % COLOURS}`);
  const dash = (variant) => DASHES[Math.floor(variant / COLOURS) % DASHES.length];
  const present = (value) => value !== null && value !== undefined;
  const unit = (state, at) => ({ updates: `update ${number(at, 12)}`, epochs: `epoch ${number(at)}`, seconds: `${number(at)} s` })[state.x];
  const isLog = (metric, state) => (state.scale === "auto" ? metric.log : state.scale === "log");

  function ramp(part) {
    const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    const stops = ["--shallow", "--middle", "--deep"].map((name) => rgb(css(name))), at = Math.min(1, Math.floor(part * 2));
    return `rgb(${stops[at].map((value, i) => Math.round(value + (stops[at + 1][i] - value) * (part * 2 - at))).join(",")})`;
  }

  // Where the points of a variant, or of one of its seeds, stand on the horizontal axis; epochs are updates on another scale.
  function across(of, seconds, state) {
    if (state.x === "seconds") return of.updates.map((_, i) => seconds[i] ?? null);
    return state.x === "epochs" ? of.updates.map((at) => at * of.epochs) : of.updates;
  }

  // The mean of the seeds, the lowest and the highest, at the updates where all of them have a value.
  function middle(of, place, state, log) {
    const seeds = of.averaged.map((i) => of.seeds[i]);
    const columns = seeds.map((seed) => smooth(of.updates.map((_, i) => seed.values[place][i] ?? null), state.smooth, log));
    const usable = (value) => present(value) && (!log || value > 0);
    const rows = of.updates.map((_, i) => (columns.length && columns.every((column) => usable(column[i])) ? columns.map((column) => column[i]) : null));
    const seconds = of.updates.map((_, i) => (seeds.every((seed) => present(seed.seconds[i])) ? average(seeds.map((seed) => seed.seconds[i]), false) : null));
    const every = (what) => rows.map((row) => row && what(row));
    return { x: across(of, seconds, state), mean: every((row) => average(row, log)), low: every((row) => Math.min(...row)), high: every((row) => Math.max(...row)) };
  }

  // The band, the mean on it, and a thin line for each seed, of one variant in one metric.
  function curve(task, variant, place, state, into) {
    const of = task.variants[variant], metric = task.metrics[place], log = isLog(metric, state), show = format(metric, 4);
    const band = middle(of, place, state, log), shade = colour(variant), stroke = dash(variant);
    into.bands.push({ x: band.x, low: band.low, high: band.high, colour: shade });
    const points = (x, y, about) => x.flatMap((at, i) => (present(at) && present(y[i]) ? [{ x: at, y: y[i], text: `${unit(state, at)}: ${show(y[i])}${about}` }] : []));
    if (state.seeds) for (const seed of of.seeds) {
      const x = across(of, seed.seconds, state), y = smooth(of.updates.map((_, i) => seed.values[place][i] ?? null), state.smooth, log);
      into.lines.push({ kind: "seed", x, y, colour: shade, width: 0.9, opacity: 0.5, dash: stroke });
      into.reach.push({ name: `${of.name}, seed ${seed.seed} (${seed.status})`, key: of.full, colour: shade, points: points(x, y, "") });
    }
    into.lines.push({ kind: "mean", x: band.x, y: band.mean, colour: shade, width: 2.3, dash: stroke });
    const kind = of.averaged.length > 1 ? `${log ? "geometric mean" : "mean"} of ${of.averaged.length}` : "one seed";
    into.reach.unshift({ name: of.name, key: of.full, colour: shade, points: points(band.x, band.mean, ` (${kind}${state.smooth ? ", smoothed" : ""})`) });
  }

  const shown = (task, state) => task.variants.map((_, i) => i).filter((i) => !state.hidden.has(task.variants[i].full));
  const upper = (text) => text[0].toUpperCase() + text.slice(1);

  function curves(task, place, state, which) {
    const metric = task.metrics[place], into = { bands: [], lines: [], reach: [] };
    for (const variant of [...which].reverse()) curve(task, variant, place, state, into);
    const log = isLog(metric, state);
    return {
      ...into, x: { title: AXES[state.x], zero: true }, y: { log, format: format(metric) }, choose: state.isolate,
      label: `${upper(metric.title)} against ${AXES[state.x]}, ${log ? "log scale, " : ""}${which.length} of ${task.variants.length} variants. ${KEYS}`,
    };
  }

  // A row for each variant: dots for seeds, a diamond for the mean, its interval.
  function rows(task, state, log, title, show, label, at) {
    const which = shown(task, state), spec = { dots: [], bars: [], reach: [], rules: [] };
    which.forEach((variant, row) => {
      const of = task.variants[variant], found = at(variant), shade = colour(variant), points = [];
      if (!found || found.mean === null) return;
      for (const [seed, value] of found.points ?? []) {
        spec.dots.push({ x: value, y: row - 0.22, colour: shade, size: 3, opacity: 0.6 });
        points.push({ x: value, y: row - 0.22, text: `seed ${seed}: ${show(value)}` });
      }
      if (found.low !== null) spec.bars.push({ y: row, low: found.low, high: found.high, colour: shade });
      spec.dots.push({ x: found.mean, y: row, colour: shade, size: 6, shape: "diamond" });
      const interval = found.low === null ? "" : `, 95 % interval ${show(found.low)} to ${show(found.high)}`;
      points.push({ x: found.mean, y: row, text: `mean of ${found.n}: ${show(found.mean)}${interval}` });
      if (present(found.paper)) {
        spec.dots.push({ x: found.paper, y: row + 0.26, colour: css("--ink"), size: 4, shape: "cross" });
        points.push({ x: found.paper, y: row + 0.26, text: `the paper: ${show(found.paper)}` });
      }
      spec.reach.push({ name: of.name, key: of.full, colour: shade, points });
    });
    const height = which.length * (which.length > 12 ? 24 : 38) + 62;
    return { ...spec, height, x: { title, log, format: show }, y: { rows: which.map((i) => task.variants[i].name) }, choose: state.isolate, label: `${label} ${KEYS}` };
  }

  function drawFinal(task, state) {
    const metric = task.finals[state.final] ?? task.finals[0], show = format(metric, 4), log = isLog(metric, state);
    const spec = rows(task, state, log, metric.title, format(metric), `${upper(metric.title)} at the end, by variant.`, (variant) => metric.rows[variant]);
    const host = document.getElementById(`final-${state.number}`);
    if (!host) return; // one value needs no plot
    Plot.draw(host, spec);
    const other = document.getElementById(`difference-${state.number}`);
    if (!other) return;
    const headline = task.finals[0], signed = (value) => `${value > 0 ? "+" : ""}${format(headline)(value)}`;
    const paired = rows(task, state, false, "difference to the baseline", signed, "Paired differences to the baseline, by variant.", (variant) => task.differences[variant]);
    Plot.draw(other, { ...paired, rules: [{ x: 0 }], nothing: "no difference to show" });
  }

  function drawLevels(task, state) {
    task.levels.forEach((each, place) => {
      const of = task.variants[each.variant], count = each.blocks.length;
      const x = across({ updates: each.updates, epochs: of.epochs }, each.seconds, state);
      const shades = each.blocks.map((_, block) => ramp(count > 1 ? block / (count - 1) : 1));
      Plot.draw(document.getElementById(`levels-${state.number}-${place}`), {
        lines: each.blocks.map((y, block) => ({ kind: "level", x, y, colour: shades[block], width: count > 20 ? 1.2 : 2 })),
        reach: each.blocks.map((y, block) => ({ name: `block ${block + 1} of ${count}`, colour: shades[block], points: x.flatMap((at, i) => (present(at) && present(y[i]) ? [{ x: at, y: y[i], text: `${unit(state, at)}: level ${y[i].toFixed(3)}` }] : [])) })),
        x: { title: AXES[state.x], zero: true }, y: { domain: [-0.04, 1.04] },
        label: `Levels of ${count} blocks of ${of.name} against ${AXES[state.x]}. ${KEYS}`,
      });
      Plot.draw(document.getElementById(`loss-${state.number}-${place}`), { ...curves(task, 0, state, [each.variant]), choose: null });
    });
  }

  function draw({ task, state }) {
    drawFinal(task, state);
    task.metrics.forEach((metric, place) => {
      const figure = document.getElementById(`figure-${state.number}-${place}`);
      figure.hidden = !state.metrics.has(metric.name);
      if (!figure.hidden) Plot.draw(document.getElementById(`curve-${state.number}-${place}`), curves(task, place, state, shown(task, state)));
    });
    drawLevels(task, state);
  }

  return { draw };
})();
