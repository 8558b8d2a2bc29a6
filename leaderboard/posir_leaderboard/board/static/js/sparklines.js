"use strict";
// Small drawings beside numbers: the picture of the answer, and the state of the bias.

{
  const { known } = board;
  /** Return the picture of the answer, a document from its start to its end; a dash if the positions are unknown. */
  board.strip = (row) => {
    if (!row.strip) return board.el("span", { class: "ends" }, row.published ? "curve not published" : board.DASH);
    return document.importNode(new DOMParser().parseFromString(row.strip, "image/svg+xml").documentElement, true);
  };

  /** Return how much of the evidence is not read. */
  board.unreadOf = (share) => `${Math.round(100 * share)}\u00a0% not read`;

  /** Return whether what is not read matters more than an open state, so that it stands in its place. */
  board.isMostlyUnread = (states, share) => share >= 0.5 && states?.join() === "cannot_be_said";

  /** Reasons that more questions would mend. */
  const FEW = ["few_documents", "wide_interval"];

  /** Return the state of the bias of a row as a chip, of an average in how many tasks each is; its tooltip is the answer, as text. */
  board.chip = ({ states, state_label: label, answer, reason, not_read: unread }) => {
    if (!states) return null;
    const kind = states.length === 1 ? states[0].replaceAll(/[_ ]/g, "-") : "several";
    const said = label.replaceAll("biased ", "").replaceAll("no bias", "none");
    const few = kind === "cannot-be-said" && !unread && FEW.includes(reason);
    // What is not read comes before an open state, which the opened row has.
    const mostly = board.isMostlyUnread(states, unread);
    const told = mostly ? board.unreadOf(unread) : few ? "bias: too few questions" : `${unread ? "in what it reads" : "bias"}: ${said}`;
    return board.el("span", { class: `state ${mostly ? "mostly" : kind}`, title: answer }, told);
  };

  const range = (low, high, format) => (known(low) && known(high) ? `${format(low)} to ${format(high)}` : "");
  board.scoreInterval = (row) => board.intervalText(row, "ndcg_at_10", "score");
  board.nullRange = (row) => range(row.psi_chance, row.psi_chance_high, board.plain);
}
