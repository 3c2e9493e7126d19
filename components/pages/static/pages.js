"use strict";
// Keys: g and a letter opens a page; on the labelling page 1 to 9 answer, u undoes, s skips. Without scripts every
// page works with its links and buttons.
(() => {
  const pages = {o: "/", r: "/runs", t: "/try", l: "/label", e: "/errors", i: "/lineage"};
  let waiting = 0;
  let sending = false;
  // The answer of the server takes the place of the part of the page that changes.
  const replace = async (answer) => {
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const live = document.querySelector("#live"), fresh = page.querySelector("#live");
    if (!answer.ok || !live || !fresh) return false;
    const open = new Set([...live.querySelectorAll("details[open]")].map((one) => one.id));
    for (const one of fresh.querySelectorAll("details[id]")) if (open.has(one.id)) one.open = true;
    sending = false;
    live.replaceWith(fresh);
    return true;
  };
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
      // A key that is pressed while an answer is sent is about a text that is not shown yet.
      if (!sending) button.click();
    }
  });
  // Answers are sent without a new page, so that the next key is heard.
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.closest("#live") || form.method !== "post") return;
    event.preventDefault();
    if (sending) return;
    sending = true;
    try {
      const body = new URLSearchParams(new FormData(form, event.submitter));
      // `form.action` would be the field of this name.
      if (await replace(await fetch(form.getAttribute("action"), {method: "POST", body}))) return;
    } catch (error) { /* the server has ended: the browser says so when the page is loaded again */ }
    window.location.reload();
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
    if (document.querySelector("[data-live]") && !document.hidden && !sending) {
      try {
        await replace(await fetch(window.location.href));
      } catch (error) { /* the server has ended; the page stays as it was */ }
    }
    setTimeout(refresh, 2000);
  };
  setTimeout(refresh, 2000);
})();
