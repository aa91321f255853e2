// Fetches the page again while something runs, and puts its new content in place of the old.
"use strict";

function again(main) {
  if (main && main.dataset.refresh) {
    setTimeout(refresh, Number(main.dataset.refresh), main);
  }
}

async function refresh(main) {
  if (document.hidden) {
    again(main);
    return;
  }
  try {
    const answer = await fetch(location.href);
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main");
      main.replaceWith(fresh);
      again(fresh);
      return;
    }
  } catch {
    // The server is away for the moment; the page keeps what it shows and asks again.
  }
  again(main);
}

again(document.querySelector("main"));
