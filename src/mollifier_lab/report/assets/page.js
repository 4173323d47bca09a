"use strict";
// Draws the plots of every task from the JSON beside it, again whenever a control or the colour scheme changes; sorts the tables.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)");
  const narrow = matchMedia("(max-width: 600px)");
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const COLOURS = 7;

  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const fade = (hex, alpha) => `rgba(${rgb(hex).join(",")},${alpha})`;
  // Plotly reads a few tags and templates in its texts: a name is only ever a name.
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("%{", "%&#123;");

  function ramp(part) {
    const stops = ["--shallow", "--middle", "--deep"].map((name) => rgb(css(name)));
    const at = Math.min(1, Math.floor(part * 2));
    return `rgb(${stops[at].map((value, i) => Math.round(value + (stops[at + 1][i] - value) * (part * 2 - at))).join(",")})`;
  }

  function wrap(text, width) {
    const lines = [""];
    for (const word of text.split(" ")) {
      const last = lines.length - 1;
      if (lines[last] && lines[last].length + word.length >= width) lines.push(word);
      else lines[last] += (lines[last] ? " " : "") + word;
    }
    return lines.map(plain).join("<br>");
  }

  function axis(title, more) {
    return {
      title: { text: title, font: { size: 12.5 }, standoff: 8 }, gridcolor: css("--faint"), zerolinecolor: css("--faint"), linecolor: css("--line"),
      tickfont: { size: 11.5, color: css("--soft") }, automargin: true, fixedrange: touch.matches, ticks: "outside", ticklen: 4, tickcolor: css("--line"), ...more,
    };
  }

  // 1, 2 and 5 of each power of ten, or the powers alone where there are many: plotly's own labels run into each other
  function logTicks(values) {
    const finite = values.filter((value) => value > 0);
    const low = Math.floor(Math.log10(Math.min(...finite, 1e300))), high = Math.ceil(Math.log10(Math.max(...finite, 1e-300)));
    const ticks = [];
    for (let power = low; power <= high; power++) for (const digit of high - low > 3 ? [1] : [1, 2, 5]) ticks.push(Number(`${digit}e${power}`));
    return { tickvals: ticks };
  }

  function show(id, traces, layout) {
    for (const [name, key] of [["xaxis", "x"], ["yaxis", "y"]]) {
      if (layout[name].type === "log") Object.assign(layout[name], logTicks(traces.flatMap((trace) => trace[key])));
    }
    const font = { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: css("--soft") };
    const base = {
      paper_bgcolor: css("--surface"), plot_bgcolor: css("--surface"), font, showlegend: false, hovermode: "closest",
      margin: { l: 14, r: 18, t: 14, b: 14 }, dragmode: touch.matches ? false : "zoom",
      hoverlabel: { bgcolor: css("--page"), bordercolor: css("--line"), font: { ...font, color: css("--ink") }, namelength: -1 },
    };
    // the buttons are named one by one: plotly's own choice has one that sends the data away
    const config = {
      responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "", displayModeBar: !narrow.matches,
      modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "resetScale2d"]],
    };
    Plotly.react(id, traces, { ...base, ...layout }, config);
  }

  const AXES = { updates: "updates", epochs: "epochs", seconds: "seconds of wall-clock" };
  const horizontal = (state) => axis(AXES[state.x], { rangemode: "tozero", showgrid: false });
  const vertical = (metric, state) => axis("", { type: state.log ? "log" : "linear", tickformat: metric.percent ? "~%" : "~g", nticks: 7 });
  const unit = (state) => ({ updates: "update %{x:,}", epochs: "epoch %{x:,.4~g}", seconds: "%{x:,.1f} s" })[state.x];
  // epochs are updates on another scale
  const across = (of, points, state) => (state.x === "epochs" ? points.updates.map((at) => at * of.epochs) : points[state.x]);
  const amount = (metric, name) => (metric.percent ? `%{${name}:.2%}` : `%{${name}:.3~g}`);

  // The band, the mean on it, and a thin line for each seed, of one variant in one metric.
  function lines(task, variant, place, state) {
    const of = task.variants[variant], metric = task.metrics[place], band = of.bands[place];
    const colour = css(`--c${variant % COLOURS}`), dash = DASHES[Math.floor(variant / COLOURS) % DASHES.length];
    const name = plain(of.name), value = amount(metric, "y");
    const edge = { x: across(of, band, state), mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
    const thin = !state.seeds ? [] : of.seeds.map((seed) => ({
      x: across(of, seed.lines[place], state), y: seed.lines[place].values, mode: "lines", line: { color: fade(colour, 0.5), width: 0.8, dash },
      hovertemplate: `${unit(state)}: ${value}<extra>${name}, seed ${seed.seed} (${seed.status})</extra>`,
    }));
    const mean = {
      x: across(of, band, state), y: band.mean, mode: "lines", name, line: { color: colour, width: 2.4, dash },
      hovertemplate: `${unit(state)}: ${value}<extra>${name}, mean of ${of.averaged}</extra>`,
    };
    return [{ ...edge, y: band.low }, { ...edge, y: band.high, fill: "tonexty", fillcolor: fade(colour, 0.15) }, ...thin, mean];
  }

  function drawFinal(task, state) {
    const value = amount(task.headline, "x"), traces = [];
    const height = 44 * task.variants.length + 70;
    document.getElementById(`final-${state.number}`).style.height = `${height + 2}px`;
    task.variants.forEach((of, row) => {
      const colour = css(`--c${row % COLOURS}`), name = plain(of.name);
      if (state.hidden.has(row)) return;
      traces.push({
        x: of.final.map((each) => each.value), y: of.final.map(() => row + 0.28), mode: "markers", marker: { color: fade(colour, 0.6), size: 6 },
        customdata: of.final.map((each) => each.seed), hovertemplate: `${value}<extra>${name}, seed %{customdata}</extra>`,
      });
      traces.push({
        x: [of.mean], y: [row], mode: "markers", marker: { color: colour, size: 11, symbol: "diamond", line: { color: css("--surface"), width: 1 } },
        error_x: { type: "data", symmetric: false, array: [of.high - of.mean], arrayminus: [of.mean - of.low], visible: of.high !== null, color: colour, thickness: 2, width: 6 },
        hovertemplate: `${value}<extra>${name}, mean of ${of.n}</extra>`,
      });
      if (of.paper !== null) traces.push({
        x: [of.paper], y: [row - 0.3], mode: "markers", marker: { color: css("--ink"), size: 9, symbol: "x-thin", line: { color: css("--ink"), width: 2 } },
        hovertemplate: `${value}<extra>${name}, the paper</extra>`,
      });
    });
    const names = task.variants.map((of) => wrap(of.name, narrow.matches ? 18 : 40));
    show(`final-${state.number}`, traces, {
      height,
      xaxis: axis(task.headline.title, { type: state.log ? "log" : "linear", rangemode: "tozero", tickformat: task.headline.percent ? "~%" : "~g", nticks: narrow.matches ? 6 : 12 }),
      yaxis: axis("", { tickvals: names.map((_, row) => row), ticktext: names, range: [names.length - 0.4, -0.7], fixedrange: true, zeroline: false, ticks: "", tickfont: { size: 12.5, color: css("--ink") } }),
    });
  }

  function drawLevels(task, state) {
    task.levels.forEach((each, place) => {
      const count = each.blocks.length, x = across(task.variants[each.variant], each, state);
      const traces = each.blocks.map((y, block) => ({
        x, y, mode: "lines", line: { color: ramp(count > 1 ? block / (count - 1) : 1), width: count > 20 ? 1.2 : 2 },
        hovertemplate: `${unit(state)}: level %{y:.3f}<extra>block ${block + 1} of ${count}</extra>`,
      }));
      show(`levels-${state.number}-${place}`, traces, { xaxis: horizontal(state), yaxis: axis("", { range: [-0.04, 1.04], nticks: 6 }) });
      show(`loss-${state.number}-${place}`, lines(task, each.variant, 0, state), { xaxis: horizontal(state), yaxis: vertical(task.metrics[0], state) });
      document.getElementById(`ramp-${state.number}-${place}`).innerHTML = count > 1 ? `block 1 (input) <i></i> block ${count} (output)` : "one block";
    });
  }

  function draw({ task, state }) {
    drawFinal(task, state);
    task.metrics.forEach((metric, place) => {
      const traces = task.variants.flatMap((_, variant) => (state.hidden.has(variant) ? [] : lines(task, variant, place, state)));
      show(`curve-${state.number}-${place}`, traces, { xaxis: horizontal(state), yaxis: vertical(metric, state) });
    });
    drawLevels(task, state);
  }

  function wire(section) {
    const number = section.dataset.number;
    const task = JSON.parse(document.getElementById(`data-${number}`).textContent);
    const state = { number, x: "updates", log: false, seeds: true, hidden: new Set() };
    const found = { task, state };
    const timed = task.variants.some((of) => of.seeds.some((seed) => seed.lines[0].seconds.some((each) => each !== null)));
    const choices = section.querySelectorAll("[data-set]");
    for (const button of choices) {
      if (button.dataset.value === "epochs" && task.variants.some((of) => of.epochs === null)) Object.assign(button, { disabled: true, title: "the runs do not say how long an epoch is" });
      if (button.dataset.value === "seconds" && !timed) Object.assign(button, { disabled: true, title: "the runs have no clock.jsonl" });
      button.addEventListener("click", () => {
        state.x = button.dataset.value;
        for (const each of choices) each.setAttribute("aria-pressed", each === button);
        draw(found);
      });
    }
    for (const box of section.querySelectorAll("[data-toggle]")) {
      state[box.dataset.toggle] = box.checked; // a browser keeps the boxes over a reload
      box.addEventListener("change", () => { state[box.dataset.toggle] = box.checked; draw(found); });
    }
    for (const button of section.querySelectorAll("[data-variant]")) {
      button.addEventListener("click", () => {
        const variant = Number(button.dataset.variant), hide = !state.hidden.has(variant);
        state.hidden[hide ? "add" : "delete"](variant);
        button.setAttribute("aria-pressed", !hide);
        draw(found);
      });
    }
    draw(found);
    return found;
  }

  function sortable(table) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const each of heads) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      // an empty key is a value that is not there: last, whichever the way
      const key = (row) => row.cells[column].dataset.key;
      const size = (text) => (text === "inf" ? Number.MAX_VALUE : Number(text));
      const compare = (a, b) => (column === 0 ? a.localeCompare(b, "en") : size(a) - size(b));
      const order = (a, b) => (key(a) === "") - (key(b) === "") || (up ? 1 : -1) * compare(key(a), key(b));
      body.append(...[...body.rows].sort(order));
    }));
  }

  document.querySelectorAll("table.sortable").forEach(sortable);
  const tasks = [...document.querySelectorAll("section.task")].map(wire);
  const redraw = () => tasks.forEach(draw);
  for (const query of [dark, touch, narrow]) query.addEventListener("change", redraw);
  // paper is white
  addEventListener("beforeprint", () => { root.dataset.theme = "light"; redraw(); });
  addEventListener("afterprint", () => { delete root.dataset.theme; redraw(); });
})();
