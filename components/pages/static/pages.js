"use strict";
// Keys: g and a letter opens a page; on the labelling page 1 to 9 answer, u undoes, s skips. Without scripts every
// page works with its links and buttons.
(() => {
  const pages = {o: "/", r: "/runs", t: "/try", l: "/label", e: "/errors", i: "/lineage"};
  let waiting = 0;
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest("input, textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (field) {
      if (event.key === "Escape") field.blur();
      return;
    }
    if (Date.now() < waiting && pages[event.key]) {
      event.preventDefault();
      window.location.href = pages[event.key];
      return;
    }
    waiting = event.key === "g" ? Date.now() + 1500 : 0;
    const button = [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === event.key);
    if (button && !button.disabled && !event.repeat) {
      event.preventDefault();
      button.click();
    }
  });
  // Ctrl-Enter sends a text.
  for (const area of document.querySelectorAll("textarea")) {
    area.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) area.form.requestSubmit();
    });
  }
  // A select of a form with filters sends it.
  for (const select of document.querySelectorAll("form.filters select")) {
    select.addEventListener("change", () => select.form.requestSubmit());
  }
  // A page that shows something that runs is read again; its open details stay open.
  const refresh = async () => {
    const live = document.querySelector("[data-live]");
    if (!live) return;
    if (!document.hidden) {
      try {
        const answer = await fetch(window.location.href, {headers: {"X-Live": "1"}});
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.querySelector("#live");
        if (answer.ok && fresh) {
          const open = new Set([...live.querySelectorAll("details[open]")].map((one) => one.id));
          for (const one of fresh.querySelectorAll("details")) if (open.has(one.id)) one.open = true;
          document.querySelector("#live").replaceWith(fresh);
        }
      } catch (error) { /* the server has ended; the page stays as it was */ }
    }
    setTimeout(refresh, 3000);
  };
  setTimeout(refresh, 3000);
})();
