// Puts a search field above each list of uploads: all words that are typed have to be in what is shown
// of an upload, which is its name, date and shape.

for (const select of document.querySelectorAll("select[data-picker]")) {
  const options = [...select.options];
  if (options.length > 2) {
    const search = document.createElement("input");
    search.type = "search";
    search.placeholder = "search by name, date or shape";
    search.setAttribute("aria-label", `Search: ${select.labels[0].textContent}`);
    search.setAttribute("aria-controls", select.id);
    search.className = "picker";
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const chosen = select.value;
      const fits = (option) => words.every((word) => option.text.toLowerCase().includes(word));
      const shown = options.filter((option) => option.value === "" || fits(option));
      select.replaceChildren(...shown);
      // What was chosen stays if it is still there. Where one is left, it is meant.
      const last = words.length > 0 && shown.length === 2 ? shown[1].value : "";
      select.value = shown.some((option) => option.value === chosen && chosen !== "") ? chosen : last;
    });
    // Enter is for the list, not for the form.
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        select.focus();
      }
    });
    select.before(search);
  }
}
