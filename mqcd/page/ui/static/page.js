// What HTML and htmx do not do by themselves: suggestions in the box for conditions, and checking all rows.
"use strict";

function suggesting(box) {
  const list = document.getElementById(box.getAttribute("aria-controls"));
  let found = [], active = -1, asked = 0;

  function show(suggestions) {
    found = suggestions;
    active = -1;
    list.replaceChildren(...found.map((each, number) => {
      const option = document.createElement("li"), word = document.createElement("b"), gloss = document.createElement("span");
      word.textContent = each.text;
      gloss.textContent = each.gloss;
      option.id = `${list.id}-${number}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      option.append(word, gloss);
      option.addEventListener("mousedown", (event) => { event.preventDefault(); take(number); });
      return option;
    }));
    list.hidden = !found.length;
    box.setAttribute("aria-expanded", String(Boolean(found.length)));
    box.removeAttribute("aria-activedescendant");
  }

  function choose(number) {
    active = (number + found.length) % found.length;
    [...list.children].forEach((option, at) => option.setAttribute("aria-selected", String(at === active)));
    list.children[active].scrollIntoView({ block: "nearest" });
    box.setAttribute("aria-activedescendant", list.children[active].id);
  }

  function take(number) {
    const each = found[number], cursor = box.selectionStart;
    box.setRangeText(`${each.text} `, each.start, cursor, "end");
    ask();
  }

  async function ask() {
    const turn = ++asked;
    const query = new URLSearchParams({ text: box.value, at: box.selectionStart });
    let suggestions = [];
    try {
      const answer = await fetch(`${box.dataset.complete}?${query}`);
      if (answer.ok) suggestions = await answer.json();
    } catch { /* Without a server there is nothing to suggest; the page itself says that it is down. */ }
    if (turn === asked && document.activeElement === box) show(suggestions);
  }

  const keys = {
    ArrowDown: () => found.length ? choose(active + 1) : ask(),
    ArrowUp: () => found.length && choose(active < 0 ? found.length - 1 : active - 1),
    Enter: () => active >= 0 && take(active),
    Tab: () => active >= 0 && take(active),
    Escape: () => found.length && show([]),
  };
  box.addEventListener("keydown", (event) => {
    const own = { Enter: active >= 0, Tab: active >= 0, ArrowDown: true, ArrowUp: found.length, Escape: found.length };
    if (!keys[event.key] || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || !own[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  box.addEventListener("input", ask);
  box.addEventListener("click", () => found.length || ask());
  box.addEventListener("blur", () => { asked++; show([]); });
  if (Number(box.dataset.column)) {
    box.focus();
    box.setSelectionRange(box.dataset.column - 1, box.dataset.column - 1);
  }
}

document.querySelectorAll("[data-complete]").forEach(suggesting);
document.addEventListener("change", (event) => {
  const name = event.target.dataset.all;
  if (!name) return;
  event.target.form.querySelectorAll(`input[name="${name}"]`).forEach((each) => { each.checked = event.target.checked; });
});

function following(body) {
  const state = document.getElementById("live-state"), stop = document.getElementById("live-stop"), most = 200;
  let source = null;

  function cell(kind, text, classes) {
    const made = document.createElement(kind);
    made.textContent = text;
    if (classes) made.className = classes;
    return made;
  }

  function happened(each) {
    const who = cell("td", "", "address"), to = each.recipient || "–";
    if (each.spid) {
      const link = document.createElement("a");
      link.href = `/messages/${encodeURIComponent(each.spid)}`;
      link.textContent = to;
      who.append(link);
    } else who.textContent = to;
    const said = [each.code, each.status, each.reply || each.reason].filter(Boolean).join(" ");
    return [cell("td", each.event), who, cell("td", each.sender === "" ? "<>" : each.sender || "–", "address"), cell("td", said, "reply")];
  }

  function said(each) {
    const octets = each.octets === undefined ? "" : `${each.octets} octets`;
    const more = [each.name, each.host, each.tls, octets, each.reason].filter(Boolean).join(" ");
    return [cell("td", each.session), cell("td", each.peer, "address"), cell("td", each.who || each.event), cell("td", each.text || more, "reply")];
  }

  function add(event) {
    let each;
    try { each = JSON.parse(event.data); } catch { return; }
    if (!each.event) return;
    if (each.event === "dropped") { state.textContent = `Following; ${each.count} came too fast and are missing.`; return; }
    if (each.event === "ended") { end(`Over: the ${each.reason} of a trace is reached.`); return; }
    const row = document.createElement("tr");
    row.append(cell("td", String(each.at || "").slice(11, 19), "num"), ...(body.dataset.trace ? said(each) : happened(each)));
    body.prepend(row);
    while (body.children.length > most) body.lastChild.remove();
    document.getElementById("live-empty").hidden = true;
  }

  function end(why) {
    source.close();
    source = null;
    state.textContent = why;
    stop.textContent = "Go on";
  }

  function start() {
    source = new EventSource(body.dataset.stream);
    source.onopen = () => { state.textContent = "Following."; };
    source.onerror = () => {
      state.textContent = source.readyState === EventSource.CLOSED
        ? "Not followed: the server does not offer it, or too many follow already."
        : "Interrupted; trying again…";
    };
    for (const name of ["message", ...body.dataset.verbs.split(" ")]) source.addEventListener(name, add);
    stop.textContent = "Stop";
  }

  stop.addEventListener("click", () => {
    if (source === null) { start(); return; }
    end("Stopped.");
  });
  start();
}

const live = document.getElementById("live");
if (live) following(live);
