// What pages can do beside being read. All changes are methods of WebDAV; the server checks each of them.
"use strict";
(() => {
  const $ = (selector, at = document) => at.querySelector(selector);
  const $$ = (selector, at = document) => [...at.querySelectorAll(selector)];
  const csrf = $("meta[name=csrf]")?.content ?? "";
  const body = document.body;
  const here = () => location.pathname;
  const encoded = (path) => path.split("/").map(encodeURIComponent).join("/");
  const nameOf = (path) => path.replace(/\/$/, "").split("/").pop();
  // On a small screen the navigation is wider than its place.
  $(".bar ul [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  function el(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (name === "class") made.className = value;
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value != null) made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  function icon(name) {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("class", `icon i-${name}`);
    svg.setAttribute("aria-hidden", "true");
    const use = document.createElementNS(space, "use");
    use.setAttribute("href", `#i-${name}`);
    svg.append(use);
    return svg;
  }

  function human(bytes) {
    let value = bytes;
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (value < 1024) return unit === "B" ? `${bytes} B` : `${value.toFixed(1)} ${unit}`;
      value /= 1024;
    }
    return `${value.toFixed(1)} TiB`;
  }

  const counted = (count, one, many) => `${count} ${count === 1 ? one : many}`;

  // Times in the zone of the browser, and buttons that need this script.
  function prepare(at) {
    const show = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
    const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
    for (const time of $$("time[datetime]", at)) {
      const moment = new Date(time.dateTime);
      if (!isNaN(moment)) {
        time.textContent = (time.closest(".below") ? day : show).format(moment);
        time.title = moment.toLocaleString();
      }
    }
    for (const hidden of $$(".js[hidden]", at)) hidden.hidden = false;
    if (!body.classList.contains("folder")) return;
    if (!$("table.files", at)) return;
    showSelection();
  }

  const toasts = el("div", { class: "toasts" });
  toasts.setAttribute("aria-live", "polite");
  body.append(toasts);

  function toast(text, bad = false) {
    const made = el("div", { class: bad ? "toast bad" : "toast", role: bad ? "alert" : "status" }, text);
    toasts.append(made);
    setTimeout(() => made.remove(), bad ? 9000 : 4000);
  }

  class Refused extends Error {
    constructor(status, text) {
      super(text);
      this.status = status;
    }
  }

  function reason(status, text) {
    if (status === 401) return "You are logged out. Log in again.";
    if (status === 207) return "Parts of it could not be changed: they are locked, or not yours to change.";
    if (status === 423) return "It is locked or in use by another program.";
    if (status === 507) return "There is no room left.";
    const line = (text || "").trim().split("\n")[0];
    if (!line || line.startsWith("<")) return `The server refused it (${status}).`;
    return line.charAt(0).toUpperCase() + line.slice(1).replace(/\.?$/, ".");
  }

  async function ask(method, url, headers = {}) {
    let answer;
    try {
      answer = await fetch(url, { method, headers: { "X-CSRF-Token": csrf, ...headers }, redirect: "error", cache: "no-store" });
    } catch {
      throw new Refused(0, "The server cannot be reached.");
    }
    if (!answer.ok || answer.status === 207) throw new Refused(answer.status, reason(answer.status, await answer.text()));
    return answer;
  }

  // Shows the page as it is now, and keeps the place.
  async function refresh() {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const main = $("#main", fresh);
      if (!answer.ok || answer.redirected || !main) return location.reload();
      $("#main").replaceChildren(...[...main.childNodes].map((node) => document.importNode(node, true)));
      prepare($("#main"));
    } catch {
      toast("The server cannot be reached.", true);
    }
  }

  // A dialog; resolves to the value of the button, or null.
  function dialog(title, content, buttons) {
    return new Promise((resolve) => {
      const heading = el("h2", { id: "dialog-title" }, title);
      const row = el("div", { class: "row" });
      const form = el("form", { method: "dialog" }, heading, ...content, row);
      const made = el("dialog", { "aria-labelledby": "dialog-title" }, form);
      for (const { text, value, kind } of buttons) {
        row.append(el("button", { class: `button ${kind ?? ""}`, value, type: value === "" ? "button" : "submit", formnovalidate: value === "", onclick: value === "" ? () => made.close("") : () => {} }, text));
      }
      made.addEventListener("close", () => {
        const value = made.returnValue;
        made.remove();
        resolve(value === "" ? null : value);
      });
      body.append(made);
      made.showModal();
      made.returnValue = "";
      const first = $("input:not([type=checkbox])", made);
      if (first) {
        first.focus();
        const dot = first.value.lastIndexOf(".");
        first.setSelectionRange(0, dot > 0 && first.dataset.file ? dot : first.value.length);
      } else if (buttons.some((button) => button.kind === "danger")) {
        row.firstChild.focus();
      }
    });
  }

  const cancel = { text: "Cancel", value: "" };

  async function askName(title, label, value, action, isFile) {
    const input = el("input", { value, required: true, maxlength: 255, autocomplete: "off", spellcheck: "false", "data-file": isFile ? "1" : null });
    const field = el("label", { class: "field" }, label, input);
    input.addEventListener("input", () => input.setCustomValidity(/[/\0]/.test(input.value) || [".", ".."].includes(input.value) ? "A name has no slash in it and is not a dot." : ""));
    const done = await dialog(title, [field], [cancel, { text: action, value: "yes", kind: "primary" }]);
    return done && input.value ? input.value : null;
  }

  // One entry of the list.
  function entryOf(row) {
    const isFolder = row.dataset.kind === "folder";
    const link = $("td.name a", row);
    const url = new URL(link.getAttribute("href"), location.href).pathname;
    return { name: row.dataset.name, url, isFolder, link, row };
  }

  async function attempt(work, done) {
    try {
      await work();
      if (done) toast(done);
      return true;
    } catch (error) {
      toast(error.message, true);
      return false;
    }
  }

  async function makeFolder() {
    const name = await askName("New folder", "Name", "", "Make");
    if (!name) return;
    const made = await attempt(async () => {
      try {
        await ask("MKCOL", here() + encodeURIComponent(name) + "/");
      } catch (error) {
        if (error.status === 405) throw new Refused(405, `“${name}” exists already.`);
        throw error;
      }
    }, `“${name}” is made`);
    if (made) await refresh();
  }

  async function rename(entry) {
    const name = await askName(`Rename “${entry.name}”`, "New name", entry.name, "Rename", !entry.isFolder);
    if (!name || name === entry.name) return null;
    const slash = entry.isFolder ? "/" : "";
    const folder = entry.url.replace(/[^/]*\/?$/, "");
    const to = folder + encodeURIComponent(name) + slash;
    return (await attempt(() => move(entry, to), `Renamed to “${name}”`)) ? to : null;
  }

  async function move(entry, to) {
    try {
      await ask("MOVE", entry.url, { Destination: location.origin + to, Overwrite: "F" });
    } catch (error) {
      if (error.status === 412) throw new Refused(412, `“${decodeURIComponent(nameOf(to))}” exists there already.`);
      throw error;
    }
  }

  async function moveTo(entries) {
    const folder = await chooseFolder(`Move ${entries.length === 1 ? `“${entries[0].name}”` : counted(entries.length, "item", "items")}`);
    if (!folder || folder === here()) return;
    let moved = 0;
    for (const entry of entries) {
      const slash = entry.isFolder ? "/" : "";
      if (await attempt(() => move(entry, folder + nameOf(entry.url) + slash))) moved += 1;
    }
    if (moved) toast(`${counted(moved, "item", "items")} moved`);
    await refresh();
  }

  // A folder of the server; resolves to its path, or null.
  async function chooseFolder(title) {
    let at = here();
    const place = el("p", { class: "dim" });
    const list = el("ul", { class: "chooser" });
    const answer = dialog(title, [place, list], [cancel, { text: "Move here", value: "yes", kind: "primary" }]);
    const button = $("dialog .primary");
    async function show(path) {
      let names;
      try {
        names = await (await ask("GET", path + "?folders")).json();
      } catch (error) {
        return toast(error.message, true);
      }
      at = path;
      button.disabled = path === "/" || path === here();
      place.textContent = path === "/" ? "Shares" : decodeURIComponent(path).replace(/^\/|\/$/g, "").replaceAll("/", " / ");
      const item = (name, text, to) => el("li", {}, el("button", { type: "button", onclick: () => show(to) }, icon(name), text));
      const items = names.map((name) => item(path === "/" ? "share" : "folder", name, path + encodeURIComponent(name) + "/"));
      if (path !== "/") items.unshift(item("back", "One up", path.replace(/[^/]*\/$/, "")));
      if (!names.length) items.push(el("li", { class: "none" }, "No folders in here"));
      list.replaceChildren(...items);
      $("button", list)?.focus();
    }
    await show(at);
    return (await answer) ? at : null;
  }

  async function remove(entries) {
    const what = entries.length === 1 ? `“${entries[0].name}”` : counted(entries.length, "item", "items");
    const folders = entries.some((entry) => entry.isFolder);
    const text = folders ? "Folders are deleted with everything in them. Only a snapshot brings it back." : "Only a snapshot brings it back.";
    const sure = await dialog(`Delete ${what}?`, [el("p", {}, text)], [cancel, { text: "Delete", value: "yes", kind: "danger" }]);
    if (!sure) return false;
    let gone = 0;
    for (const entry of entries) if (await attempt(() => ask("DELETE", entry.url))) gone += 1;
    if (gone) toast(`${entries.length === 1 ? what : counted(gone, "item", "items")} deleted`);
    return gone > 0;
  }

  function download(entries) {
    if (entries.length === 1 && !entries[0].isFolder) return location.assign(entries[0].url + "?download");
    if (entries.length === 1) return location.assign(entries[0].url + "?zip");
    const form = el("form", { method: "post", action: here() + "?zip", hidden: true }, el("input", { name: "csrf", value: csrf }));
    for (const entry of entries) form.append(el("input", { name: "name", value: nameOf(entry.url) }));
    body.append(form);
    form.submit();
    form.remove();
  }

  // The menu of one entry.
  let menu = null;

  function closeMenu(focus = false) {
    if (!menu) return;
    menu.button.setAttribute("aria-expanded", "false");
    menu.sheet.remove();
    if (focus) menu.button.focus();
    menu = null;
  }

  function openMenu(button) {
    const isSame = menu?.button === button;
    closeMenu();
    if (isSame) return;
    const entry = entryOf(button.closest("tr"));
    const mayChange = body.classList.contains("can-change");
    const item = (name, text, work, bad) =>
      el("button", { role: "menuitem", tabindex: "-1", class: bad ? "bad" : "", onclick: () => { closeMenu(true); work(); } }, icon(name), text);
    const isOwn = !here().startsWith("/.link/");
    const items = [item(entry.isFolder ? "archive" : "down", entry.isFolder ? "Download as ZIP" : "Download", () => download([entry]))];
    if (mayChange) items.push(item("pen", "Rename", async () => (await rename(entry)) && refresh()), item("move", "Move to …", () => moveTo([entry])));
    if (isOwn && csrf && !here().includes("/.snapshots/")) items.push(item("link", "Share", () => location.assign(entry.url + "?share")));
    if (isOwn && !here().includes("/.snapshots/")) items.push(item("clock", "Versions", () => location.assign(entry.url + "?versions")));
    if (mayChange) items.push(item("bin", "Delete", async () => (await remove([entry])) && refresh(), true));
    const sheet = el("div", { class: "sheet float", role: "menu", "aria-label": `More for ${entry.name}` }, ...items);
    body.append(sheet);
    const box = button.getBoundingClientRect();
    const top = box.bottom + sheet.offsetHeight + 8 > innerHeight ? Math.max(8, box.top - sheet.offsetHeight - 4) : box.bottom + 4;
    sheet.style.top = `${top}px`;
    sheet.style.right = `${Math.max(8, document.documentElement.clientWidth - box.right)}px`;
    button.setAttribute("aria-expanded", "true");
    menu = { button, sheet };
    items[0].focus();
  }

  // Selected entries, and what can be done with them.
  let lastPicked = null;
  const picked = () => $$("tbody .pick input:checked").map((box) => entryOf(box.closest("tr")));
  const selection = el("div", { class: "float selection", role: "toolbar", "aria-label": "Selected entries", hidden: true });
  body.append(selection);

  function showSelection() {
    const entries = picked();
    for (const row of $$("table.files tbody tr")) row.classList.toggle("picked", Boolean($(".pick input:checked", row)));
    const all = $("#all");
    const boxes = $$("tbody .pick input");
    if (all) [all.checked, all.indeterminate] = [entries.length > 0 && entries.length === boxes.length, entries.length > 0 && entries.length < boxes.length];
    selection.hidden = entries.length === 0;
    if (!entries.length) return;
    const button = (name, text, work, kind = "") => el("button", { class: `button ${kind}`, onclick: work }, icon(name), el("span", {}, text));
    const buttons = [button("down", "Download", () => download(picked()))];
    if (body.classList.contains("can-change")) {
      buttons.push(button("move", "Move", () => moveTo(picked())));
      buttons.push(button("bin", "Delete", async () => (await remove(picked())) && refresh()));
    }
    const clear = el("button", { class: "round", "aria-label": "Clear the selection", onclick: () => pick(boxes, false) }, icon("close"));
    selection.replaceChildren(el("b", {}, `${entries.length} selected`), ...buttons, clear);
  }

  function pick(boxes, checked) {
    for (const box of boxes) box.checked = checked;
    showSelection();
  }

  document.addEventListener("change", (event) => {
    if (event.target.id === "all") pick($$("tbody .pick input"), event.target.checked);
    else if (event.target.matches?.("tbody .pick input")) showSelection();
  });

  document.addEventListener("click", async (event) => {
    const at = event.target.closest("button, input, summary, a") ?? event.target;
    for (const open of $$("details.menu[open]")) if (!open.contains(event.target)) open.open = false;
    if (menu && !menu.sheet.contains(event.target) && !at.matches(".more button")) closeMenu();
    if (at.matches(".more button")) return openMenu(at);
    if (at.matches("tbody .pick input")) {
      const boxes = $$("tbody .pick input");
      if (event.shiftKey && lastPicked && boxes.includes(lastPicked)) {
        const [from, to] = [boxes.indexOf(lastPicked), boxes.indexOf(at)].sort((a, b) => a - b);
        pick(boxes.slice(from, to + 1), at.checked);
      }
      lastPicked = at;
      return;
    }
    switch (at.id) {
      case "make-folder": return makeFolder();
      case "upload": return choose(false);
      case "upload-folder": return choose(true);
      case "copy-link": return copyLink();
      case "one-rename": {
        const to = await rename(single());
        if (to) location.assign(to + "?view");
        return;
      }
      case "one-delete": {
        if (await remove([single()])) location.assign($("#back")?.href ?? "/");
        return;
      }
    }
    if (at.matches(".restore")) return restore(at.dataset);
  });

  const single = () => ({ name: $(".about").dataset.name, url: here(), isFolder: false });

  async function copyLink() {
    const field = $("#made-link");
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
    } catch {
      // Without TLS browsers have no clipboard: the selected text can be copied by hand.
      if (!document.execCommand("copy")) return;
    }
    toast("The link is copied");
  }

  async function restore({ from, to, name, taken }) {
    const moment = new Date(taken * 1000);
    const choice = await dialog(
      `Restore “${name}”`,
      [el("p", {}, `As it was on ${moment.toLocaleString()}.`)],
      [cancel, { text: "Replace", value: "replace", kind: "danger" }, { text: "Copy beside", value: "beside", kind: "primary" }],
    );
    if (!choice) return;
    const slash = to.endsWith("/") ? "/" : "";
    const folder = to.replace(/[^/]*\/?$/, "");
    const stamp = moment.toISOString().slice(0, 19).replace("T", " ").replaceAll(":", ".");
    const dot = slash ? -1 : name.lastIndexOf(".");
    const beside = dot > 0 ? `${name.slice(0, dot)} (${stamp})${name.slice(dot)}` : `${name} (${stamp})`;
    const target = choice === "beside" ? folder + encodeURIComponent(beside) + slash : to;
    await attempt(async () => {
      try {
        await ask("COPY", from, { Destination: location.origin + target, Overwrite: choice === "beside" ? "F" : "T" });
      } catch (error) {
        if (error.status === 412) throw new Refused(412, `“${beside}” exists already.`);
        throw error;
      }
    }, choice === "beside" ? `Restored as “${beside}”` : `“${name}” is as it was`);
  }

  document.addEventListener("keydown", (event) => {
    if (menu) {
      const items = $$("[role=menuitem]", menu.sheet);
      const at = items.indexOf(document.activeElement);
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
      if (to !== undefined) {
        event.preventDefault();
        items[(to + items.length) % items.length].focus();
      } else if (event.key === "Escape" || event.key === "Tab") closeMenu(true);
      return;
    }
    if ($("dialog[open]")) return;
    const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = event.target.closest?.("table.files tbody tr[data-name]");
    if (event.key === "/" && $("#q")) {
      event.preventDefault();
      return $("#q").focus();
    }
    if (event.key === "Escape" && !selection.hidden) return pick($$("tbody .pick input"), false);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const links = $$("table.files tbody td.name > a");
      const at = links.indexOf(document.activeElement);
      if (at < 0 && event.target !== body && event.target.id !== "main") return;
      event.preventDefault();
      return links[Math.min(Math.max(at + (event.key === "ArrowDown" ? 1 : -1), 0), links.length - 1)]?.focus();
    }
    if (!row || !body.classList.contains("can-change")) return;
    const entry = entryOf(row);
    if (event.key === "F2") (async () => (await rename(entry)) && refresh())();
    if (event.key === "Delete") (async () => (await remove([entry])) && refresh())();
  });

  // Uploads. Small files go in one request; others are begun, and go on where they were after a cut.
  const AT_ONCE = 3;
  const SMALL_BYTES = 1 << 20;
  const TRIES_MAX = 30;
  const SILENCE_MS = 45000;
  const uploads = { waiting: [], active: new Set(), failed: [], done: 0, skipped: 0, bytes: 0, total: 0, count: 0, choice: null, folders: new Map() };
  const panel = el("section", { class: "float uploads", "aria-label": "Uploads", hidden: true });
  body.append(panel);
  let asking = Promise.resolve();

  function choose(folder) {
    const input = el("input", { type: "file", multiple: true, hidden: true, id: "chosen" });
    if (folder) input.webkitdirectory = true;
    input.addEventListener("change", () => {
      enqueue([...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
      input.remove();
    });
    $("#chosen")?.remove();
    body.append(input);
    input.click();
  }

  function enqueue(items, folders = []) {
    const base = here();
    for (const path of folders) folder(base, path).catch((error) => toast(error.message, true));
    for (const { file, path } of items) {
      uploads.waiting.push({ file, base, path, sent: 0, state: "", tries: 0 });
      uploads.total += file.size;
      uploads.count += 1;
    }
    if (!items.length && folders.length) Promise.allSettled(uploads.folders.values()).then(refresh);
    pump();
  }

  function pump() {
    while (uploads.active.size < AT_ONCE && uploads.waiting.length) {
      const item = uploads.waiting.shift();
      uploads.active.add(item);
      send(item)
        .catch((error) => {
          if (!item.cancelled) uploads.failed.push({ item, why: error.message });
        })
        .finally(() => {
          uploads.active.delete(item);
          uploads.bytes += item.file.size;
          pump();
        });
    }
    draw();
    if (!uploads.active.size && !uploads.waiting.length && uploads.count) finished();
  }

  function finished() {
    const { done, failed } = uploads;
    Object.assign(uploads, { done: 0, skipped: 0, bytes: 0, total: 0, count: 0, choice: null });
    uploads.folders.clear();
    if (done) toast(`${counted(done, "file", "files")} uploaded`);
    if (!failed.length) panel.hidden = true;
    refresh();
  }

  // Makes the folder and those above it, once.
  function folder(base, path) {
    const key = base + path;
    if (path && !uploads.folders.has(key)) {
      const above = path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "";
      const made = folder(base, above).then(() => ask("MKCOL", base + encoded(path) + "/")).catch((error) => {
        if (error.status !== 405) throw error;
      });
      uploads.folders.set(key, made);
    }
    return path ? uploads.folders.get(key) : Promise.resolve();
  }

  async function send(item) {
    const cut = item.path.lastIndexOf("/");
    if (cut > 0) await folder(item.base, item.path.slice(0, cut));
    let name = item.path.slice(cut + 1);
    const at = item.base + (cut > 0 ? encoded(item.path.slice(0, cut)) + "/" : "");
    let replace = false;
    for (let number = 2; ; number += 1) {
      if (item.cancelled) return;
      try {
        await transfer(item, at + encodeURIComponent(name), replace);
        uploads.done += 1;
        return;
      } catch (error) {
        if (error.status !== 412) throw error;
        item.sent = 0;
      }
      const choice = number > 2 && item.choice === "both" ? "both" : await conflict(item);
      item.choice = choice;
      if (choice === "skip" || !choice) {
        uploads.skipped += 1;
        return;
      }
      replace = choice === "replace";
      if (choice === "both") {
        const own = item.path.slice(cut + 1);
        const dot = own.lastIndexOf(".");
        name = dot > 0 ? `${own.slice(0, dot)} (${number})${own.slice(dot)}` : `${own} (${number})`;
      }
    }
  }

  // One question at a time; an answer may hold for the conflicts that are still to come.
  function conflict(item) {
    const question = asking.then(async () => {
      if (uploads.choice) return uploads.choice;
      const same = el("input", { type: "checkbox" });
      const rest = uploads.count > 1 ? [el("label", { class: "check" }, same, "Do the same for all others")] : [];
      const choice = await dialog(
        `“${item.path}” exists already`,
        [el("p", {}, "Which one should be kept?"), ...rest],
        [{ text: "Skip", value: "skip" }, { text: "Keep both", value: "both" }, { text: "Replace", value: "replace", kind: "primary" }],
      );
      if (same.checked && choice) uploads.choice = choice;
      return choice;
    });
    asking = question.catch(() => {});
    return question;
  }

  const pause = (ms) => new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    addEventListener("online", end);
  });

  // Whether it is worth another try: the connection, or a server that is busy.
  const isCut = (error, upload) => [0, 408, 502, 503].includes(error.status) || (upload && [400, 409].includes(error.status));

  async function transfer(item, url, replace) {
    const { file } = item;
    const about = { "X-OC-Mtime": String(file.lastModified / 1000) };
    if (!replace) about["If-None-Match"] = "*";
    let upload = null;
    for (;;) {
      try {
        if (file.size <= SMALL_BYTES) {
          return await push(item, "PUT", url, about, file, 0);
        }
        if (!upload) {
          const begun = await ask("POST", url + "?upload", { ...about, "Upload-Length": String(file.size) });
          upload = begun.headers.get("Location");
          item.upload = upload;
          item.sent = item.reached = 0;
        } else {
          const known = await ask("HEAD", upload);
          item.sent = Number(known.headers.get("Upload-Offset"));
          // As long as something arrives it is worth going on.
          if (item.sent > item.reached) item.tries = 0;
          item.reached = item.sent;
          if (item.sent >= file.size) return;
        }
        return await push(item, "PATCH", upload, { "Upload-Offset": String(item.sent) }, file.slice(item.sent), item.sent);
      } catch (error) {
        if (item.cancelled) return;
        // A small file may have arrived although its answer did not.
        if (error.status === 412 && file.size <= SMALL_BYTES && item.tries && (await arrived(url, file))) return;
        if (error.status === 404 && upload) upload = null;
        else if (!isCut(error, upload)) throw error;
        item.tries += 1;
        if (item.tries > TRIES_MAX) throw error;
        item.state = "waiting for the connection";
        draw();
        await pause(Math.min(500 * 2 ** Math.min(item.tries, 5), 15000));
        item.state = "";
      }
    }
  }

  async function arrived(url, file) {
    try {
      const there = await ask("HEAD", url);
      const changed = Math.floor(new Date(there.headers.get("Last-Modified")) / 1000);
      return Number(there.headers.get("Content-Length")) === file.size && changed === Math.floor(file.lastModified / 1000);
    } catch {
      return false;
    }
  }

  function push(item, method, url, headers, data, offset) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      let watch;
      const alive = () => {
        clearTimeout(watch);
        watch = setTimeout(() => request.abort(), SILENCE_MS);
      };
      request.open(method, url);
      for (const [name, value] of Object.entries({ "X-CSRF-Token": csrf, ...headers })) request.setRequestHeader(name, value);
      request.setRequestHeader("Content-Type", "application/octet-stream");
      request.upload.addEventListener("progress", (event) => {
        alive();
        item.sent = offset + event.loaded;
        draw();
      });
      const failed = (status, text) => {
        clearTimeout(watch);
        reject(new Refused(status, text));
      };
      request.addEventListener("load", () => {
        if (request.status < 200 || request.status > 299) return failed(request.status, reason(request.status, request.responseText));
        clearTimeout(watch);
        item.tries = 0;
        resolve();
      });
      for (const end of ["error", "abort", "timeout"]) request.addEventListener(end, () => failed(0, item.cancelled ? "Cancelled." : "The connection was cut."));
      item.request = request;
      alive();
      request.send(data);
    });
  }

  function stop(item) {
    item.cancelled = true;
    item.request?.abort();
    if (item.upload) ask("DELETE", item.upload).catch(() => {});
  }

  let drawing = false;

  function draw() {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      drawNow();
    });
  }

  function drawNow() {
    const busy = uploads.active.size + uploads.waiting.length;
    if (!busy && !uploads.failed.length) return;
    panel.hidden = false;
    const sent = uploads.bytes + [...uploads.active].reduce((sum, item) => sum + item.sent, 0);
    const percent = uploads.total ? Math.min(100, Math.floor((100 * sent) / uploads.total)) : 100;
    const finishedCount = uploads.count - busy;
    const title = busy ? `Uploading: ${finishedCount} of ${uploads.count}, ${percent} %` : `${counted(uploads.failed.length, "file was", "files were")} not uploaded`;
    const close = el("button", { class: "round", "aria-label": busy ? "Cancel all uploads" : "Close", onclick: () => closeAll(busy) }, icon("close"));
    const list = el("ul");
    for (const item of uploads.active) {
      const size = item.state || `${human(item.sent)} of ${human(item.file.size)}`;
      list.append(el("li", {}, el("div", { class: "line" }, el("span", {}, item.path), el("span", { class: "dim" }, size),
        el("button", { class: "round", "aria-label": `Cancel ${item.path}`, onclick: () => stop(item) }, icon("close"))),
        el("progress", { max: Math.max(1, item.file.size), value: item.sent, "aria-label": item.path })));
    }
    for (const { item, why } of uploads.failed.slice(-50)) {
      list.append(el("li", { class: "failed" }, el("div", { class: "line" }, el("span", {}, item.path),
        el("button", { class: "button", onclick: () => again(item) }, "Try again")), el("span", { class: "why" }, why)));
    }
    const focused = panel.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    const all = busy ? [el("progress", { max: 100, value: percent, "aria-label": "All uploads" })] : [];
    panel.replaceChildren(el("header", {}, el("b", { "aria-live": "off" }, title), close), ...all, list);
    if (focused) $$("button", panel).find((button) => button.getAttribute("aria-label") === focused)?.focus();
  }

  function again(item) {
    uploads.failed = uploads.failed.filter((failed) => failed.item !== item);
    uploads.waiting.push({ file: item.file, base: item.base, path: item.path, sent: 0, state: "", tries: 0 });
    uploads.total += item.file.size;
    uploads.count += 1;
    pump();
  }

  function closeAll(busy) {
    if (busy) {
      uploads.waiting = [];
      [...uploads.active].forEach(stop);
    }
    uploads.failed = [];
    panel.hidden = true;
  }

  addEventListener("beforeunload", (event) => {
    if (uploads.active.size) event.preventDefault();
  });

  // Files and folders that are dropped.
  const drop = el("div", { class: "drop", hidden: true }, "Drop to upload here");
  body.append(drop);
  const takesFiles = (event) => body.classList.contains("folder") && body.classList.contains("can-change") && [...(event.dataTransfer?.types ?? [])].includes("Files");
  let depth = 0;
  addEventListener("dragenter", (event) => {
    if (!takesFiles(event)) return;
    event.preventDefault();
    depth += 1;
    drop.hidden = false;
  });
  addEventListener("dragover", (event) => takesFiles(event) && event.preventDefault());
  addEventListener("dragleave", (event) => {
    if (!takesFiles(event)) return;
    depth -= 1;
    if (depth <= 0) drop.hidden = true;
  });
  addEventListener("drop", async (event) => {
    if (!takesFiles(event)) return;
    event.preventDefault();
    depth = 0;
    drop.hidden = true;
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const plain = [...event.dataTransfer.files];
    if (!entries.length) return enqueue(plain.map((file) => ({ file, path: file.name })));
    const [files, folders] = [[], []];
    try {
      for (const entry of entries) await gather(entry, "", files, folders);
    } catch {
      return toast("What was dropped could not be read.", true);
    }
    enqueue(files, folders);
  });

  async function gather(entry, above, files, folders) {
    const path = above + entry.name;
    if (entry.isFile) {
      files.push({ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), path });
      return;
    }
    folders.push(path);
    const reader = entry.createReader();
    for (;;) {
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const one of some) await gather(one, path + "/", files, folders);
    }
  }

  const crumbs = $(".crumbs ol");
  if (crumbs) crumbs.scrollLeft = crumbs.scrollWidth;
  prepare(document);
})();
