// Keeps boxes ticked when the part of the page that they are in is put anew, and allows as many as
// can be compared.

const MOST = 6;
const list = document.getElementById("studies");
const ticked = new Set();

function show() {
  for (const box of list.querySelectorAll("input[name=studies]")) {
    box.checked = ticked.has(box.value);
    box.disabled = ticked.size >= MOST && !box.checked;
  }
}

for (const box of list.querySelectorAll("input[name=studies]:checked")) {
  ticked.add(box.value);
}
list.addEventListener("change", (event) => {
  const box = event.target;
  ticked[box.checked ? "add" : "delete"](box.value);
  show();
});
new MutationObserver(show).observe(list, { childList: true, subtree: true });
