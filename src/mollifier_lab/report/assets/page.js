"use strict";
// The controls, the tables and the names of the page; and, where it is served, news while runs go on.
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const states = new Map(); // by task: what the controls are set to outlives a refresh
  let tasks = [];

  function freshState(task, section) {
    return {
      x: "updates", scale: "auto", smooth: 0, final: 0, seeds: section.querySelector("[data-toggle=seeds]").checked,
      metrics: new Set(task.metrics.filter((metric) => metric.shown).map((metric) => metric.name)), hidden: new Set(), sort: null,
    };
  }

  function wire(section) {
    const number = section.dataset.number;
    const task = JSON.parse(document.getElementById(`data-${number}`).textContent);
    const state = states.get(section.id) ?? freshState(task, section), found = { task, state };
    states.set(section.id, state);
    state.number = number;
    const everyone = task.variants.map((of) => of.full);
    state.isolate = (key, more) => {
      const alone = everyone.length - 1 === state.hidden.size && !state.hidden.has(key);
      if (more) state.hidden[state.hidden.has(key) ? "delete" : "add"](key);
      else state.hidden = new Set(alone ? [] : everyone.filter((each) => each !== key));
      draw();
    };
    const all = (selector) => [...section.querySelectorAll(selector)];
    const timed = task.variants.some((of) => of.seeds.some((seed) => seed.seconds.length));
    function draw() {
      for (const button of all("[data-set]")) button.setAttribute("aria-pressed", state[button.dataset.set] === button.dataset.value);
      for (const button of all("[data-metric]")) button.setAttribute("aria-pressed", state.metrics.has(button.dataset.metric));
      for (const button of all("[data-variant]")) button.setAttribute("aria-pressed", !state.hidden.has(everyone[button.dataset.variant]));
      for (const row of all("tr[data-row]")) row.classList.toggle("hidden", state.hidden.has(everyone[row.dataset.row]));
      for (const button of all("[data-all]")) button.hidden = !state.hidden.size;
      for (const output of all("output")) output.textContent = Number(state.smooth).toFixed(2);
      Task.draw(found);
    }
    found.draw = draw;
    for (const button of all("[data-set]")) {
      if (button.dataset.value === "epochs" && task.variants.some((of) => of.epochs === null)) Object.assign(button, { disabled: true, title: "the runs do not say how long an epoch is" });
      if (button.dataset.value === "seconds" && !timed) Object.assign(button, { disabled: true, title: "the runs have no clock.jsonl" });
      button.addEventListener("click", () => { state[button.dataset.set] = button.dataset.value; draw(); });
    }
    for (const button of all("[data-metric]")) button.addEventListener("click", () => {
      const name = button.dataset.metric;
      state.metrics[state.metrics.has(name) ? "delete" : "add"](name);
      draw();
    });
    for (const box of all("[data-toggle]")) {
      box.checked = state[box.dataset.toggle];
      box.addEventListener("change", () => { state[box.dataset.toggle] = box.checked; draw(); });
    }
    for (const slider of all("[data-smooth]")) {
      slider.value = state.smooth;
      slider.addEventListener("input", () => { state.smooth = Number(slider.value); draw(); });
    }
    for (const choice of all("select[data-final]")) {
      choice.selectedIndex = state.final;
      choice.addEventListener("change", () => { state.final = choice.selectedIndex; draw(); });
    }
    for (const button of all("[data-variant]")) button.addEventListener("click", (event) => state.isolate(everyone[button.dataset.variant], event.shiftKey || event.ctrlKey || event.metaKey));
    for (const button of all("[data-all]")) button.addEventListener("click", () => { state.hidden.clear(); draw(); });
    for (const button of all("[data-save]")) button.addEventListener("click", () => Plot.save(document.getElementById(button.dataset.save), `${section.id}-${button.dataset.save}`));
    sortable(section.querySelector("table.sortable"), state);
    draw();
    return found;
  }

  function sortable(table, state) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    function sort({ column, up }) {
      for (const each of heads) each.removeAttribute("aria-sort");
      heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
      // an empty key is a value that is not there: last, whichever the way
      const key = (row) => row.cells[column].dataset.key;
      const size = (text) => (text === "inf" ? Number.MAX_VALUE : Number(text));
      const compare = (a, b) => (column === 0 ? a.localeCompare(b, "en") : size(a) - size(b));
      const order = (a, b) => (key(a) === "") - (key(b) === "") || (up ? 1 : -1) * compare(key(a), key(b));
      body.append(...[...body.rows].sort(order));
    }
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      state.sort = { column, up: head.getAttribute("aria-sort") !== "ascending" };
      sort(state.sort);
    }));
    if (state.sort) sort(state.sort);
  }

  // The full setting of a short name, on hover and on focus; the attribute that shows it without a script would show it twice.
  function names() {
    for (const each of document.querySelectorAll("[data-full]")) {
      each.removeAttribute("title");
      each.setAttribute("aria-description", each.dataset.full);
    }
  }
  const named = (event) => event.target.closest?.("[data-full]");
  for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, (event) => {
    const found = named(event);
    if (!found) return;
    const box = found.getBoundingClientRect();
    Tip.show(found.dataset.full.split("; "), box.left, box.bottom - 12);
  });
  for (const kind of ["pointerout", "focusout"]) document.addEventListener(kind, (event) => { if (named(event)) Tip.hide(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") Tip.hide(); });
  addEventListener("scroll", Tip.hide, { passive: true });

  function start() {
    names();
    tasks = [...document.querySelectorAll("section.task")].map(wire);
  }
  start();
  const redraw = () => { Plot.repaint(); tasks.forEach((each) => each.draw()); };
  for (const query of ["(prefers-color-scheme: dark)", "(pointer: coarse)"]) matchMedia(query).addEventListener("change", redraw);
  let wide = root.clientWidth;
  addEventListener("resize", () => { if (root.clientWidth !== wide) { wide = root.clientWidth; redraw(); } });
  // paper is white
  addEventListener("beforeprint", () => { root.dataset.theme = "light"; redraw(); });
  addEventListener("afterprint", () => { delete root.dataset.theme; redraw(); });

  if (!root.dataset.live) return;
  // Served: ask whether anything is new, and if so take the new page's contents, with the controls, the place and the focus as they are.
  const word = document.getElementById("live");
  let stamp = root.dataset.live;
  async function look() {
    try {
      const news = await (await fetch("state", { cache: "no-store" })).json();
      const plots = [...document.querySelectorAll(".plot")];
      if (plots.some((host) => host.plot?.at)) { // a value is being read: it is not taken away
        word.textContent = "Live: waiting while you read a value.";
        setTimeout(look, Number(word.dataset.every));
        return;
      }
      if (news.stamp !== stamp) {
        const text = await (await fetch("./", { cache: "no-store" })).text();
        const fresh = new DOMParser().parseFromString(text, "text/html");
        const open = [...document.querySelectorAll("details")].map((each) => each.open);
        const zooms = plots.filter((host) => host.plot?.zoom).map((host) => [host.id, host.plot.zoom]);
        const focus = document.activeElement?.id, scroll = scrollY;
        document.title = fresh.title;
        for (const part of ["header", "main"]) document.querySelector(part).replaceWith(fresh.querySelector(part));
        document.querySelectorAll("details").forEach((each, i) => { each.open = open[i] ?? false; });
        start();
        for (const [id, zoom] of zooms) { const host = document.getElementById(id); if (host?.plot) Plot.zoom(host, zoom); }
        scrollTo(0, scroll);
        if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
        stamp = fresh.documentElement.dataset.live;
        word.dataset.count = Number(word.dataset.count) + 1;
      }
      word.textContent = `Live: as of ${new Date().toLocaleTimeString()}.`;
    } catch {
      word.textContent = "Live: the server does not answer; this is what it showed last.";
    }
    setTimeout(look, Number(word.dataset.every));
  }
  setTimeout(look, Number(word.dataset.every));
})();
