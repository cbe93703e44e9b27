"use strict";
(() => {
  const number = (text) => {
    const plain = text.replace(/[−]/g, "-").replace(/[$,+~\s]/g, "");
    return plain === "" || Number.isNaN(Number(plain)) ? null : Number(plain);
  };
  const make = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const state = new URLSearchParams(location.hash.startsWith("#?") ? location.hash.slice(2) : "");
  const keep = (name, value) => {
    if (value) state.set(name, value); else state.delete(name);
    history.replaceState(null, "", state.size ? "#?" + state : location.pathname);
  };

  class Table {
    constructor(box) {
      this.box = box;
      this.body = box.querySelector("tbody");
      this.heads = [...box.querySelectorAll("thead th")];
      this.fixed = [...this.body.rows].filter((row) => row.classList.contains("head"));
      this.rows = [...this.body.rows].filter((row) => !row.classList.contains("head"));
      this.size = Number(box.dataset.page) || Infinity;
      this.page = 0;
      this.sorted = null;
      this.filters = new Map();
      this.words = "";
      this.isMain = "filters" in box.dataset;
      this.heads.forEach((head, column) => this.addSort(head, column));
      if (this.isMain) this.addFilters();
      if (this.rows.length > this.size) this.addPager();
      this.addEdges();
      if (this.isMain) this.restore();
      this.show();
    }

    value(row, column) {
      const cell = row.cells[column];
      if (cell.dataset.v !== undefined) return number(cell.dataset.v);
      const text = cell.textContent.trim();
      return this.heads[column].classList.contains("n") ? number(text) : text;
    }

    addSort(head, column) {
      const button = make("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const isDown = head.getAttribute("aria-sort") === "ascending";
        this.sort(column, isDown ? "descending" : "ascending");
        if (this.isMain) keep("sort", column + (isDown ? "-" : "+"));
      });
    }

    sort(column, direction) {
      this.heads.forEach((head, at) => {
        if (at === column) head.setAttribute("aria-sort", direction); else head.removeAttribute("aria-sort");
      });
      const sign = direction === "ascending" ? 1 : -1;
      const collator = new Intl.Collator("en", { numeric: true });
      const keyed = this.rows.map((row, at) => [this.value(row, column), at, row]);
      keyed.sort(([a, i], [b, j]) => {
        const none = (v) => v === null || v === "" || v === "–";
        if (none(a) || none(b)) return none(a) - none(b) || i - j;
        return sign * (typeof a === "number" ? a - b : collator.compare(a, b)) || i - j;
      });
      this.rows = keyed.map((key) => key[2]);
      this.page = 0;
      this.show();
    }

    addFilters() {
      const tools = make("div", { class: "tools", role: "search", "aria-label": "Filter runs" });
      this.search = make("input", { type: "search", autocomplete: "off", id: "find" });
      tools.append(make("label", {}, "Find", this.search));
      this.search.addEventListener("input", () => this.filter());
      this.heads.forEach((head, column) => {
        if (!head.dataset.filter) return;
        const values = [...new Set(this.rows.map((row) => row.cells[column].textContent.trim()))].sort(
          new Intl.Collator("en", { numeric: true }).compare);
        if (values.length < 2) return;
        const select = make("select", { "data-column": column }, make("option", { value: "" }, "all"));
        for (const value of values) select.append(make("option", { value }, value));
        select.addEventListener("change", () => this.filter());
        tools.append(make("label", {}, head.dataset.filter, select));
        this.filters.set(column, select);
      });
      const clear = make("button", { type: "button" }, "Clear");
      clear.addEventListener("click", () => {
        this.search.value = "";
        this.filters.forEach((select) => { select.value = ""; });
        this.filter();
      });
      tools.append(clear);
      this.status = make("p", { class: "status", role: "status", "aria-live": "polite" });
      this.box.prepend(tools, this.status);
    }

    filter() {
      keep("find", this.search.value);
      this.filters.forEach((select, column) => keep("c" + column, select.value));
      this.page = 0;
      this.show();
    }

    restore() {
      this.search.value = state.get("find") || "";
      this.filters.forEach((select, column) => { select.value = state.get("c" + column) || ""; });
      const sort = state.get("sort");
      if (sort && this.heads[parseInt(sort, 10)]) {
        this.sort(parseInt(sort, 10), sort.endsWith("-") ? "descending" : "ascending");
      }
    }

    chosen() {
      const words = this.search ? this.search.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
      const wanted = [...this.filters].filter(([, select]) => select.value);
      return this.rows.filter((row) => wanted.every(([column, select]) => row.cells[column].textContent.trim() === select.value)
        && (!words.length || words.every((word) => this.text(row).includes(word))));
    }

    text(row) {
      const run = row.querySelector("a, span[title]");
      return (row.textContent + " " + (run ? run.getAttribute("href") || run.title : "")).toLowerCase();
    }

    addPager() {
      const button = (words, step) => {
        const made = make("button", { type: "button" }, words);
        made.addEventListener("click", () => { this.page += step; this.show(); });
        return made;
      };
      this.back = button("Previous", -1);
      this.next = button("Next", 1);
      this.where = make("span", { class: "status", role: "status" });
      this.box.append(make("div", { class: "pager" }, this.back, this.next, this.where));
    }

    addEdges() {
      const scroll = this.box.querySelector(".scroll");
      const beyond = make("p", { class: "beyond", "aria-hidden": "true" });
      scroll.before(beyond);
      const look = () => {
        const room = scroll.scrollWidth - scroll.clientWidth;
        const isMore = scroll.scrollLeft < room - 1;
        beyond.hidden = room <= 1;
        beyond.textContent = (scroll.scrollLeft > 1 ? "← " : "") + "more columns" + (isMore ? " →" : "");
        scroll.classList.toggle("more", isMore);
      };
      scroll.addEventListener("scroll", look, { passive: true });
      new ResizeObserver(look).observe(scroll);
      new ResizeObserver(look).observe(scroll.firstElementChild);
    }

    show() {
      const rows = this.chosen();
      const from = Number.isFinite(this.size) ? this.page * this.size : 0;
      const shown = rows.slice(from, from + this.size);
      this.body.replaceChildren(...this.fixed, ...shown);
      if (this.status) this.status.textContent = rows.length + " of " + this.rows.length + " rows";
      if (this.where) {
        const to = Math.min(from + this.size, rows.length);
        this.where.textContent = rows.length ? (from + 1) + " to " + to + " of " + rows.length : "none";
        this.back.disabled = from === 0;
        this.next.disabled = to >= rows.length;
      }
    }
  }

  document.querySelectorAll("[data-table]").forEach((box) => new Table(box));

  const kinds = document.querySelector("fieldset.kinds");
  if (kinds) {
    kinds.hidden = false;
    kinds.addEventListener("change", () => {
      const on = new Set([...kinds.querySelectorAll("input:checked")].map((input) => "k-" + input.value));
      document.querySelectorAll(".lineage > li").forEach((item) => {
        item.hidden = !on.has(item.classList[0]);
      });
    });
  }

  const open = () => {
    const id = location.hash.slice(1);
    if (!id || id.startsWith("?")) return;
    const found = document.getElementById(id);
    for (let node = found; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    if (found) found.scrollIntoView();
  };
  window.addEventListener("hashchange", open);
  open();

  const seconds = Number(document.body.dataset.refresh);
  if (seconds) {
    const pause = document.getElementById("pause");
    let timer = 0;
    const start = () => { timer = setTimeout(() => location.reload(), seconds * 1000); };
    pause.hidden = false;
    pause.addEventListener("click", () => {
      const isOn = pause.getAttribute("aria-pressed") === "true";
      pause.setAttribute("aria-pressed", String(!isOn));
      pause.textContent = isOn ? "Pause" : "Go on";
      if (isOn) start(); else clearTimeout(timer);
    });
    start();
  }
})();
