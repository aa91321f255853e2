// Keeps a page up to date: when the study's events say that something changed, or after a while, the
// page is fetched again, and each part that differs takes the place of what it was. Every part keeps
// its element, so that readers of the screen hear of changes and tables stay scrolled where they are.
// Forms marked with data-show change what is shown without a new page. Without JavaScript the page
// refreshes as a whole instead.
"use strict";

const KINDS = ["study", "trial", "epoch", "measurement", "front", "download", "budget", "attempt_lost"];
const SOONEST = 1000;

const main = document.querySelector("main");
const known = new Map();
let source = null;
let due = null;
let took = 0;
let typed = null;

for (const part of document.querySelectorAll("[data-live]")) {
  known.set(part.id, part.innerHTML);
}

function put(part, fresh) {
  const text = fresh ? fresh.innerHTML : "";
  if (known.get(part.id) === text) {
    return;
  }
  known.set(part.id, text);
  const open = [...part.querySelectorAll("details[open][id]")].map((element) => element.id);
  const focus = part.contains(document.activeElement) ? document.activeElement.id : "";
  part.replaceChildren(...(fresh ? [...fresh.childNodes].map((node) => document.importNode(node, true)) : []));
  for (const id of open) {
    const details = document.getElementById(id);
    if (details) {
      details.open = true;
    }
  }
  if (focus) {
    document.getElementById(focus)?.focus({ preventScroll: true });
  }
}

async function refresh() {
  due = null;
  const begun = performance.now();
  const wanted = location.href;
  try {
    const answer = await fetch(wanted, { headers: { Accept: "text/html" } });
    if (answer.ok && wanted === location.href) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        put(part, page.getElementById(part.id));
      }
      const fresh = page.querySelector("main");
      for (const name of ["events", "poll"]) {
        if (name in fresh.dataset) {
          main.dataset[name] = fresh.dataset[name];
        } else {
          delete main.dataset[name];
        }
      }
      document.title = page.title;
      document.dispatchEvent(new CustomEvent("page:refreshed"));
    }
  } catch {
    // The server is away for the moment; the page keeps what it shows and asks again.
  }
  took = performance.now() - begun;
  listen();
  if (main.dataset.poll) {
    schedule(Number(main.dataset.poll));
  }
}

// A page that is dear to make is asked for less often.
function schedule(wait = SOONEST) {
  if (due === null && !document.hidden) {
    due = setTimeout(refresh, Math.max(wait, 4 * took));
  }
}

function listen() {
  const wanted = main.dataset.events && !document.hidden;
  if (source !== null && (!wanted || source.readyState === EventSource.CLOSED)) {
    source.close();
    source = null;
  }
  if (source === null && wanted) {
    source = new EventSource(main.dataset.events);
    for (const kind of KINDS) {
      source.addEventListener(kind, () => schedule());
    }
    // The stream ends when the study does, and may break before.
    source.addEventListener("error", () => schedule(3 * SOONEST));
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(due);
    due = null;
    listen();
  } else if (main.dataset.events || main.dataset.poll) {
    schedule(0);
  }
});

function show(form) {
  const address = new URL(location.href);
  address.searchParams.delete("cursor");
  address.searchParams.delete("page");
  const fields = [...form.elements].filter((field) => field.name && field.type !== "hidden");
  const names = new Set(fields.map((field) => field.name));
  for (const name of names) {
    address.searchParams.delete(name);
  }
  for (const [name, value] of new FormData(form)) {
    if (names.has(name) && value !== "") {
      address.searchParams.append(name, value);
    }
  }
  history.replaceState(null, "", address);
  clearTimeout(due);
  refresh();
}

for (const form of document.querySelectorAll("form[data-show]")) {
  form.addEventListener("change", () => form.reportValidity() && show(form));
  form.addEventListener("input", (event) => {
    if (event.target.type === "search") {
      clearTimeout(typed);
      typed = setTimeout(() => show(form), 300);
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show(form);
  });
}

// Other scripts of a page say where it is to go, and are told when it has changed.
document.addEventListener("page:go", (event) => {
  history.replaceState(null, "", event.detail);
  clearTimeout(due);
  refresh();
});

listen();
if (main.dataset.poll) {
  schedule(Number(main.dataset.poll));
}
