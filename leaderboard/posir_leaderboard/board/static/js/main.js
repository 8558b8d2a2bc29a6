"use strict";
// Update the page from the state.

{
  const { byId } = board;
  let index = null;
  let rows = [];
  let selection = null;
  let cache = { view: null, rows: new Map() };

  /** Maximum number of models to compare. */
  board.MAX_COMPARED = 4;

  /** Return the groups with a view. */
  board.groups = (of) => of.groups.filter((group) => group.views.length);

  /** Return the group and the view of a state, or the opening view if they do not exist. */
  function findView(state) {
    const named = (list, name) => list?.find((item) => item.name === name);
    const groups = board.groups(index);
    const group = named(groups, state.benchmark) ?? named(groups, index.opening) ?? groups[0];
    return { group, view: named(group?.views, state.data) ?? named(group?.views, group?.opening) ?? group?.views[0] };
  }

  /** Select or deselect a model. */
  board.toggleModel = (id) => {
    const selected = board.models(board.state());
    const next = selected.includes(id) ? selected.filter((other) => other !== id) : [...selected, id].slice(0, board.MAX_COMPARED);
    board.change({ models: next.join() });
  };

  /** Return a sentence for each part of a link that does not exist on this board. */
  function listUnknownParts(state, group, choice, length) {
    const isChoice = (id) => [...byId(id).options].some((option) => option.value === state[id]);
    const named = [
      ["benchmark", state.benchmark && state.benchmark !== group?.name, state.benchmark, group?.name],
      ["data", state.data && state.data !== choice?.name, state.data, choice?.label],
      ["length", state.length && state.length !== length, state.length, length === "all" ? "all lengths" : length],
      ...board.FILTERS.map((id) => [`filter “${id}”`, !isChoice(id), state[id], null]),
      ...board.models(state).map((id) => ["model", !index.models.id.includes(id), id, null]),
    ];
    return named
      .filter(([, missing]) => missing)
      .map(([what, , value, instead]) => `This board has no ${what} “${value}”${instead ? `; it shows ${instead}` : ""}.`);
  }

  /** Return a promise of the columns of a length. A view includes the columns of its opening length. */
  const columnsOf = async (choice, view, length) =>
    length === view.opening ? view.columns : board.data(`lengths/${choice.file}-${view.lengths.indexOf(length)}`);

  /** Return the rows of a view at a length, cached so that unchanged rows need no redrawing. */
  function rowsAt(view, length, columns) {
    if (cache.view !== view) cache = { view, rows: new Map() };
    if (!cache.rows.has(length)) cache.rows.set(length, board.rowsOf(index, view, columns, length));
    return cache.rows.get(length);
  }

  async function show(requested) {
    const { group, view: choice } = findView(requested);
    board.syncControls(index, requested, group, choice);
    board.showTray(index, requested);
    const view = await board.data(`views/${choice.file}`);
    // The state may have changed while the data were loading.
    const state = board.state();
    if (findView(state).view !== choice) return;
    const length = view.lengths.includes(state.length) ? state.length : view.opening;
    const columns = await columnsOf(choice, view, length);
    if (board.state() !== state) return;
    board.syncLengths(index, view.lengths, length);
    const every = async () => Promise.all(view.lengths.map(async (name) => [name, await columnsOf(choice, view, name)]));
    board.loadAllLengths = () => showBusy(every()).catch(reportError);
    rows = rowsAt(view, length, columns);
    selection = { group, choice, length, elsewhere: board.groups(index).find((candidate) => candidate.name === "PosIR") };
    board.showProvenance(index, view);
    board.showProblems(listUnknownParts(state, group, choice, length));
    board.showFinding(rows, state, selection, columns);
    board.showAnswers(rows, state, selection, view.lengths);
    await panels[state.tab](state, rowsAt(view, view.opening, view.columns));
  }

  const panels = {
    table: (state) => board.showTable(rows, state, selection),
    chart: (state) => board.showScatter(rows, state),
    models: (state, opening) => board.showModels(index, state, selection, opening),
  };

  function listenToDownloads() {
    const passing = () =>
      board.state().tab === "table" ? board.tableRows() : rows.filter((row) => board.passes(row, board.state()));
    const exported = () => board.exportRows(passing(), selection.choice?.name ?? "", selection.length);
    const name = (suffix) => board.fileName(selection.choice?.name ?? "empty", selection.length, suffix);
    byId("csv").addEventListener("click", () => board.save(board.asCsv(exported()), "text/csv", name(".csv")));
    byId("json").addEventListener("click", () =>
      board.save(JSON.stringify(exported().map(board.nestScores), null, 2), "application/json", name(".json")),
    );
    byId("link").addEventListener("click", async () => {
      // Browsers may forbid copying in a frame of another site.
      await navigator.clipboard.writeText(location.href).then(
        () => board.showStatus("The link is copied; it restores all choices."),
        () => board.showStatus(`The link: ${location.href}`),
      );
    });
    byId("link").hidden = !navigator.clipboard;
  }

  // The old content stays until the new content is loaded; the style sheet fades it after a moment.
  let waiting = 0;
  function showBusy(work) {
    byId("main").setAttribute("aria-busy", ++waiting > 0);
    return work.finally(() => byId("main").setAttribute("aria-busy", --waiting > 0));
  }

  function reportError(error) {
    document.documentElement.dataset.failed = "";
    board.showStatus(`Error: ${error.message}. Reload the page to try again.`);
    throw error;
  }

  async function start() {
    board.followAddress();
    document.documentElement.dataset.theme = board.state().theme;
    index = await board.data("board");
    board.lengths = index.lengths;
    board.messages = index.messages;
    board.changes = index.changes;
    board.declare(index.columns);
    board.makeControls(index);
    listenToDownloads();
    board.onState((state) => showBusy(show(state)).catch(reportError));
    await showBusy(show(board.state()));
    document.documentElement.dataset.ready = "";
  }

  start().catch(reportError);
}
