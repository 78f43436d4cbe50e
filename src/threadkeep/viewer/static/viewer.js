// Keys, copying, and following a conversation. All pages work without it.
"use strict";
(() => {
  const rows = () => [...document.querySelectorAll("[data-row]")];
  let current = -1;

  const move = (step) => {
    const all = rows();
    if (!all.length) return;
    if (current >= 0 && all[current]) all[current].classList.remove("here");
    current = Math.max(0, Math.min(all.length - 1, current + step));
    all[current].classList.add("here");
    all[current].scrollIntoView({ block: "nearest" });
  };

  const open = () => {
    const row = rows()[current];
    const details = row && row.querySelector("details");
    const link = row && row.querySelector("a.title");
    if (link) link.click();
    else if (details) details.open = !details.open;
  };

  // Keys without Ctrl or Alt disturb people who speak to their computer, so a button switches them off.
  const SWITCH = "threadkeep-keys";
  const keys = document.querySelector("[data-keys]");
  const stored = (value) => {
    try {
      if (value) localStorage.setItem(SWITCH, value);
      return localStorage.getItem(SWITCH);
    } catch {
      return value;
    }
  };
  let hasKeys = stored() !== "off";
  const showKeys = () => {
    keys.setAttribute("aria-pressed", hasKeys);
    keys.title = `Single-letter keys are ${hasKeys ? "on" : "off"}`;
  };
  if (keys) {
    keys.hidden = false;
    showKeys();
    keys.addEventListener("click", () => {
      hasKeys = !hasKeys;
      stored(hasKeys ? "on" : "off");
      showKeys();
    });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, dialog")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (!hasKeys) return;
    if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
    else if (event.key === "Enter" && event.target === document.body) open();
    else if (event.key === "o") open();
    else if (event.key === "?") document.querySelector("#keys").showModal();
    else if (event.key === "u") location.assign(document.querySelector(".brand").href);
    else if (/^[a-z/]$/.test(event.key)) {
      const scope = (event.key === "w" && rows()[current]?.closest(".group")) || document;
      const target = scope.querySelector(`[data-key="${event.key}"]`);
      if (!target) return;
      event.preventDefault();
      if (target.matches("input")) target.select();
      else target.click();
    }
  });

  for (const button of navigator.clipboard ? document.querySelectorAll("[data-copy]") : []) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const lines = [...button.parentElement.querySelectorAll(".l")].map((line) => line.textContent);
      const text = button.dataset.copy === "address" ? location.href : button.dataset.copy;
      await navigator.clipboard.writeText(text || lines.join("\n"));
      document.querySelector("#copied").textContent = "Copied";
      button.title = "Copied";
    });
  }

  // New items come as HTML that the server has escaped, in the same form as those of the page.
  const items = document.querySelector("#items[data-tail]");
  if (!items || !window.EventSource) return;
  const note = document.querySelector("#live");
  let last = Number(items.dataset.last);
  let busy = false;
  const take = async () => {
    if (busy) return;
    busy = true;
    const address = `${items.dataset.base}/items?branch=${items.dataset.branch}&from=${last + 1}`;
    try {
      const answer = await fetch(address);
      if (!answer.ok) return;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html").body.firstElementChild;
      if (Number(page.dataset.last) <= last) return;
      last = Number(page.dataset.last);
      items.append(...page.children);
      document.querySelector(".items > .empty")?.remove();
    } finally {
      busy = false;
    }
    if (last < Number(items.dataset.head || -1)) take();
  };
  const source = new EventSource(`${items.dataset.base}/tail?branch=${items.dataset.branch}&from=${last + 1}`);
  source.addEventListener("state", (event) => {
    const state = JSON.parse(event.data);
    note.hidden = !state.open;
    note.textContent = state.open ? "An answer is in progress …" : "";
    items.dataset.head = state.head;
    if (state.head > last) take();
  });
  addEventListener("pagehide", () => source.close());
})();
