// Rows of trials: what is ticked is the selection, which stands in the page's address. Links and
// buttons that change what is shown do so without a new page; without JavaScript they load one.

const LONGEST = 6000;
const MOST_PINS = 6;
let due = null;
let last = null;

export function numbersIn(words) {
  const found = new Set();
  for (const part of words.split(",").filter(Boolean)) {
    const [first, end] = part.split("-").map(Number);
    for (let number = first; number <= (end ?? first); number += 1) {
      found.add(number);
    }
  }
  return found;
}

export function written(numbers) {
  const runs = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const run = runs.at(-1);
    if (run !== undefined && run[1] === number - 1) {
      run[1] = number;
    } else {
      runs.push([number, number]);
    }
  }
  let words = runs.map(([first, end]) => (first === end ? `${first}` : `${first}-${end}`)).join(",");
  // An address has its limits; what is beyond them is not selected.
  while (words.length > LONGEST) {
    words = words.slice(0, words.lastIndexOf(","));
  }
  return words;
}

function listed(name) {
  return numbersIn(new URLSearchParams(location.search).getAll(name).join(","));
}

export const selected = () => listed("trials");

function put(address, name, numbers) {
  const words = written(numbers);
  address.searchParams.delete(name);
  if (words !== "") {
    address.searchParams.set(name, words);
  }
  // Commas may stand as they are.
  address.search = address.search.replaceAll("%2C", ",");
}

function go(address) {
  document.dispatchEvent(new CustomEvent("page:go", { detail: address }));
}

// The picture where a selection was made has shown it already: `from` says who it was.
export function select(numbers, from = "figure") {
  const address = new URL(location.href);
  put(address, "trials", numbers);
  history.replaceState(null, "", address);
  show();
  document.dispatchEvent(new CustomEvent("selection", { detail: from }));
  // The server counts, and writes the links that a selection is part of.
  clearTimeout(due);
  due = setTimeout(() => go(new URL(location.href)), 250);
}

function show() {
  const now = selected();
  for (const row of document.querySelectorAll("tr[data-trial]")) {
    const isChosen = now.has(Number(row.dataset.trial));
    row.classList.toggle("chosen", isChosen);
    const box = row.querySelector("input[name=trials]");
    if (box !== null) {
      box.checked = isChosen;
    }
  }
}

function toggle(row, extend) {
  const rows = [...row.parentElement.querySelectorAll("tr[data-trial]")];
  const now = selected();
  const number = Number(row.dataset.trial);
  const wanted = !now.has(number);
  const from = extend ? rows.findIndex((one) => Number(one.dataset.trial) === last) : -1;
  const to = rows.indexOf(row);
  const those = from < 0 ? [row] : rows.slice(Math.min(from, to), Math.max(from, to) + 1);
  for (const one of those) {
    const trial = Number(one.dataset.trial);
    if (wanted) {
      now.add(trial);
    } else {
      now.delete(trial);
    }
  }
  last = number;
  select(now, "table");
}

function pin(number) {
  const now = listed("pins");
  if (!now.delete(number)) {
    now.add(number);
  }
  const address = new URL(location.href);
  put(address, "pins", [...now].slice(-MOST_PINS));
  go(address);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-go]");
  const button = event.target.closest("button.pin");
  const row = event.target.closest("tr[data-trial]");
  if (event.ctrlKey || event.metaKey) {
    return;
  }
  if (link !== null) {
    event.preventDefault();
    const address = new URL(link.href);
    if ("select" in link.dataset) {
      const matching = document.getElementById("chosen").dataset.matching;
      select(link.dataset.select === "none" ? [] : numbersIn(matching), "table");
    } else {
      // What is selected since the link was written stays so.
      put(address, "trials", selected());
      address.hash = "";
      go(address);
    }
  } else if (button !== null) {
    event.preventDefault();
    pin(Number(button.value));
  } else if (row !== null && !event.target.closest("a, button, details, label")) {
    if (getSelection().toString() === "") {
      toggle(row, event.shiftKey);
    }
  }
});

document.addEventListener("keydown", (event) => {
  const row = event.target.closest?.("#table tr[data-trial]");
  if (!row || event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  const beside = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
  if (beside) {
    event.preventDefault();
    beside.querySelector("input").focus();
  } else if (event.key === "p") {
    pin(Number(row.dataset.trial));
  }
});

document.getElementById("rows")?.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("page:refreshed", show);
document.body.classList.add("scripted");
show();
