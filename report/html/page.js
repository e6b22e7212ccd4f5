"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const items = all(".item");
  const byIndex = new Map(items.map((item) => [item.dataset.index, item]));
  const graph = document.querySelector(".graph");
  const nodes = new Map(all(".node", graph).map((node) => [node.dataset.item, node]));
  const edges = all(".edge", graph);
  const detail = document.getElementById("detail");
  const resting = detail.textContent;
  const nameOf = (item) => item.id.slice("item-".length);
  const linesOf = (item) =>
    item.dataset.lines.split(" ").map((id) => document.getElementById(id)).filter(Boolean);

  const scroller = graph.parentElement;
  scroller.scrollLeft = (scroller.scrollWidth - scroller.clientWidth) / 2;

  // Bring a line into view inside its own scroll box, without moving the page where the box is visible already.
  const reveal = (line) => {
    const box = line.closest(".code");
    line.closest("details").open = true;
    box.scrollTo({ top: line.offsetTop - box.clientHeight / 3 });
  };

  // Sources begin where their evidence does.
  all(".code").forEach((box) => {
    const first = box.querySelector(".marked");
    if (first) reveal(first);
  });

  const activate = (chosen) => {
    all(".item.active, .line.active").forEach((one) => one.classList.remove("active"));
    chosen.forEach((item) => {
      item.classList.add("active");
      linesOf(item).forEach((line) => line.classList.add("active"));
    });
    const lines = chosen.flatMap(linesOf);
    if (lines.length) reveal(lines[0]);
  };

  const show = (item) => {
    item.hidden = false;
    item.open = true;
    activate([item]);
  };

  items.forEach((item) => {
    item.querySelector("summary").addEventListener("click", (event) => {
      if (event.target.closest("a")) return;
      if (!item.open) activate([item]);
    });
  });

  all(".line.marked").forEach((line) => {
    line.addEventListener("click", (event) => {
      if (event.target.closest("a") || String(getSelection())) return;
      const chosen = line.dataset.items.split(" ").map((index) => byIndex.get(index));
      chosen.forEach((item) => { item.hidden = false; item.open = true; });
      activate(chosen);
      line.classList.add("active");
      chosen[0].scrollIntoView({ block: "nearest" });
    });
  });

  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.classList.contains("item")) show(target);
    if (target.classList.contains("line")) reveal(target);
  };
  addEventListener("hashchange", follow);
  follow();

  // An item's way to the insights: everything that it requires, and what requires it directly.
  const light = (name) => {
    const lit = new Set([name]);
    const walk = (from) => edges.filter((edge) => edge.dataset.from === from).forEach((edge) => {
      edge.classList.add("lit");
      if (!lit.has(edge.dataset.to)) { lit.add(edge.dataset.to); walk(edge.dataset.to); }
    });
    walk(name);
    edges.filter((edge) => edge.dataset.to === name).forEach((edge) => {
      edge.classList.add("lit");
      lit.add(edge.dataset.from);
    });
    lit.forEach((one) => nodes.get(one)?.classList.add("lit"));
    graph.classList.add("choosing");
    const item = document.getElementById("item-" + name);
    detail.textContent = `${name}: ${item.dataset.verdict.replace("_", " ")}. ${item.querySelector(".fact").textContent}`;
  };
  const unlight = () => {
    all(".lit", graph).forEach((one) => one.classList.remove("lit"));
    graph.classList.remove("choosing");
    detail.textContent = resting;
  };
  nodes.forEach((node, name) => {
    for (const event of ["mouseenter", "focus"]) node.addEventListener(event, () => { unlight(); light(name); });
    for (const event of ["mouseleave", "blur"]) node.addEventListener(event, unlight);
    // the address may hold this item already: then no hashchange follows
    node.addEventListener("click", () => show(document.getElementById("item-" + name)));
  });

  all(".filters button").forEach((button) => {
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      items.filter((item) => item.dataset.verdict === button.dataset.verdict).forEach((item) => { item.hidden = !on; });
    });
  });
})();
