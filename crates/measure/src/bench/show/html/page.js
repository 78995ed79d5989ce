"use strict";
// Adds to plots that are complete without it: values under the pointer or the arrow keys, hidden series, saved files.
// It draws no data: the program has drawn all of it.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const button = (parent, text, act) => {
    const element = parent.appendChild(document.createElement("button"));
    element.type = "button";
    element.textContent = text;
    element.addEventListener("click", act);
  };
  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
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

  // A key of the legend hides its series in every drawing of the figure.
  const keys = (figure, hidden) => {
    for (const key of figure.querySelectorAll(".key")) {
      const n = key.dataset.n;
      const toggle = () => {
        if (!hidden.delete(n)) hidden.add(n);
        const off = hidden.has(n);
        figure.querySelectorAll(`.data > [data-n="${n}"], .row > [data-n="${n}"]`).forEach((drawn) => drawn.classList.toggle("gone", off));
        figure.querySelectorAll(`.key[data-n="${n}"]`).forEach((k) => { k.classList.toggle("off", off); k.setAttribute("aria-pressed", String(!off)); });
      };
      for (const [name, value] of Object.entries({ role: "button", tabindex: "0", "aria-pressed": "true" })) key.setAttribute(name, value);
      key.addEventListener("click", toggle);
      key.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); toggle(); }
      });
    }
  };

  // The arrow keys walk over `count` places; Home and End are the first and the last.
  const walk = (svg, [back, on], count, now, go, leave) => {
    svg.setAttribute("tabindex", "0");
    for (const name of ["pointerleave", "blur"]) svg.addEventListener(name, leave);
    svg.addEventListener("keydown", (event) => {
      if (event.target !== svg) return;
      if (event.key === "Escape") return leave();
      const next = { [back]: now() - 1, [on]: now() + 1, Home: 0, End: count - 1 }[event.key];
      if (next === undefined || !count) return;
      event.preventDefault();
      go(Math.min(count - 1, Math.max(0, next)));
    });
  };

  // Series over an axis: places on it are parts of its length, values are words.
  const lines = (figure, data, hidden) => {
    const nearest = (places, at) => places.reduce((best, place, n) => Math.abs(place - at) < Math.abs(places[best] - at) ? n : best, 0);
    const leave = () => {
      tip.hidden = true;
      figure.querySelectorAll(".cursor").forEach((cursor) => cursor.remove());
    };
    for (const svg of figure.querySelectorAll("svg.plot")) {
      const panels = [...svg.querySelectorAll(".panel")].map((g) => {
        const [left, top, right, bottom] = g.dataset.rect.split(" ").map(Number);
        return { g, left, top, right, bottom, ...data.panels[g.dataset.panel] };
      });
      let now = -1;
      const point = (panel, n, clientX, clientY) => {
        leave();
        now = n;
        for (const { g, left, top, right, bottom } of panels) {
          const x = left + panel.x[n] * (right - left), cursor = document.createElementNS(SVG, "line");
          for (const [name, value] of Object.entries({ class: "cursor", x1: x, x2: x, y1: top, y2: bottom })) cursor.setAttribute(name, value);
          g.appendChild(cursor);
        }
        tell(clientX, clientY, (box) => {
          word(box, "b", [panel.name, panel.at[n]].filter(Boolean).join(", "));
          for (const series of panel.series.filter((s) => !hidden.has(String(s.n)))) {
            const line = word(box, "div", ""), value = series.y[series.x ? nearest(series.x, panel.x[n]) : n];
            word(line, "i", "").style.background = getComputedStyle(svg).getPropertyValue("--" + data.palette + (series.n % 6));
            line.append(data.names[series.n] || "value");
            word(line, "span", value === null || value === undefined ? "-" : value + data.suffix);
          }
        });
      };
      svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect(), factor = svg.viewBox.baseVal.width / box.width;
        const x = (event.clientX - box.left) * factor, y = (event.clientY - box.top) * factor;
        const panel = panels.find((p) => x >= p.left && x <= p.right && y >= p.top && y <= p.bottom);
        if (!panel || !panel.x.length) return leave();
        point(panel, nearest(panel.x, (x - panel.left) / (panel.right - panel.left)), event.clientX, event.clientY);
      });
      walk(svg, ["ArrowLeft", "ArrowRight"], panels.length ? panels[0].x.length : 0, () => now, (n) => {
        const box = svg.getBoundingClientRect(), factor = box.width / svg.viewBox.baseVal.width, panel = panels[0];
        point(panel, n, box.left + (panel.left + panel.x[n] * (panel.right - panel.left)) * factor, box.top + panel.top * factor);
      }, leave);
    }
  };

  // Rows carry their words.
  const rows = (figure) => {
    for (const svg of figure.querySelectorAll("svg.plot")) {
      const all = [...svg.querySelectorAll(".row")];
      let now = -1;
      const leave = () => { tip.hidden = true; };
      const point = (row, x, y) => { now = all.indexOf(row); tell(x, y, (box) => word(box, "div", row.dataset.tip)); };
      svg.addEventListener("pointermove", (event) => {
        const row = event.target.closest(".row");
        if (row) point(row, event.clientX, event.clientY); else leave();
      });
      walk(svg, ["ArrowUp", "ArrowDown"], all.length, () => now, (n) => {
        const box = all[n].getBoundingClientRect();
        point(all[n], box.left + box.width / 2, box.bottom);
      }, leave);
    }
  };

  // A file of its own: the sheet's rules for plots go inside, with the colours as they are now.
  const standalone = (svg) => {
    const copy = svg.cloneNode(true), now = getComputedStyle(svg);
    copy.querySelectorAll(".cursor").forEach((c) => c.remove());
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
    const points = figure.querySelector("script.points"), hidden = new Set();
    const tools = document.createElement("div");
    tools.className = "tools";
    figure.insertBefore(tools, figure.firstChild.nextSibling);
    if (points) lines(figure, JSON.parse(points.textContent), hidden); else rows(figure);
    keys(figure, hidden);
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
