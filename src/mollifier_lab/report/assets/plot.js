"use strict";
// One plot: an SVG in a box that has a role, a label and the focus; values by pointer and by keyboard alike.
//
// A spec has: label, x and y ({ title, log, domain, format, ticks } or, for y, rows: names), and what is drawn:
// bands ({ x, low, high, colour }), lines ({ x, y, colour, width, dash, opacity }), dots ({ x, y, colour, shape, size }), bars ({ y, low, high, colour }),
// rules ({ x }), and reach: what can be asked for, [{ name, key, colour, points: [{ x, y, text }] }].
const Plot = (() => {
  const { number, linearTicks, logTicks, span, scale } = Scales;
  const NEAR = 45; // pixels
  const root = document.documentElement;
  // Colours are asked for hundreds of times a drawing, and each question makes the browser lay out the page: once is enough.
  let colours = new Map();
  function css(name) {
    if (!colours.has(name)) colours.set(name, getComputedStyle(root).getPropertyValue(name).trim());
    return colours.get(name);
  }
  const repaint = () => { colours = new Map(); };
  const font = getComputedStyle(document.body).fontFamily;
  const pen = document.createElement("canvas").getContext("2d");
  let serial = 0;

  function node(name, attributes, parent, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent?.append(made);
    return made;
  }

  function width(text, size) {
    pen.font = `${size}px ${font}`;
    return pen.measureText(text).width;
  }

  // As much of a text as there is room for, without its middle.
  function fit(text, room, size) {
    if (width(text, size) <= room) return text;
    let low = 1, high = text.length;
    const short = (keep) => `${text.slice(0, Math.ceil(keep / 2))}…${text.slice(text.length - Math.floor(keep / 2))}`;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (width(short(middle), size) <= room) low = middle; else high = middle - 1;
    }
    return short(low);
  }

  function path(line, x, y) {
    let d = "", open = false;
    for (let i = 0; i < line.x.length; i++) {
      const value = line.y[i];
      if (value === null || value === undefined || line.x[i] === null || (y.log && value <= 0) || !Number.isFinite(value)) { open = false; continue; }
      d += `${open ? "L" : "M"}${x(line.x[i]).toFixed(1)},${y(value).toFixed(1)}`;
      open = true;
    }
    return d;
  }

  // Points without a neighbour: no line shows them.
  function lone(line, y) {
    const there = line.y.map((value, i) => Number.isFinite(value) && value !== null && line.x[i] !== null && line.x[i] !== undefined && (!y.log || value > 0));
    return line.y.map((_, i) => i).filter((i) => there[i] && !there[i - 1] && !there[i + 1]);
  }

  function area(band, x, y) {
    const top = [], below = [];
    band.x.forEach((at, i) => {
      const low = band.low[i], high = band.high[i];
      if (at === null || low === null || high === null || (y.log && low <= 0)) return;
      top.push(`${x(at).toFixed(1)},${y(high).toFixed(1)}`);
      below.unshift(`${x(at).toFixed(1)},${y(low).toFixed(1)}`);
    });
    return top.length > 1 ? `M${top.join("L")}L${below.join("L")}Z` : "";
  }

  const SHAPES = {
    dot: (x, y, r) => ["circle", { cx: x, cy: y, r }],
    diamond: (x, y, r) => ["path", { d: `M${x - r},${y}L${x},${y - r}L${x + r},${y}L${x},${y + r}Z` }],
    cross: (x, y, r) => ["path", { d: `M${x - r},${y - r}L${x + r},${y + r}M${x - r},${y + r}L${x + r},${y - r}` }],
  };

  function domain(axis, values, zero) {
    return axis.domain ?? span(values, axis.log, zero) ?? [axis.log ? 0.1 : 0, 1];
  }

  function draw(host, spec) {
    const box = host.getBoundingClientRect();
    const W = Math.max(220, Math.round(box.width) - 2), H = spec.height ?? (Math.round(host.clientHeight) || 300);
    const soft = css("--soft"), faint = css("--faint"), edge = css("--line"), size = 11.5;
    const zoom = host.plot?.zoom && host.plot.spec.x.title === spec.x.title ? host.plot.zoom : null;
    const lines = spec.lines ?? [], bands = spec.bands ?? [], dots = spec.dots ?? [], bars = spec.bars ?? [];
    const xs = [...lines, ...bands].flatMap((each) => each.x).concat(dots.map((each) => each.x), bars.flatMap((each) => [each.low, each.high]), (spec.rules ?? []).map((each) => each.x));
    const full = domain(spec.x, xs, spec.x.zero), xDomain = zoom ?? full;
    const inside = (at) => at !== null && at >= xDomain[0] && at <= xDomain[1];
    const ys = spec.y.rows ? [] : lines.flatMap((each) => each.y.filter((_, i) => inside(each.x[i])));
    const yDomain = spec.y.rows ? [-0.6, spec.y.rows.length - 0.4] : domain(spec.y, ys, false);
    const bottom = 40, top = 12, right = 16;
    const tall = H - bottom - top;
    const yTicks = spec.y.rows ? spec.y.rows.map((_, row) => row) : (spec.y.log ? logTicks : linearTicks)(...yDomain, Math.max(2, Math.floor(tall / 42)));
    const labels = spec.y.rows ? spec.y.rows.map((name) => fit(name, Math.min(W * 0.42, 330), 12.5)) : yTicks.map(spec.y.format ?? number);
    const left = Math.ceil(Math.max(...labels.map((text) => width(text, spec.y.rows ? 12.5 : size)), 12)) + 16;
    const x = scale(xDomain, [left, W - right], spec.x.log);
    const y = spec.y.rows ? scale(yDomain, [top, top + tall], false) : scale(yDomain, [top + tall, top], spec.y.log);

    const svg = node("svg", { width: W, height: H, viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true", "font-family": font });
    node("rect", { class: "ground", width: W, height: H, fill: css("--surface") }, svg);
    const clip = `clip-${serial++}`;
    node("rect", { x: left - 4, y: top - 4, width: Math.max(1, W - right - left + 8), height: tall + 8 }, node("clipPath", { id: clip }, node("defs", {}, svg)));

    const room = W - right - left;
    const xFormat = spec.x.format ?? number;
    let many = Math.max(3, Math.floor(room / 80)), xTicks = [];
    do { // labels never touch: fewer, until they do not
      xTicks = (spec.x.log ? logTicks : linearTicks)(...xDomain, many);
      many -= 1;
    } while (many > 0 && xTicks.some((tick, i) => i && x(tick) - x(xTicks[i - 1]) < (width(xFormat(tick), size) + width(xFormat(xTicks[i - 1]), size)) / 2 + 8));
    for (const tick of xTicks) {
      if (spec.y.rows) node("line", { x1: x(tick), x2: x(tick), y1: top, y2: top + tall, stroke: faint }, svg);
      node("line", { x1: x(tick), x2: x(tick), y1: top + tall, y2: top + tall + 4, stroke: edge }, svg);
      node("text", { class: "xtick", x: x(tick), y: top + tall + 16, "text-anchor": "middle", "font-size": size, fill: soft }, svg, xFormat(tick));
    }
    yTicks.forEach((tick, i) => {
      if (!spec.y.rows) node("line", { x1: left, x2: W - right, y1: y(tick), y2: y(tick), stroke: faint }, svg);
      node("text", { class: "ytick", x: left - 8, y: y(tick) + 4, "text-anchor": "end", "font-size": spec.y.rows ? 12.5 : size, fill: spec.y.rows ? css("--ink") : soft }, svg, labels[i]);
    });
    node("path", { d: `M${left},${top}V${top + tall}H${W - right}`, stroke: edge, fill: "none" }, svg);
    node("text", { class: "title", x: left + room / 2, y: H - 6, "text-anchor": "middle", "font-size": 12, fill: soft }, svg, fit(spec.x.title, room, 12));

    const ink = node("g", { "clip-path": `url(#${clip})` }, svg);
    for (const rule of spec.rules ?? []) node("line", { class: "rule", x1: x(rule.x), x2: x(rule.x), y1: top, y2: top + tall, stroke: soft, "stroke-dasharray": "3 3" }, ink);
    for (const band of bands) node("path", { class: "band", d: area(band, x, y), fill: band.colour, "fill-opacity": 0.14 }, ink);
    for (const line of lines) {
      node("path", { class: `line ${line.kind ?? ""}`, d: path(line, x, y), fill: "none", stroke: line.colour, "stroke-width": line.width, "stroke-opacity": line.opacity, "stroke-dasharray": line.dash, "stroke-linejoin": "round" }, ink);
      for (const i of lone(line, y)) node("circle", { class: `lone ${line.kind ?? ""}`, cx: x(line.x[i]), cy: y(line.y[i]), r: line.width + 1.2, fill: line.colour, "fill-opacity": line.opacity }, ink);
    }
    for (const bar of bars) {
      // an interval may reach beyond a log axis, or beyond what is shown: there it has no end
      const ends = [bar.low, bar.high].map((value) => (spec.x.log && value <= 0 ? -Infinity : x(value)));
      const [from, to] = ends.map((at) => Math.min(W - right, Math.max(left - 3, at)));
      const caps = ends.filter((at) => at >= left - 3 && at <= W - right).map((at) => `M${at},${y(bar.y) - 5}v10`).join("");
      node("path", { class: "bar", d: `M${from},${y(bar.y)}H${to}${caps}`, stroke: bar.colour, "stroke-width": 2, fill: "none" }, ink);
    }
    for (const dot of dots) {
      if (spec.x.log && dot.x <= 0) continue;
      const [name, shape] = SHAPES[dot.shape ?? "dot"](x(dot.x), y(dot.y), dot.size);
      const paint = dot.shape === "cross" ? { fill: "none", stroke: dot.colour, "stroke-width": 2 } : { fill: dot.colour, "fill-opacity": dot.opacity ?? 1, stroke: dot.shape === "diamond" ? css("--surface") : null };
      node(name, { class: `point ${dot.shape ?? "dot"}`, ...shape, ...paint }, ink);
    }
    const cursor = node("g", { class: "cursor" }, svg);
    host.replaceChildren(svg);
    host.style.height = spec.height ? `${spec.height + 2}px` : "";
    host.setAttribute("aria-label", spec.label);
    const first = !host.plot;
    host.plot = { ...host.plot, spec, x, y, cursor, zoom, full, frame: { left, right: W - right, top, bottom: top + tall }, at: null };
    if (first) listen(host);
    if (!spec.reach.some((each) => each.points.length)) {
      node("text", { class: "nothing", x: left + room / 2, y: top + tall / 2, "text-anchor": "middle", "font-size": 12.5, fill: soft }, svg, spec.nothing ?? "no values");
    }
  }

  const pixel = ({ x, y }, point) => [x(point.x), y(point.y)];
  const seen = (plot, point) => (!plot.x.log || point.x > 0) && (!plot.y.log || point.y > 0) && point.x >= plot.x.domain[0] && point.x <= plot.x.domain[1];

  // Put the cursor on a point and say its value; `aloud` for the keyboard, so that screen readers hear it.
  function point(host, series, index, aloud) {
    const { plot } = host, target = plot.spec.reach[series], found = target.points[index];
    const [left, top] = pixel(plot, found);
    plot.at = { series, index };
    plot.cursor.replaceChildren();
    node("circle", { cx: left, cy: top, r: 5, fill: "none", stroke: css("--ink"), "stroke-width": 1.5 }, plot.cursor);
    const box = host.getBoundingClientRect();
    Tip.show([target.name, found.text], box.left + left, box.top + top, target.colour, aloud);
  }

  function leave(host) {
    host.plot.at = null;
    host.plot.cursor.replaceChildren();
    Tip.hide();
  }

  function nearest(host, left, top) {
    let best = null, least = NEAR ** 2;
    host.plot.spec.reach.forEach((target, series) => target.points.forEach((each, index) => {
      if (!seen(host.plot, each)) return;
      const [x, y] = pixel(host.plot, each), far = (x - left) ** 2 + (y - top) ** 2;
      if (far < least) { least = far; best = { series, index }; }
    }));
    return best;
  }

  // Left and right along a line, up and down from line to line, at the nearest place.
  function walk(host, key) {
    const { plot } = host, targets = plot.spec.reach;
    const usable = targets.map((each, i) => i).filter((i) => targets[i].points.some((each) => seen(plot, each)));
    if (!usable.length) return;
    const choose = (series, index, step) => {
      const points = targets[series].points;
      while (index > 0 && index < points.length - 1 && !seen(plot, points[index])) index += step;
      if (!seen(plot, points[index])) index = points.findIndex((each) => seen(plot, each));
      point(host, series, index, true);
    };
    if (!plot.at) { choose(usable[0], 0, 1); return; }
    const { series, index } = plot.at, count = targets[series].points.length;
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -count, End: count };
    if (key in steps) { choose(series, Math.min(count - 1, Math.max(0, index + steps[key])), Math.sign(steps[key])); return; }
    const next = usable[(usable.indexOf(series) + (key === "ArrowDown" ? 1 : usable.length - 1)) % usable.length];
    const here = targets[series].points[index].x, points = targets[next].points;
    let close = 0;
    points.forEach((each, i) => { if (Math.abs(each.x - here) < Math.abs(points[close].x - here)) close = i; });
    choose(next, close, 1);
  }

  function setZoom(host, zoom) {
    host.plot.zoom = zoom;
    Tip.hide();
    draw(host, host.plot.spec);
  }

  function listen(host) {
    const KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];
    let drag = null;
    const place = (event) => { const box = host.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    host.addEventListener("keydown", (event) => {
      const { plot } = host;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (KEYS.includes(event.key)) walk(host, event.key);
      else if (event.key === "Escape") { if (plot.at) leave(host); else if (plot.zoom) setZoom(host, null); else return; }
      else if (event.key === "Enter" && plot.at) plot.spec.choose?.(plot.spec.reach[plot.at.series].key);
      else if ((event.key === "+" || event.key === "-") && !plot.spec.y.rows) {
        const [low, high] = plot.x.domain, middle = plot.at ? plot.spec.reach[plot.at.series].points[plot.at.index].x : (low + high) / 2;
        const half = ((high - low) / 2) * (event.key === "+" ? 0.5 : 2);
        const ends = [Math.max(plot.full[0], middle - half), Math.min(plot.full[1], middle + half)];
        setZoom(host, ends[0] === plot.full[0] && ends[1] === plot.full[1] ? null : ends);
      } else return;
      event.preventDefault();
    });
    host.addEventListener("blur", () => leave(host));
    host.addEventListener("pointerleave", () => { if (!drag) leave(host); });
    host.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      drag = { from: place(event)[0], moved: false };
      if (event.pointerType === "mouse") host.setPointerCapture(event.pointerId);
    });
    host.addEventListener("pointercancel", () => { drag = null; });
    host.addEventListener("pointermove", (event) => {
      const [left, top] = place(event), { plot } = host;
      if (drag && event.pointerType === "mouse" && !plot.spec.y.rows && Math.abs(left - drag.from) > 6) {
        drag.moved = true;
        plot.cursor.replaceChildren();
        Tip.hide();
        node("rect", { x: Math.min(left, drag.from), y: plot.frame.top, width: Math.abs(left - drag.from), height: plot.frame.bottom - plot.frame.top, fill: css("--accent"), "fill-opacity": 0.12 }, plot.cursor);
        return;
      }
      const found = nearest(host, left, top);
      if (found) point(host, found.series, found.index, false); else leave(host);
    });
    host.addEventListener("pointerup", (event) => {
      if (!drag) return;
      const { plot } = host, [left] = place(event), from = drag.from, moved = drag.moved;
      drag = null;
      if (moved) {
        const ends = [from, left].map((at) => plot.x.inverse(Math.min(plot.frame.right, Math.max(plot.frame.left, at)))).sort((a, b) => a - b);
        setZoom(host, ends);
      } else {
        const found = nearest(host, ...place(event));
        if (found) plot.spec.choose?.(plot.spec.reach[found.series].key, event.shiftKey || event.ctrlKey || event.metaKey);
      }
    });
    host.addEventListener("dblclick", () => { if (host.plot.zoom) setZoom(host, null); });
  }

  // The picture as a file of its own.
  function save(host, name) {
    const copy = host.querySelector("svg").cloneNode(true);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.removeAttribute("aria-hidden");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
    link.download = `${name}.svg`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  return { draw, save, css, repaint, zoom: setZoom };
})();

// What is said beside the pointer, the cursor or a short name: one box for the whole page, and one place where it is said aloud.
const Tip = (() => {
  const box = document.createElement("div"), voice = document.createElement("div");
  box.className = "tip";
  box.id = "tip";
  box.hidden = true;
  box.setAttribute("role", "tooltip");
  voice.className = "unseen";
  voice.id = "voice";
  voice.setAttribute("role", "status");
  document.body.append(box, voice);

  function show(lines, left, top, colour, aloud) {
    box.replaceChildren(...lines.filter(Boolean).map((text, i) => Object.assign(document.createElement(i ? "span" : "b"), { textContent: text })));
    box.style.borderLeftColor = colour ?? "";
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect(), wide = root().clientWidth;
    box.style.left = `${Math.max(4, Math.min(left + 14, wide - width - 4))}px`;
    box.style.top = `${top + 16 + height > innerHeight ? Math.max(4, top - height - 12) : top + 16}px`;
    if (aloud) voice.textContent = lines.filter(Boolean).join(": ");
  }
  const root = () => document.documentElement;
  const hide = () => { box.hidden = true; };
  return { show, hide };
})();
