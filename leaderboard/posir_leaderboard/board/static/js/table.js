"use strict";
// The table of models: DataTables sorts, filters and pages it in the browser.

{
  const { el, byId } = board;
  const PAGE = 30;
  const SIZES = new Map([
    ["under 100M", [0, 1e8]],
    ["100M to 500M", [1e8, 5e8]],
    ["500M to 1B", [5e8, 1e9]],
    ["1B to 5B", [1e9, 5e9]],
    ["5B and more", [5e9, Infinity]],
  ]);
  board.SIZES = [...SIZES.keys()];

  const rowOf = new WeakMap();
  let table = null;
  let shown = null;
  let byPsi = false;

  // Missing values come last in either sort order.
  const last = (direction) => (a, b) => {
    if (a === b) return 0;
    if (a === null) return 1;
    if (b === null) return -1;
    return (a < b ? -1 : 1) * direction;
  };
  DataTable.type("missing-last", { order: { asc: last(1), desc: last(-1) }, className: "" });
  DataTable.ext.errMode = "throw";

  /** Return a column with a function from a row to its cell, and one to its sort value. */
  function column(name, title, value, cell, { first = "desc", className = name } = {}) {
    return {
      name,
      title,
      className,
      type: "missing-last",
      // The search does not use the text of cells.
      searchable: false,
      orderSequence: [first, first === "desc" ? "asc" : "desc"],
      data: null,
      render: (_, type, row) => (type === "display" ? asElement(cell(row)) : (value(row) ?? null)),
    };
  }

  // DataTables interprets strings as markup, but not elements.
  const asElement = (content) => (typeof content === "string" ? el("span", {}, content) : content);

  const fixed = (name, title, cell) => ({ ...column(name, title, () => null, cell), orderable: false });

  const COLUMNS = [
    fixed("select", "Compare", selector),
    fixed("rank", "Rank", () => ""),
    column("label", "Model", (row) => row.label.toLowerCase(), modelCell, { first: "asc" }),
    column("ndcg_at_10", "nDCG@10", (row) => row.ndcg_at_10, ndcgCell),
    column("start_to_end", "Start to end", (row) => row.start_to_end, startToEndCell),
    column("psi", "PSI", (row) => row.psi_estimate, psiCell, { first: "asc" }),
    column(
      "psi_null_mean",
      "PSI under the null",
      (row) => row.psi_null_mean,
      (row) => board.nullRange(row) || board.DASH,
    ),
    column(
      "bias",
      "Position bias",
      (row) => (row.bias === board.DASH ? null : row.bias),
      (row) => row.bias ?? board.DASH,
      { first: "asc" },
    ),
    column("queries", "Queries", (row) => row.queries, queriesCell),
    column(
      "kind",
      "Kind",
      (row) => row.kind,
      (row) => row.kind,
      { first: "asc" },
    ),
    column(
      "parameters",
      "Size",
      (row) => row.parameters,
      (row) => board.short(row.parameters),
    ),
    column(
      "window",
      "Window",
      (row) => row.window,
      (row) => board.count(row.window),
    ),
  ];
  const place = (name) => COLUMNS.findIndex((one) => one.name === name);
  const RANK = place("rank");

  function selector(row) {
    const box = el("input", { type: "checkbox", "aria-label": `Compare ${row.label}`, onchange: () => board.toggle(row.id) });
    box.checked = board.models(board.state()).includes(row.id);
    return el("label", { class: "box" }, box);
  }

  function modelCell(row) {
    const [organisation, name] = row.label.includes("/") ? row.label.split(/\/(.*)/s) : ["", row.label];
    const link = el(
      "a",
      { class: "model-name", href: linkTo(row.id) },
      organisation ? board.name(`${organisation}/`, { class: "faint" }) : null,
      board.name(name),
    );
    const marks = [
      row.published ? el("span", { class: "mark" }, "published") : null,
      row.origin ? el("span", { class: "mark" }, row.origin) : null,
      row.partial ? el("span", { class: "mark partial" }, `partial: ${row.partial}`) : null,
      el(
        "span",
        { class: "meta" },
        [row.kind, row.parameters ? board.short(row.parameters) : null].filter(Boolean).join(" · "),
      ),
    ];
    return el("div", { class: "model-cell" }, link, el("div", { class: "marks" }, ...marks));
  }

  function linkTo(id) {
    return board.hash({ ...board.state(), models: id, tab: "models", task: "" });
  }

  function scored(value, interval, sparkline, extra = null) {
    const text = interval ? el("span", { class: "ends" }, el("span", { class: "unseen" }, " 95 % interval "), interval) : null;
    return el("div", { class: "scored" }, el("span", { class: "value" }, value), text, sparkline, extra);
  }

  function ndcgCell(row) {
    return scored(board.percent(row.ndcg_at_10), board.ndcgInterval(row), board.ndcgSparkline(row, shown.scales.ndcg));
  }

  function startToEndCell(row) {
    return scored(board.points(row.start_to_end), board.startToEndInterval(row), null);
  }

  function psiCell(row) {
    const range = board.nullRange(row);
    const extra = range ? el("span", { class: "narrow-only faint" }, `null ${range}`) : null;
    return scored(board.plain(row.psi_estimate), board.psiInterval(row), board.psiSparkline(row, shown.scales.psi), extra);
  }

  function queriesCell(row) {
    return (row.approximate && board.known(row.queries) ? "≈ " : "") + board.count(row.queries);
  }

  /** Return the rows of a view at a length for the table, the chart and the downloads, from the columns of that length. */
  board.rowsOf = (index, view, columns) => {
    const names = Object.keys(columns);
    return view.models.map((model, at) => {
      const row = Object.fromEntries(Object.entries(index.models).map(([name, values]) => [name, values[model]]));
      for (const name of names) row[name] = columns[name][at];
      return Object.assign(row, {
        partial: view.partial[at],
        approximate: view.approximate[at],
        text: `${row.label} ${row.revision}`.toLowerCase(),
      });
    });
  };

  /** Return whether a row passes the filters. */
  board.passes = (row, state) =>
    row.text.includes(state.search.trim().toLowerCase()) &&
    (!state.kind || row.kind === state.kind) &&
    (!state.size || sized(row.parameters, state.size)) &&
    (!state.weights || String(row.open_weights) === state.weights) &&
    (!state.source || (state.source === "published") === row.published);

  function sized(parameters, size) {
    const [from, to] = SIZES.get(size) ?? [NaN, NaN];
    return size === "unknown" ? !board.known(parameters) : board.known(parameters) && parameters >= from && parameters < to;
  }

  /** Show rows with the filters, order and page of a state. */
  board.showTable = (rows, columns, state) => {
    const key = drawKey(state);
    // Drawn only if needed: a redrawn row loses the keyboard focus.
    if (shown?.rows === rows && shown.key === key) {
      updateRows();
      return;
    }
    if (shown?.rows !== rows) {
      shown = { rows, scales: board.scales(columns) };
      const ranked = rows.filter((row) => row.rank).length;
      const paired = rows.reduce((sum, row) => sum + (row.rank ? row.paired : 0), 0) / 2;
      byId("pairs").textContent = `${paired} of ${(ranked * (ranked - 1)) / 2} in the table`;
      if (table) table.clear().rows.add(rows);
    }
    const page = Math.max(Number(state.page) || 1, 1) - 1;
    if (table) table.order(orderOf(state.sort)).draw();
    else createTable(rows, state);
    if (page && page < table.page.info().pages) table.page(page).draw("page");
  };

  /** Return the rows that pass the filters, of all pages, in the table's order. */
  board.tableRows = () => (table ? table.rows({ search: "applied", order: "applied" }).data().toArray() : []);

  const drawKey = (state) =>
    JSON.stringify([state.search, state.kind, state.size, state.weights, state.source, state.sort, state.page]);

  function orderOf(sort) {
    const at = place(sort.replace(/^-/, ""));
    return COLUMNS[at] && COLUMNS[at].orderable !== false
      ? [[at, sort.startsWith("-") ? "desc" : "asc"]]
      : [[place("ndcg_at_10"), "desc"]];
  }

  function createTable(rows, state) {
    const element = el("table", { class: "results" }, el("caption", { class: "unseen" }, "Models with nDCG@10 and PSI"));
    // Outside the page, where every width that DataTables measures would trigger a layout.
    const detached = el("div", {}, element);
    table = new DataTable(element, {
      data: rows,
      columns: COLUMNS,
      order: orderOf(state.sort),
      autoWidth: false,
      pageLength: PAGE,
      orderMulti: false,
      layout: { topStart: null, topEnd: null, bottomStart: null, bottomEnd: { paging: { firstLast: false } } },
      language: {
        emptyTable: "No results yet.",
        zeroRecords: "No model passes these filters.",
        paginate: { previous: "Previous", next: "Next" },
      },
      createdRow: (node, row) => rowOf.set(node, row),
      preDrawCallback: (settings) => {
        byPsi = sortedBy(new DataTable.Api(settings)).name === "psi";
      },
      // Set before the rows are in the page, so that there is only one layout.
      rowCallback: (node, row) => {
        node.cells[RANK].textContent = board.range(byPsi ? row.psi_rank : row.rank);
      },
    });
    table.search.fixed("filters", (_, row) => board.passes(row, board.state()));
    table.on("draw", drawn);
    if (board.isFiltered(state)) table.draw();
    else drawn();
    byId("table").replaceChildren(detached);
  }

  function sortedBy(api) {
    const [[at, direction]] = api.order();
    return { name: COLUMNS[at].name, sort: (direction === "desc" ? "-" : "") + COLUMNS[at].name };
  }

  function drawn() {
    const { page, pages } = table.page.info();
    shown.key = drawKey(board.note({ sort: sortedBy(table).sort, page: String(page + 1) }));
    table.column(RANK).header().querySelector(".dt-column-title").textContent = byPsi ? "Rank by PSI" : "Rank";
    byId("table").classList.toggle("one-page", pages < 2);
    updateRows();
  }

  // Updates without drawing: selected models, links, and the number of models.
  function updateRows() {
    const { recordsDisplay, recordsTotal } = table.page.info();
    board.sayCount(recordsDisplay, recordsTotal);
    const selected = board.models(board.state());
    for (const node of table.table().body().rows) {
      const row = rowOf.get(node);
      if (!row) continue;
      const chosen = selected.includes(row.id);
      const box = node.querySelector("input");
      node.classList.toggle("selected", chosen);
      box.checked = chosen;
      box.disabled = !chosen && selected.length >= board.MAX_COMPARED;
      node.querySelector("a").href = linkTo(row.id);
    }
  }
}
