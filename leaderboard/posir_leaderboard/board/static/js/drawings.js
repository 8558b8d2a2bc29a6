"use strict";
// Chart sections of models: by position, domain and language. A chart is drawn once its section is on the page.

{
  const { el, section } = board;
  const STROKES = 40;

  function buildMenu(tasks, task) {
    if (tasks.length < 2) return null;
    const select = el(
      "select",
      { "aria-label": "Data", onchange: ({ target }) => board.change({ task: target.value }) },
      ...tasks.map((task) => el("option", { value: task.name }, task.label)),
    );
    select.value = task.name;
    return select;
  }

  /** Return the columns of a curve, with merged bins if one of twenty has few queries. */
  const curveOf = (detail, panel) => detail.curves[panel] ?? detail.panels[panel];

  /** Return the names of merged bins. */
  function binNames(positions, bins) {
    const size = positions.length / bins;
    return Array.from({ length: bins }, (_, i) => positions.slice(i * size, (i + 1) * size)).map((joined) =>
      size > 1 ? `${joined[0]} to ${joined.at(-1)}` : joined[0],
    );
  }

  /** Return the cells of a panel as rows of a chart. */
  function binRows(model, detail, panel) {
    const columns = curveOf(detail, panel);
    const bins = columns.queries.length;
    return binNames(detail.positions, bins).map((position, i) => ({
      model: model.label,
      name_of_model: model.name,
      series: model.series,
      length: detail.lengths[panel],
      position,
      start: i / bins,
      middle: (i + 0.5) / bins,
      end: (i + 1) / bins,
      ...Object.fromEntries(Object.keys(columns).map((name) => [name, columns[name][i]])),
    }));
  }

  /** Return a chart of the models' curves at one length; it reuses the element `container` of an earlier chart, if any. */
  board.positions = (models, choice, length, figures, container) => {
    const withCurves = models.filter((model) => board.detailOf(model, choice)?.panels?.some(Boolean));
    const heading = `${board.titleOf(choice)}: by position of the evidence`;
    if (!withCurves.length) return section(heading, el("p", { class: "empty" }, "The positions of these results are unknown. Choose another length, language or model."));
    const details = withCurves.map((model) => board.detailOf(model, choice));
    // Published curves exist only for some single lengths.
    const atLength = details.filter((detail) => detail.panels[detail.rows.length.indexOf(length)]);
    const panelOf = (detail) => (atLength.length ? detail.rows.length.indexOf(length) : detail.panels.findLastIndex(Boolean));
    const plotted = withCurves.filter((model, i) => details[i].panels[panelOf(details[i])]);
    const panels = plotted.map((model) => details[withCurves.indexOf(model)]);
    const rows = plotted.flatMap((model, i) => binRows(model, panels[i], panelOf(panels[i])));
    nameEnds(rows);
    const title = panels[0].lengths[panelOf(panels[0])];
    const merged = panels.some((detail) => detail.curves[panelOf(detail)]);
    const shown = panels[0].rows.length[panelOf(panels[0])];
    const published = plotted.every((model) => model.published);
    const largest = published ? board.describeEnds(plotted.map((model) => board.rowOf(model, choice, shown))) : [];
    const finding = largest.map((part) => part.textContent ?? part).join("").trim();
    const parts = plotted.map((model, i) => windowChart(model, panels[i], shown)).filter(Boolean);
    const caption = [shown === "all" ? title : shown, parts.length ? "by position in whole documents, truncated or not" : finding].filter(Boolean).join(": ");
    const figure = board.figure(caption, { container, below: numberTable(title, rows) });
    figure.element.classList.add("large");
    figures.push({ container: figure.container, name: panels[0].relative ? "curve" : "steps", rows, high: Math.min(1, Math.ceil(5 * ends(rows, "ndcg_at_10", "ndcg_at_10_high").high - 1e-9) / 5) });
    const without = models.filter((model) => !plotted.includes(model)).map((model) => model.label);
    return section(
      heading,
      ...parts,
      figure.element,
      el(
        "p",
        { class: "faint" },
        panels[0].relative ? "" : `Horizontal: ${lowercaseFirst(panels[0].position_title)}. `,
        "Line: mean over the queries with evidence at that position.",
        rows.some((row) => board.isKnown(row.ndcg_at_10_low)) ? " Shade or bar: 95% interval." : "",
        atLength.length || length === details[0].rows.length[panelOf(details[0])] ? "" : " The papers have no curve over all lengths; this is the longest length with a curve.",
        merged ? " Twenty bins are merged into five if one of them has fewer than 30 queries." : "",
        " “Document length” above switches the length.",
        plotted.some((model) => model.published) && panels[0].relative ? " Published curves are read from the authors’ figures." : "",
        without.length ? ` Positions of ${without.join(", ")} are unknown at this length.` : "",
      ),
      downloadButton(rows, choice),
    );
  };

  /** Return the chart of the window if the model truncates evidence, else null. */
  function windowChart(model, detail, length) {
    const i = detail.rows.length.indexOf(length);
    const share = detail.rows.unread_share?.[i];
    if (!detail.strips?.[i] || !(share >= 0.0005)) return null;
    const statement = ` truncates ${Math.round(100 * share)}% of the evidence`;
    const axis = el("p", { class: "tokens" }, ...["start", "nDCG@10, 0 to 100, at each position in the window", "hatched: truncated"].map((text) => el("span", {}, text)));
    return el("div", { class: "part-read" }, el("h3", {}, board.swatch(model), board.name(model.label), statement), board.positionChart({ strip: detail.strips[i] }), axis);
  }

  /** Label each line at its end; labels that would overlap are stacked. */
  function nameEnds(rows) {
    const last = rows.filter((row, i) => row.series !== rows[i + 1]?.series && board.isKnown(row.ndcg_at_10));
    last.sort((a, b) => b.ndcg_at_10 - a.ndcg_at_10);
    if (last.length < 2 || innerWidth < 800) return;
    let above = Infinity;
    for (const row of last) {
      above = Math.min(row.ndcg_at_10, above - 0.04);
      Object.assign(row, { name: board.shortName(row.name_of_model), name_at: above });
    }
  }

  /** Offer the numbers of a chart as a download. */
  function downloadButton(rows, choice) {
    const save = () => board.save(board.toCsv(POSITION_COLUMNS, rows), "text/csv", board.fileName(choice.name, "positions", ".csv"));
    return el("button", { type: "button", class: "quiet", onclick: save }, "Positions as CSV");
  }

  const POSITION_COLUMNS = ["model", "length", "position", "queries", "ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high"];

  /** Return the ends of a scale for the given columns of rows, in steps of 5 points. */
  function ends(rows, ...names) {
    const values = rows.flatMap((row) => names.map((name) => row[name])).filter(board.isKnown);
    if (!values.length) return { low: 0, high: 1 };
    const low = Math.floor(Math.min(...values) * 20) / 20;
    return { low, high: Math.max(Math.ceil(Math.max(...values) * 20) / 20, low + 0.1) };
  }

  board.ends = ends;

  const lowercaseFirst = (text) => text.charAt(0).toLowerCase() + text.slice(1);

  const legend = (models) =>
    models.length > 1
      ? el("ul", { class: "legend" }, ...models.map((model) => el("li", {}, board.swatch(model), board.name(model.label))))
      : null;

  /** Return the numbers of a chart as a collapsed table. */
  function numberTable(caption, rows) {
    const columns = [
      ["Model", (row) => board.name(row.model)],
      ["Position", (row) => row.position],
      ["Queries", (row) => board.count(row.queries)],
      ["nDCG@10", (row) => board.percent(row.ndcg_at_10)],
      ["95% interval", (row) => board.intervalText(row, "ndcg_at_10") || board.DASH],
    ];
    return collapsedTable(caption, columns, rows);
  }

  function collapsedTable(caption, columns, rows) {
    const details = el("details", {}, el("summary", {}, "Numbers"));
    details.addEventListener("toggle", () => {
      if (details.childElementCount > 1) return;
      const head = el("tr", {}, ...columns.map(([title]) => el("th", { scope: "col" }, title)));
      const body = rows.map((row) => el("tr", {}, ...columns.map(([, cell]) => el("td", {}, cell(row)))));
      details.append(
        board.wide(
          el("table", {}, el("caption", { class: "unseen" }, caption), el("thead", {}, head), el("tbody", {}, ...body)),
        ),
      );
    });
    return details;
  }

  const nameSubset = (name) => name.charAt(0).toUpperCase() + name.slice(1).replaceAll("_", " ");

  board.domains = (models, tasks, task, figures) => {
    const rows = models.flatMap((model) => {
      const subsets = model.tasks.get(task.name)?.subsets;
      return subsets
        ? subsets.name.map((name, i) => ({
            ...Object.fromEntries(Object.keys(subsets).map((column) => [column, subsets[column][i]])),
            model: model.label,
            series: model.series,
            subset: nameSubset(name),
          }))
        : [];
    });
    if (!rows.length) return null;
    const order = rows
      .filter((row) => row.series === rows[0].series)
      .sort((a, b) => (b.ndcg_at_10 ?? -1) - (a.ndcg_at_10 ?? -1))
      .map((row) => row.subset);
    rows.sort((a, b) => order.indexOf(a.subset) - order.indexOf(b.subset));
    const heading = [`${task.name}: by domain`, buildMenu(tasks, task)];
    const columns = [
      ["Domain", (row) => row.subset],
      ["Model", (row) => board.name(row.model)],
      ...["queries", "ndcg_at_10", "position_effect", "unread_share", "psi_as_published"].map((key) => [board.scoreTitle(key), (row) => board.valueText(row, key)]),
      [board.scoreTitle("psi_by_chance"), (row) => board.formatChanceRange(row) || board.DASH],
      [board.scoreTitle("state"), (row) => row.state_label],
    ];
    const { container, element } = board.figure("nDCG@10 by domain");
    figures.push({ container, name: "subsets", rows, ...ends(rows, "ndcg_at_10_low", "ndcg_at_10", "ndcg_at_10_high") });
    return section(
      ...heading,
      legend(models),
      element,
      el("p", { class: "faint" }, "Lines: 95% intervals."),
      collapsedTable("By domain", columns, rows),
    );
  };

  /** Return the hatching for a row without a result. */
  const hatching = (model) =>
    Array.from({ length: STROKES }, (_, i) => ({ model: model.label, missing: true, middle: (i + 0.5) / STROKES }));

  /** Return the panel over all lengths or, failing that, the panel of the longest documents. */
  const panelFor = (detail) => (detail.panels[0] ? 0 : detail.panels.length - 1);

  function hasRelativeCurve(model, task) {
    const detail = model.tasks.get(task.name);
    return Boolean(detail?.relative && detail.panels[panelFor(detail)]);
  }

  /** Return a heat map for each model: tasks of a group as rows, positions as columns, on a scale from 0 to 100. */
  board.heatMaps = (models, tasks, group, figures) => {
    const heat = models.map((model) =>
      tasks
        .filter((task) => models.some((model) => hasRelativeCurve(model, task)))
        .flatMap((task, row) =>
          (hasRelativeCurve(model, task) ? binRows(model, model.tasks.get(task.name), panelFor(model.tasks.get(task.name))) : hatching(model)).map((cell) => ({
            ...cell,
            choice: task.label,
            row,
          })),
        ),
    );
    const withBins = models.filter((_, i) => heat[i].some((cell) => !cell.missing));
    if (!withBins.length) return null;
    const maps = withBins.map((model) => {
      const { length } = heat[models.indexOf(model)].find((cell) => !cell.missing);
      const what = `nDCG@10 by ${group.dimension.toLowerCase()} and position of the evidence, ${length}`;
      const { container, element } = board.figure(models.length > 1 ? `${model.label}: ${what}` : what);
      figures.push({ container, name: "heat", rows: heat[models.indexOf(model)] });
      return element;
    });
    const hatched = withBins.some((model) => heat[models.indexOf(model)].some((cell) => cell.missing));
    const key = hatched ? el("p", { class: "faint" }, "Hatched: no result, or no known curve.") : null;
    return section(`${group.name}: by ${group.dimension.toLowerCase()} and position`, el("div", { class: "figures" }, ...maps), key);
  };
}
