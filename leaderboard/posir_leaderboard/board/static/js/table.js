"use strict";
// The table of models, which DataTables sorts, filters and pages.

{
  const { el, byId } = board;
  const PAGE = 20;
  const rowOf = new WeakMap();
  let table = null;
  let shown = null;
  const pageButtons = el("nav", { class: "pages", "aria-label": "Pages of the table" });

  // Unranked results come last in both sort orders. Among ranked and unranked results, missing values come last.
  const compareMissingLast = (direction) => ([later, a], [other, b]) => {
    if (later !== other) return later - other;
    if (a === b) return 0;
    if (a === null) return 1;
    if (b === null) return -1;
    return (a < b ? -1 : 1) * direction;
  };
  DataTable.type("missing-last", { order: { asc: compareMissingLast(1), desc: compareMissingLast(-1) }, className: "" });
  DataTable.ext.errMode = "throw";

  /** Labels of cells on a narrow page, where each row is a card without column heads. */
  const CARDS = { score: "nDCG@10", effect: "Position effect", verdict: "Bias within the window", difference: "Start minus end", psi: "PSI as published" };

  /** Score keys of the columns whose names differ from the key. */
  const KEYS = { score: "ndcg_at_10", effect: "position_effect", psi: "psi_as_published" };

  /** Return a column with functions from a row to its cell and its sort value. */
  function column(name, title, value, cell, { first = "desc", className = name } = {}) {
    return {
      name,
      title,
      ariaTitle: title || board.scoreTitle(KEYS[name] ?? name),
      className,
      type: "missing-last",
      // The search ignores the text of cells.
      searchable: false,
      orderSequence: [first, first === "desc" ? "asc" : "desc"],
      data: null,
      createdCell: (cell) => name in CARDS && cell.setAttribute("data-title", CARDS[name]),
      render: (_, type, row) => (type === "display" ? asElement(cell(row)) : [Number(!board.isComparable(row)), value(row) ?? null]),
    };
  }

  // DataTables would interpret strings as markup.
  const asElement = (content) => (typeof content === "string" ? el("span", {}, content) : content);

  const unsortedColumn = (name, title, cell, fills = null) => ({ ...column(name, title, () => null, cell), orderable: false, fills });

  const QUARTERS = ["q1", "q2", "q3", "q4"];

  /** Scores in a column of the table or in the details of a row. */
  const SHOWN_SCORES = ["queries", "ndcg_at_10", "position_effect", "unread_share", "psi_as_published"];

  /** Return a column for each other score, such as those from other packages; empty columns are hidden. */
  const otherColumns = () =>
    board
      .declaredScores()
      .filter(({ key, column: shownInTables }) => shownInTables && !SHOWN_SCORES.includes(key))
      .map(({ key, better }) => ({
        ...column(key, "", (row) => row[key], (row) => scoreElement(board.valueText(row, key), board.intervalText(row, key)), {
          first: better === "lower" ? "asc" : "desc",
          className: `declared ${key.replace(".", "-")}`,
        }),
        ariaTitle: board.scoreTitle(key),
        declared: key,
      }));

  const buildColumns = () => [
    unsortedColumn("select", "Compare", selector),
    unsortedColumn("rank", "Rank", () => ""),
    column("label", "Model", (row) => row.label.toLowerCase(), modelCell, { first: "asc" }),
    column("score", "", (row) => row.score, scoreCell),
    unsortedColumn("behind", "Behind", behindCell, (row) => (shown.best ? row.behind : null)),
    unsortedColumn("curve", "Over position", curveCell, (row) => row.strip),
    { ...column("effect", "", (row) => distance(row.effect), effectCell, { first: "asc" }), fills: (row) => row.effect },
    unsortedColumn("verdict", "Bias within the window", verdictCell),
    { ...column("difference", "Start minus end", (row) => distance(row.difference), differenceCell, { first: "asc" }), fills: (row) => (row.published ? row.difference : null) },
    { ...column("psi", "", (row) => row.psi_as_published, psiCell, { first: "asc" }), declared: "psi_as_published" },
    ...otherColumns(),
    ...QUARTERS.map((name) => ({ ...column(name, name.toUpperCase(), (row) => row[name], (row) => lengthCell(row, name)), fills: (row) => (shown.length === name.toUpperCase() ? null : row[name]) })),
    column("change", "Q1 to Q4", (row) => row.change, (row) => board.points(row.change)),
    { ...column("kind", "Kind", (row) => row.kind, (row) => row.kind, { first: "asc" }), fills: (row) => row.kind },
    { ...column("parameters", "Size", (row) => row.parameters, (row) => board.shortenNumber(row.parameters)), fills: (row) => row.parameters },
    { ...column("window", "Window", (row) => row.window, (row) => board.count(row.window)), fills: (row) => row.window },
  ];
  /** Columns that are visible only while the table is sorted by them. */
  const ON_DEMAND = ["change", "psi", "kind", "parameters", "window"];
  let columns = [];
  const columnIndex = (name) => columns.findIndex((column) => column.name === name);

  /** Return true if a row has a value in a column. */
  const isFilled = ({ fills, declared }) =>
    !(fills || declared) || shown.rows.some((row) => board.isKnown(fills ? fills(row) : row[declared]) && (fills ? fills(row) : row[declared]) !== board.DASH);

  const distance = (value) => (board.isKnown(value) ? Math.abs(value) : null);

  function selector(row) {
    const box = el("input", { type: "checkbox", "aria-label": `Compare ${row.label}`, onchange: () => board.toggleModel(row.id) });
    box.checked = board.models(board.state()).includes(row.id);
    return el("label", { class: "box" }, box);
  }

  function modelCell(row) {
    const [organization, name] = /^[^\s/(),]+\//.test(row.label) ? row.label.split(/\/(.*)/s) : ["", row.label];
    const link = el(
      "a",
      { class: "model-name", href: linkTo(row.id) },
      el("span", {}, organization ? board.name(`${organization}/`, { class: "faint" }) : null, board.name(name)),
    );
    const marks = [
      row.published && shown.mixed ? el("span", { class: "mark" }, "published") : null,
      row.origin ? el("span", { class: "mark" }, row.origin) : null,
      row.partial ? el("span", { class: "mark partial" }, `partial: ${row.partial}`) : null,
      row.other_data ? el("span", { class: "mark partial" }, row.other_data) : null,
      row.standing ? el("span", { class: "mark" }, row.standing) : null,
      el("span", { class: "meta" }, ...row.about.flatMap((part, i) => [i ? " " : "", el("span", {}, i + 1 < row.about.length ? `${part} ·` : part)])),
    ];
    const expand = el(
      "button",
      { type: "button", class: "expand", "aria-expanded": "false", "aria-label": `Details of ${row.label}`, onclick: toggleDetails },
      "▸",
    );
    return el("div", { class: "model-cell" }, expand, link, el("div", { class: "marks" }, ...marks));
  }

  const toggleDetails = ({ currentTarget }) => toggle(currentTarget);

  async function toggle(button) {
    const row = table.row(button.closest("tr"));
    const open = !row.child.isShown();
    button.setAttribute("aria-expanded", open);
    if (open) row.child(detailsOf({ ...row.data(), length: shown.length }, lengthsOf(row.data(), await board.loadAllLengths())), "details").show();
    else row.child.hide();
  }

  const withEnds = (row) => [board.percent(row.score), board.formatScoreInterval(row)].filter(Boolean).join(" ");
  const ends = (interval) => (interval ? el("span", { class: "ends" }, interval) : "");

  /** Describe the change of published scores from the shortest to the longest documents. */
  function describeLengths(lengths) {
    const scored = Object.entries(lengths).filter(([name, lengthRow]) => name !== "all" && board.isKnown(lengthRow.score)).map(([, lengthRow]) => lengthRow);
    if (scored.length < 2) return "";
    const [first, last] = [scored[0], scored.at(-1)];
    const differences = [first, last].map(board.differenceOf);
    const ends = differences.every(board.isKnown) ? `, and start minus end goes from ${board.points(differences[0])} to ${board.points(differences[1])} points` : "";
    return `From the shortest documents to the longest, nDCG@10 ${last.score < first.score ? "falls" : "rises"} from ${board.percent(first.score)} to ${board.percent(last.score)}${ends}.`;
  }

  /** Return the details of an expanded row: answer, observed scores, and each length with interval, rank and queries. */
  function detailsOf(row, lengths) {
    const answer = row.parts ?? [];
    const facts = [
      answer.length ? null : [board.scoreTitle("state"), row.published ? board.UNTESTED : row.state_label],
      row.published ? null : ["Start minus end (different questions)", [board.points(row.difference), board.intervalText(row, "start_minus_end")].filter(Boolean).join(" ")],
      row.published ? null : [board.scoreTitle("psi_as_published"), board.valueText(row, "psi_as_published")],
      [board.scoreTitle("psi_by_chance"), board.formatChanceRange(row)],
      row.length === "all" || !lengths.all ? null : [`${board.scoreTitle("ndcg_at_10")}, all lengths`, withEnds(lengths.all)],
      [board.scoreTitle("queries"), (row.approximate ? "≈ " : "") + board.count(row.queries)],
      row.published && board.isKnown(row.score_low) ? ["Intervals", "widest possible for independent queries"] : null,
    ].filter((fact) => fact?.[1] && fact[1] !== board.DASH);
    const means = `All: ${board.describeScore("ndcg_at_10")} Lengths: ${board.describeScore("ndcg_at_10_as_published")}`;
    const others = Object.entries(lengths).filter(([name]) => name !== "all" && name !== row.length);
    const every = others.map(([, lengthRow]) => lengthRow);
    const lengthColumns = [
      ["Length", () => true, (lengthRow, name) => name],
      [board.scoreTitle("ndcg_at_10"), (lengthRow) => lengthRow.score, (lengthRow) => [board.percent(lengthRow.score), " ", ends(board.formatScoreInterval(lengthRow))], row.published ? means : null],
      ["Rank", (lengthRow) => lengthRow.rank, (lengthRow) => board.range(lengthRow.rank)],
      row.published
        ? ["Start minus end", board.differenceOf, (lengthRow) => [board.points(board.differenceOf(lengthRow)), " ", ends(board.intervalText(lengthRow, "start_minus_end"))]]
        : [board.scoreTitle("position_effect"), (lengthRow) => lengthRow.position_effect, (lengthRow) => [board.points(lengthRow.position_effect), " ", ends(board.intervalText(lengthRow, "position_effect"))]],
      [board.scoreTitle("queries"), (lengthRow) => lengthRow.queries, (lengthRow) => board.count(lengthRow.queries)],
    ].filter(([, value]) => every.filter((lengthRow) => board.isKnown(value(lengthRow))).length >= Math.min(2, every.length));
    // On a wide page, these are columns of the table.
    const repeats = ([title]) => title === board.scoreTitle("ndcg_at_10") && !every.some(board.formatScoreInterval);
    const kind = (column) => `${column[0].toLowerCase().replaceAll(/\W+/g, "-")}${repeats(column) ? " repeated" : ""}`;
    const head = lengthColumns.map((column) => el("th", { scope: "col", title: column[3], class: kind(column) }, column[0]));
    const body = others.map(([name, lengthRow]) =>
      el("tr", {}, ...lengthColumns.map((column, i) => el(i ? "td" : "th", { scope: i ? null : "row", class: kind(column) }, ...[column[2](lengthRow, name)].flat().filter((part) => part !== board.DASH)))),
    );
    const byLength = el("table", { class: lengthColumns.slice(1).every(repeats) ? "repeated" : null }, el("caption", { class: "unseen" }, `Lengths of ${row.label}`), el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body));
    const curve = row.published && row.strip ? el("div", { class: "curve" }, board.positionChart(row), el("p", { class: "tokens" }, el("span", {}, "start of documents"), el("span", {}, "nDCG@10, 0 to 100"), el("span", {}, "end"))) : null;
    const definitionList = (of, kind) => el("dl", { class: kind }, ...of.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, ...board.renderCode(text)))));
    const statistics = answer.length ? el("details", {}, el("summary", {}, "Statistics"), definitionList(facts, "facts")) : definitionList(facts, "facts");
    const summary = answer.length ? definitionList(answer, "parts") : el("p", { class: "told" }, describeLengths(lengths));
    const table = every.length ? byLength : null;
    const [left, right] = row.published ? [[summary, curve ? table : null], [curve, statistics, curve ? null : table]] : [[summary, row.code ? commands(row.code) : null], [table, statistics]];
    return el("div", { class: "detail" }, el("div", {}, ...left), el("div", {}, ...right));
  }

  /** Return commands as code with a button to copy them. */
  function commands(code) {
    const copy = ({ target }) => navigator.clipboard.writeText(code).then(() => (target.textContent = "Copied"));
    return el("div", { class: "code" }, el("pre", { tabindex: 0, "aria-label": "Commands" }, ...code.split(/((?:^|(?<=\s))-\S+ \S+|\s+)/).map((word) => (word.trim() ? el("span", {}, word) : word))), navigator.clipboard ? el("button", { type: "button", class: "quiet", onclick: copy }, "Copy") : null);
  }

  function linkTo(id) {
    return board.toFragment({ ...board.state(), models: id, tab: "models", task: "" });
  }

  function scoreElement(value, interval, ...parts) {
    const text = interval ? el("span", { class: "ends" }, el("span", { class: "unseen" }, " interval "), interval) : null;
    return el("div", { class: "scored" }, el("span", { class: "value" }, value), text, ...parts);
  }

  function scoreCell(row) {
    const mark = shown.mixed && row.score_key !== "ndcg_at_10" && board.isKnown(row.score) ? el("span", { class: "ends" }, "as published") : null;
    return scoreElement(board.percent(row.score), board.formatScoreInterval(row), mark);
  }

  /** Return how many points a row is behind the best, and whether the difference is significant. */
  function behindCell(row) {
    if (row === shown.best) return el("span", { class: "standing" }, "best");
    if (!shown.best || !board.isKnown(row.behind)) return board.DASH;
    const tie = board.isTied(shown.best, row) ? el("span", { class: "standing tie", title: "Whether it is worse than the best" }, board.describeChange(shown.best, row) ?? "inconclusive") : null;
    return el("div", { class: "behind" }, el("span", { class: "value" }, board.points(row.behind)), tie);
  }

  function curveCell(row) {
    const truncated = board.isTruncated(row) ? el("span", { class: "unread" }, board.describeTruncation(row.unread_share)) : null;
    return el("div", { class: "picture" }, truncated, board.positionChart(row));
  }

  function lengthCell(row, name) {
    const cell = el("span", { class: "heat" }, board.percent(row[name]));
    board.shadeCell(cell, row[name]);
    return cell;
  }

  const effectCell = (row) => (board.isKnown(row.effect) ? scoreElement(board.points(row.effect), board.intervalText(row, "position_effect")) : board.DASH);

  function verdictCell(row) {
    const interval = board.intervalText(row, "position_effect_in_window");
    const effect = interval ? el("span", { class: "ends" }, `${board.points(row.position_effect_in_window)} ${interval}`) : null;
    return el("div", { class: "verdict-cell" }, board.stateChip(row), effect);
  }

  const differenceCell = (row) =>
    board.isKnown(row.difference) ? scoreElement(board.points(row.difference), board.intervalText(row, "start_minus_end")) : board.DASH;

  const psiCell = (row) => scoreElement(board.decimals(row.psi_as_published), "");

  const LENGTH_FIELDS = [
    ...["score", "score_low", "score_high", "rank", "queries", "start_to_end_unweighted"],
    ...["position_effect", "position_effect_low", "position_effect_high", "start_minus_end", "start_minus_end_low", "start_minus_end_high"],
  ];
  const pick = (columns, i) => Object.fromEntries(LENGTH_FIELDS.map((name) => [name, columns[name]?.[i] ?? null]));
  const lengthsOf = (row, every) => Object.fromEntries(every.map(([length, columns]) => [length, pick(columns, row.index)]));

  /** Build the rows of a view at a length from the columns of that length. */
  board.rowsOf = (index, view, { where, headline, lead, ...columns }, length) => {
    const rows = view.models.map((model, i) => {
      const row = Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[i]]));
      for (const [name, values] of Object.entries(index.models)) row[name] = values[model];
      for (const name of QUARTERS) row[name] = view.scores[name.toUpperCase()]?.[i] ?? null;
      return Object.assign(row, {
        index: i,
        model,
        score_key: board.scoreKey(length, index.models.published[model]),
        partial: view.partial[i],
        standing: view.standing[i],
        approximate: view.approximate && index.models.published[model],
        about: view.about[i],
        change: board.isKnown(row.q1) && board.isKnown(row.q4) ? row.q4 - row.q1 : null,
        effect: row.position_effect ?? null,
        difference: board.differenceOf(row),
        text: `${row.label} ${row.revision}`.toLowerCase(),
      });
    });
    const best = board.best(rows.filter(board.isComparable));
    for (const row of rows) row.behind = best && board.isComparable(row) && board.isKnown(row.score) ? board.pointsBehind(row, best) : null;
    return rows;
  };

  board.pointsBehind = (row, best) => row.score - best.score;

  /** Return the row with the highest nDCG@10, or null. */
  board.best = (rows) => rows.filter((row) => board.isKnown(row.score)).reduce((best, row) => (!best || row.score > best.score ? row : best), null);

  /** Return the change from one row to another in words, or null if they have different queries. */
  board.describeChange = (from, row) => board.changes[row.changes?.[from.index]] ?? null;

  /** Return true if a row is not worse than a row with a higher score, judged by their change, their intervals, or the printed scores. */
  board.isTied = (better, row) => {
    const change = row.changes?.[better.index] ?? "-";
    if (change !== "-") return change !== "w";
    const hasIntervals = board.isKnown(better.score_low) && board.isKnown(row.score_high);
    return hasIntervals ? row.score_high >= better.score_low : board.percent(better.score) === board.percent(row.score);
  };

  /** Show rows with the filters, order and page of a state. */
  board.showTable = (rows, state, { length }) => {
    const key = drawKey(state);
    // Redraw only if needed, since a redrawn row loses the keyboard focus.
    if (shown?.rows === rows && shown.key === key) {
      updateRows();
      return;
    }
    if (shown?.rows !== rows) {
      const comparable = rows.filter(board.isComparable);
      shown = {
        rows,
        length,
        mixed: rows.some((row) => row.published) && rows.some((row) => !row.published),
        best: comparable.length > 1 ? board.best(comparable) : null,
        hasRanges: rows.some((row) => row.rank),
      };
      const ranked = rows.filter((row) => row.rank).length;
      const paired = rows.reduce((sum, row) => sum + (row.rank ? row.paired : 0), 0) / 2;
      byId("pairs").textContent = `${paired} of ${(ranked * (ranked - 1)) / 2} in the table`;
      if (table) {
        table.clear().rows.add(rows);
        columns.forEach((column, i) => table.column(i).visible(isFilled(column), false));
      }
      byId("table").classList.toggle("no-effect", !rows.some((row) => board.isKnown(row.effect) || board.isKnown(row.difference)));
      // Only with additional columns, since a scrolling table has no sticky head.
      byId("table").classList.toggle("others", otherColumns().some(isFilled));
      board.showKey(rows);
    }
    const page = Math.max(Number(state.page) || 1, 1) - 1;
    if (table) table.order(orderOf(state.sort)).draw();
    else createTable(rows, state);
    if (page && page < table.page.info().pages) table.page(page).draw("page");
    return openFirst();
  };

  /** Maximum number of models for which a row is expanded at first. */
  const MAX_EXPANDED = 5;

  /** Expand the first row that truncates evidence, if there is room. */
  async function openFirst() {
    const first = board.tableRows().find(board.isTruncated);
    if (!first || shown.rows.length > MAX_EXPANDED || shown.opened === first) return;
    shown.opened = first;
    const node = table.row((_, row) => row === first).node();
    if (!table.row(node).child.isShown()) await toggle(node.querySelector(".expand"));
  }

  /** Return the filtered rows of all pages in the table's order. */
  board.tableRows = () => (table ? table.rows({ search: "applied", order: "applied" }).data().toArray() : []);

  const drawKey = (state) =>
    JSON.stringify(["search", ...board.FILTERS, "unranked", "sort", "page"].map((name) => state[name]));

  function orderOf(sort) {
    const i = columnIndex(sort.replace(/^-/, ""));
    return columns[i] && columns[i].orderable !== false && isFilled(columns[i])
      ? [[i, sort.startsWith("-") ? "desc" : "asc"]]
      : [[columnIndex("score"), "desc"]];
  }

  function createTable(rows, state) {
    const element = el("table", { class: "results" }, el("caption", { class: "unseen" }, "Models with nDCG@10, by position and length"));
    // Detached: in the page, every width that DataTables measures would trigger a layout.
    const detached = el("div", {}, element);
    columns = buildColumns();
    table = new DataTable(element, {
      data: rows,
      columns: columns.map((column) => ({ ...column, visible: isFilled(column) })),
      order: orderOf(state.sort),
      autoWidth: false,
      pageLength: PAGE,
      orderMulti: false,
      layout: { topStart: null, topEnd: null, bottomStart: null, bottomEnd: null },
      language: { emptyTable: "No results yet.", zeroRecords: "No model passes these filters." },
      createdRow: (node, row) => rowOf.set(node, row),
      // Set before the rows enter the page, so that there is only one layout.
      rowCallback: (node, row) => {
        node.querySelector("td.rank").textContent = rankOf(row);
      },
    });
    table.search.fixed("filters", (_, row) => passes(row, board.state()));
    table.on("draw", updateAfterDraw);
    labelScores();
    labelLengths();
    table.draw();
    byId("table").replaceChildren(detached, pageButtons, el("p", { id: "unranked" }));
    offerUnranked();
  }

  /** Return the range of ranks of a row, or its position by score if no row has a range. */
  function rankOf(row) {
    if (shown.hasRanges) return board.range(row.rank);
    const placed = (other) => board.isComparable(other) && board.isKnown(other.score);
    return placed(row) ? String(1 + shown.rows.filter((other) => placed(other) && other.score > row.score).length) : board.DASH;
  }

  const passes = (row, state) => (state.unranked !== "hidden" || board.isComparable(row)) && board.passes(row, state);

  /** Show a button that hides the unranked results at the end. */
  function offerUnranked() {
    const state = board.state();
    const unranked = shown.rows.filter((row) => !board.isComparable(row) && board.passes(row, state)).length;
    const container = byId("unranked");
    if (!container) return;
    container.hidden = !unranked;
    const hidden = state.unranked === "hidden";
    const what = `${unranked} ${unranked === 1 ? "result is" : "results are"} not comparable (partial, on data that are not pinned, or with another mean), and so not ranked and last. `;
    const change = () => board.change({ unranked: hidden ? "" : "hidden", page: "1" });
    container.replaceChildren(what, el("button", { type: "button", class: "quiet", "aria-expanded": !hidden, onclick: change }, hidden ? "Show" : "Hide"));
  }

  /** Tooltips of heads without a score. */
  const HEADS = {
    rank: "A range of ranks; without intervals, the order by nDCG@10.",
    behind: "Points of nDCG@10 behind the best, computed before rounding.",
    curve: "A document from its start to its end: nDCG@10 at each position, on an axis from 0 to 100. Hatched: truncated evidence.",
    difference: "nDCG@10 for evidence at the start of documents minus nDCG@10 for evidence at the end, in the data as they are. The questions differ, so this is not a bias.",
  };

  // DataTables interprets titles as markup.
  function labelHeader(header, key) {
    header.querySelector(".dt-column-title").textContent = board.scoreTitle(key);
    header.title = board.describeScore(key);
  }

  /** Set the heads of scores from their declarations. */
  function labelScores() {
    columns.forEach(({ declared }, i) => declared && labelHeader(table.column(i).header(), declared));
    for (const [name, text] of Object.entries(HEADS)) table.column(columnIndex(name)).header().title = text;
    table.column(columnIndex("curve")).header().append(el("span", { class: "tokens" }, ...["start", "\u2195 0 to 100", "end"].map((text) => el("span", {}, text))));
    labelHeader(table.column(columnIndex("effect")).header(), "position_effect");
    table.column(columnIndex("verdict")).header().title = `${board.describeScore("state")} ${board.UNTESTED}`;
  }

  /** Set the head of the ranked score; qualifiers go below the title. */
  function labelScore() {
    const { length } = shown;
    const key = board.scoreKey(length, shown.rows.every((row) => row.published));
    labelHeader(table.column(columnIndex("score")).header(), key);
    table.column(columnIndex("score")).header().querySelector(".dt-column-title").textContent = board.scoreTitle("ndcg_at_10");
    qualify("score", [key === "ndcg_at_10" ? "" : "as published", length === "all" ? "" : `in ${length}`].filter(Boolean).join(", "));
    table.column(columnIndex("psi")).header().querySelector(".dt-column-title").textContent = "PSI";
    qualify("psi", "as published");
    qualify("effect", "same evidence");
    qualify("difference", "different questions");
  }

  function qualify(name, text) {
    const header = table.column(columnIndex(name)).header();
    (header.querySelector(".tokens") ?? header.appendChild(el("span", { class: "tokens" }))).textContent = text;
  }

  /** Set the heads of lengths to their tokens. */
  function labelLengths() {
    for (const name of QUARTERS) {
      const header = table.column(columnIndex(name)).header();
      header.title = board.describeTokens(name.toUpperCase());
      header.append(el("span", { class: "tokens" }, board.tokensOf(name.toUpperCase())));
    }
  }

  function sortedBy(api) {
    const [[i, direction]] = api.order();
    return { name: columns[i].name, sort: (direction === "desc" ? "-" : "") + columns[i].name };
  }

  function updateAfterDraw() {
    const { page, pages } = table.page.info();
    shown.key = drawKey(board.recordChange({ sort: sortedBy(table).sort, page: String(page + 1) }));
    table.column(columnIndex("rank")).header().querySelector(".dt-column-title").textContent = shown.hasRanges ? "Rank" : "#";
    for (const name of ON_DEMAND) table.table().node().classList.toggle(`by-${name}`, sortedBy(table).name === name);
    board.offerPages(pageButtons, { page, pages }, (number) => table.page(number).draw("page"));
    labelScore();
    updateRows();
  }

  // Update selected models, links and the number of models without drawing.
  function updateRows() {
    const { recordsDisplay, recordsTotal } = table.page.info();
    const offered = board.state().unranked === "hidden" ? shown.rows.filter(board.isComparable).length : recordsTotal;
    board.showCount(recordsDisplay, offered);
    offerUnranked();
    const none = byId("table").querySelector("td.dt-empty");
    if (none && recordsTotal) none.replaceChildren(el("button", { type: "button", class: "quiet", onclick: board.resetFilters }, "Reset filters"));
    const selected = board.models(board.state());
    for (const node of table.table().body().rows) {
      const row = rowOf.get(node);
      if (!row) continue;
      const chosen = selected.includes(row.id);
      const box = node.querySelector("input");
      node.classList.toggle("selected", chosen);
      box.checked = chosen;
      box.disabled = !chosen && selected.length >= board.MAX_COMPARED;
      box.title = box.disabled ? `${board.MAX_COMPARED} models are selected, the most that can be compared. Remove one first.` : "";
      node.querySelector("a").href = linkTo(row.id);
    }
  }
}
