// Shows times in the reader's own zone. Without JavaScript they stay in UTC.

const DAY_AND_TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function localize(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(element.dateTime);
    if (!Number.isNaN(at.getTime())) {
      element.title = element.textContent;
      element.textContent = DAY_AND_TIME.format(at);
    }
  }
}

localize(document);
// Parts of a page that are put anew bring times with them.
new MutationObserver((changes) => {
  for (const node of changes.flatMap((change) => [...change.addedNodes])) {
    if (node instanceof HTMLElement) {
      localize(node);
    }
  }
}).observe(document.querySelector("main"), { childList: true, subtree: true });
