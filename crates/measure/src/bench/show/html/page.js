"use strict";
// Adds to plots that are complete without it: values under the pointer or the arrow keys, hiding of series, zoom, saving.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const make = (parent, name, attributes, text) => {
    const element = parent.appendChild(document.createElementNS(SVG, name));
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const button = (parent, text, act) => {
    const element = parent.appendChild(document.createElement("button"));
    element.type = "button";
    element.textContent = text;
    element.addEventListener("click", act);
    return element;
  };
  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };

  // Numbers as the report writes them.
  const digits = (value) => {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size < 1e-3 || size >= 9999999.5) return value.toExponential(1);
    const plain = (n) => String(parseFloat(value.toFixed(n)));
    return size >= 99.95 ? value.toFixed(0) : plain(size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3);
  };
  const scaled = (value, base, units) => {
    let unit = 0;
    while (Math.abs(value) >= base * 0.9995 && unit + 1 < units.length) { value /= base; unit += 1; }
    return digits(value) + units[unit];
  };
  const named = { Seconds: " s", Percent: " %", Celsius: " °C", Megahertz: " MHz", Watts: " W", Milliseconds: " ms" };
  const show = (unit, value) => {
    if (value === null || !isFinite(value)) return "-";
    if (unit === "Rate") return digits(value / 1e6) + " MB/s";
    if (unit === "Iops") return scaled(value, 1000, ["", "k", "M"]) + " IOPS";
    if (unit === "Files") return scaled(value, 1000, ["", "k", "M"]) + " files/s";
    if (unit === "Size") return scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
    if (unit === "Latency") return scaled(value, 1000, [" µs", " ms", " s"]);
    return digits(value) + (named[unit] || "");
  };
  const tick = (unit, value) => unit === "Rate" ? digits(value / 1e6) : unit === "Size" ? show(unit, value) : digits(value);

  const place = (axis, value) => axis.kind === "Linear"
    ? (value - axis.low) / (axis.high - axis.low)
    : Math.log(value / axis.low) / Math.log(axis.high / axis.low);
  const value = (axis, part) => axis.kind === "Linear"
    ? axis.low + part * (axis.high - axis.low)
    : axis.low * Math.pow(axis.high / axis.low, part);
  const ticks = (axis, most) => {
    const found = [];
    if (axis.kind === "Linear") {
      const rough = (axis.high - axis.low) / Math.max(1, most);
      const power = Math.pow(10, Math.floor(Math.log10(rough)));
      const step = power * ([1, 2, 5].find((f) => rough <= f * power * (1 + 1e-9)) || 10);
      for (let n = Math.ceil(axis.low / step - 1e-9); n * step <= axis.high + step * 1e-9 && found.length < 100; n += 1) found.push(n * step);
      return found;
    }
    const base = axis.kind === "Log2" ? 2 : 10;
    const log = (v) => Math.log(v) / Math.log(base);
    const first = Math.ceil(log(axis.low) - 1e-9), last = Math.floor(log(axis.high) + 1e-9);
    const each = Math.ceil((last - first + 1) / Math.max(1, most)) || 1;
    for (let n = first; n <= last; n += each) found.push(Math.pow(base, n));
    return found;
  };

  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  const tell = (x, y, fill) => {
    tip.replaceChildren();
    fill(tip);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16) + "px";
    tip.style.top = Math.max(4, Math.min(y + 12, innerHeight - box.height - 4)) + "px";
  };
  const word = (parent, name, text) => {
    const element = parent.appendChild(document.createElement(name));
    element.textContent = text;
    return element;
  };

  // Series over an axis. `view` is what of the x axis is seen; all drawings of a figure share it.
  class Lines {
    constructor(figure, data) {
      Object.assign(this, { figure, data, hidden: new Set(), at: null });
      this.view = { ...data.x };
      this.svgs = [...figure.querySelectorAll("svg.plot")];
      for (const panel of data.panels) for (const s of panel.series) s.x = s.x || panel.x;
      this.svgs.forEach((svg) => this.attach(svg));
    }
    panels(svg) {
      return [...svg.querySelectorAll(".panel")].map((g) => {
        const [left, top, right, bottom] = g.dataset.rect.split(" ").map(Number);
        return { g, left, top, right, bottom, data: this.data.panels[g.dataset.panel] };
      });
    }
    // The panel and the place on x (0 to 1) under a pointer.
    under(svg, event) {
      const box = svg.getBoundingClientRect(), factor = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * factor, y = (event.clientY - box.top) * factor;
      const panel = this.panels(svg).find((p) => x >= p.left && x <= p.right && y >= p.top && y <= p.bottom);
      return panel && { panel, x, part: (x - panel.left) / (panel.right - panel.left) };
    }
    attach(svg) {
      let from = null;
      svg.setAttribute("tabindex", "0");
      svg.addEventListener("pointerdown", (event) => {
        from = event.button === 0 && !event.target.closest(".key") ? this.under(svg, event) : null;
        if (from) event.preventDefault(), svg.focus({ preventScroll: true });
      });
      svg.addEventListener("pointermove", (event) => {
        const now = this.under(svg, event);
        if (from && now && now.panel.g === from.panel.g) this.brush(from, now);
        if (now) this.hover(svg, now, event); else this.leave();
      });
      svg.addEventListener("pointerup", (event) => {
        const now = this.under(svg, event);
        svg.querySelectorAll(".brush").forEach((b) => b.remove());
        if (from && now && now.panel.g === from.panel.g && Math.abs(now.x - from.x) > 6) this.zoom(from.part, now.part);
        from = null;
      });
      svg.addEventListener("pointerleave", () => { from = null; svg.querySelectorAll(".brush").forEach((b) => b.remove()); this.leave(); });
      svg.addEventListener("blur", () => this.leave());
      svg.addEventListener("dblclick", () => this.reset());
      svg.addEventListener("keydown", (event) => this.key(svg, event));
      for (const key of svg.querySelectorAll(".key")) {
        const toggle = () => this.toggle(Number(key.dataset.n));
        key.setAttribute("role", "button");
        key.setAttribute("tabindex", "0");
        key.setAttribute("aria-pressed", "true");
        key.addEventListener("click", toggle);
        key.addEventListener("keydown", (event) => {
          if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); toggle(); }
        });
      }
    }
    brush(from, now) {
      from.panel.g.querySelectorAll(".brush").forEach((b) => b.remove());
      make(from.panel.g, "rect", { class: "brush", x: Math.min(from.x, now.x), y: from.panel.top, width: Math.abs(now.x - from.x), height: from.panel.bottom - from.panel.top });
    }
    seen(panel) { return panel.data.series.filter((s) => !this.hidden.has(s.n)); }
    nearest(series, x) {
      let best = 0;
      const far = (n) => Math.abs(place(this.view, series.x[n]) - place(this.view, x));
      for (let n = 1; n < series.x.length; n += 1) if (far(n) < far(best)) best = n;
      return best;
    }
    hover(svg, now, event) { this.point(svg, now.panel, value(this.view, now.part), event.clientX, event.clientY); }
    point(svg, panel, x, clientX, clientY) {
      const series = this.seen(panel).filter((s) => s.x.length);
      if (!series.length) return this.leave();
      const at = series[0].x[this.nearest(series[0], x)];
      this.at = at;
      for (const p of this.panels(svg)) {
        p.g.querySelectorAll(".cursor").forEach((c) => c.remove());
        const across = p.left + place(this.view, at) * (p.right - p.left);
        if (across >= p.left && across <= p.right) make(p.g, "line", { class: "cursor", x1: across, x2: across, y1: p.top, y2: p.bottom });
      }
      tell(clientX, clientY, (box) => {
        word(box, "b", [panel.data.name, show(this.data.x.unit, at)].filter(Boolean).join(", "));
        for (const s of series) {
          const line = word(box, "div", "");
          const sign = word(line, "i", "");
          sign.style.background = getComputedStyle(svg).getPropertyValue("--" + this.data.palette + (s.n % 6));
          line.append(this.data.names[s.n] || "value");
          word(line, "span", show(this.data.y.unit, s.y[this.nearest(s, at)]));
        }
      });
    }
    leave() {
      tip.hidden = true;
      this.svgs.forEach((svg) => svg.querySelectorAll(".cursor").forEach((c) => c.remove()));
    }
    key(svg, event) {
      if (event.target !== svg) return;
      const panel = this.panels(svg)[0];
      const xs = panel && panel.data.series.length ? panel.data.series[0].x : [];
      const inView = xs.filter((x) => place(this.view, x) >= -1e-9 && place(this.view, x) <= 1 + 1e-9);
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (event.key === "Escape" || event.key === "0") this.reset();
      else if (event.key === "+" || event.key === "-") this.magnify(event.key === "+" ? 0.5 : 2);
      else if (inView.length && (step || event.key === "Home" || event.key === "End")) {
        const now = inView.indexOf(this.at);
        const next = event.key === "Home" ? 0 : event.key === "End" ? inView.length - 1
          : now < 0 ? 0 : Math.min(inView.length - 1, Math.max(0, now + step));
        const box = svg.getBoundingClientRect(), factor = box.width / svg.viewBox.baseVal.width;
        const x = panel.left + place(this.view, inView[next]) * (panel.right - panel.left);
        this.point(svg, panel, inView[next], box.left + x * factor, box.top + panel.top * factor);
      } else return;
      event.preventDefault();
    }
    magnify(factor) {
      const centre = this.at === null ? 0.5 : Math.min(1, Math.max(0, place(this.view, this.at)));
      this.zoom(centre - centre * factor, centre + (1 - centre) * factor);
    }
    zoom(a, b) {
      const whole = this.data.x;
      const low = Math.max(whole.low, value(this.view, Math.min(a, b))), high = Math.min(whole.high, value(this.view, Math.max(a, b)));
      if (place(whole, high) - place(whole, low) < 1e-4) return;
      this.view = { ...whole, low, high };
      this.draw();
    }
    reset() { this.view = { ...this.data.x }; this.draw(); this.leave(); }
    toggle(n) {
      if (!this.hidden.delete(n)) this.hidden.add(n);
      this.draw();
    }
    draw() {
      const whole = this.view.low === this.data.x.low && this.view.high === this.data.x.high;
      if (this.resetter) this.resetter.hidden = whole;
      for (const svg of this.svgs) {
        for (const key of svg.querySelectorAll(".key")) {
          const off = this.hidden.has(Number(key.dataset.n));
          key.classList.toggle("off", off);
          key.setAttribute("aria-pressed", String(!off));
        }
        this.panels(svg).forEach((panel) => this.drawPanel(panel));
      }
    }
    drawPanel(p) {
      const x = (v) => p.left + place(this.view, v) * (p.right - p.left);
      const y = (v) => p.bottom - Math.min(1, Math.max(0, place(this.data.y, v))) * (p.bottom - p.top);
      const point = (a, b) => a.toFixed(1) + " " + b.toFixed(1);
      const below = [];
      for (const s of p.data.series) {
        const g = p.g.querySelector(`.data > [data-n="${s.n}"]`);
        const off = this.hidden.has(s.n);
        g.classList.toggle("gone", off);
        if (off) continue;
        let d = "", open = false, upper = [], lower = [];
        const close = () => { if (upper.length) d += "M" + upper.concat(lower.reverse()).join("L") + "Z"; upper = []; lower = []; };
        s.x.forEach((at, n) => {
          const known = this.data.stacked ? p.data.series.some((o) => o.y[n] !== null) : s.y[n] !== null;
          if (!known) { open = false; close(); return; }
          if (this.data.stacked) {
            const base = below[n] || 0;
            below[n] = base + Math.max(0, s.y[n] || 0);
            upper.push(point(x(at), y(below[n])));
            lower.push(point(x(at), y(base)));
          } else {
            d += (open ? "L" : "M") + point(x(at), y(s.y[n]));
            open = true;
          }
        });
        close();
        g.querySelector("path").setAttribute("d", d);
        // Dots keep their shape and move by as much as their value moved.
        const shown = s.x.filter((_, n) => s.y[n] !== null), whole = this.data.x;
        g.querySelectorAll(".dot").forEach((dot, n) => {
          const old = p.left + place(whole, shown[n]) * (p.right - p.left);
          dot.setAttribute("transform", `translate(${(x(shown[n]) - old).toFixed(1)} 0)`);
        });
      }
      this.drawTicks(p, x);
      for (const mark of p.g.querySelectorAll(".mark")) {
        const part = place(this.view, Number(mark.dataset.x));
        const old = p.left + place(this.data.x, Number(mark.dataset.x)) * (p.right - p.left);
        mark.classList.toggle("gone", part < 0 || part > 1);
        mark.setAttribute("transform", `translate(${(x(Number(mark.dataset.x)) - old).toFixed(1)} 0)`);
      }
    }
    drawTicks(p, x) {
      const g = p.g.querySelector(".x-ticks");
      g.replaceChildren();
      for (const at of ticks(this.view, Math.max(1, Math.floor((p.right - p.left) / (this.data.x.unit === "Size" ? 74 : 50))))) {
        make(g, "line", { class: "grid", x1: x(at), x2: x(at), y1: p.top, y2: p.bottom });
        if (g.dataset.labels === "1") make(g, "text", { class: "tick middle", x: x(at), y: p.bottom + 16 }, tick(this.data.x.unit, at));
      }
    }
  }

  // Rows carry their values; keys hide the dots of one kind.
  const rows = (figure) => {
    for (const svg of figure.querySelectorAll("svg.plot")) {
      const all = [...svg.querySelectorAll(".row")];
      let now = -1;
      const point = (row, x, y) => { now = all.indexOf(row); tell(x, y, (box) => word(box, "div", row.dataset.tip)); };
      svg.setAttribute("tabindex", "0");
      svg.addEventListener("pointermove", (event) => {
        const row = event.target.closest(".row");
        if (row) point(row, event.clientX, event.clientY); else tip.hidden = true;
      });
      for (const name of ["pointerleave", "blur"]) svg.addEventListener(name, () => { tip.hidden = true; });
      svg.addEventListener("keydown", (event) => {
        const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
        if (event.target !== svg || !all.length) return;
        if (event.key === "Escape") tip.hidden = true;
        if (!step) return;
        event.preventDefault();
        const row = all[Math.min(all.length - 1, Math.max(0, now + step))], box = row.getBoundingClientRect();
        point(row, box.left + box.width / 2, box.bottom);
      });
    }
    const hidden = new Set();
    for (const key of figure.querySelectorAll(".key")) {
      const n = key.dataset.n;
      const toggle = () => {
        if (!hidden.delete(n)) hidden.add(n);
        const off = hidden.has(n);
        figure.querySelectorAll(`.row > [data-n="${n}"]`).forEach((dot) => dot.classList.toggle("gone", off));
        figure.querySelectorAll(`.key[data-n="${n}"]`).forEach((k) => { k.classList.toggle("off", off); k.setAttribute("aria-pressed", String(!off)); });
      };
      key.setAttribute("role", "button");
      key.setAttribute("tabindex", "0");
      key.setAttribute("aria-pressed", "true");
      key.addEventListener("click", toggle);
      key.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
      });
    }
  };

  // A file of its own: the sheet's rules for plots go inside, with the colours as they are now.
  const standalone = (svg) => {
    const copy = svg.cloneNode(true), now = getComputedStyle(svg);
    copy.querySelectorAll(".cursor, .brush").forEach((c) => c.remove());
    const rules = document.getElementById("style").textContent.split("\n").filter((r) => r.startsWith(".plot ")).join("\n");
    const style = document.createElementNS(SVG, "style");
    style.textContent = `.plot{font:${now.font}}` + rules.replace(/var\((--\w+)\)/g, (_, name) => now.getPropertyValue(name).trim());
    const paper = document.createElementNS(SVG, "rect");
    for (const [k, v] of Object.entries({ width: "100%", height: "100%", class: "paper" })) paper.setAttribute(k, v);
    copy.prepend(style, paper);
    for (const size of ["width", "height"]) copy.setAttribute(size, svg.viewBox.baseVal[size]);
    return new XMLSerializer().serializeToString(copy);
  };

  const download = document.querySelector(".download");
  const stem = (download ? download.dataset.name : "larder-bench").replace(/[^\w.-]+/g, "-");
  for (const figure of document.querySelectorAll(".fig")) {
    const points = figure.querySelector("script.points");
    const tools = document.createElement("div");
    tools.className = "tools";
    figure.insertBefore(tools, figure.firstChild.nextSibling);
    if (points) {
      const lines = new Lines(figure, JSON.parse(points.textContent));
      lines.resetter = button(tools, "Whole range", () => lines.reset());
      lines.resetter.hidden = true;
    } else rows(figure);
    button(tools, "Save SVG", () => {
      const svg = [...figure.querySelectorAll("svg.plot")].find((s) => s.getClientRects().length);
      save(`${stem}-${figure.id}.svg`, "image/svg+xml", standalone(svg));
    });
  }
  if (download) {
    download.textContent = "";
    button(download, "Download the complete result as JSON", () =>
      save(`${stem}.json`, "application/json", document.getElementById("result").textContent));
  }
  document.documentElement.classList.add("alive");
})();
