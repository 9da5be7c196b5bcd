// Rates between two readings of figures that only grow.

// Returns rates a second, and the mean time of a request. They are null where there is nothing to compare.
export function rates(before, now, seconds) {
  const requests = before ? now.requests - before.requests : -1;
  const tokens = before ? now.generatedTokens - before.generatedTokens : -1;
  if (requests < 0 || tokens < 0 || seconds <= 0) return { requests: null, tokens: null, time: null };
  return {
    requests: requests / seconds,
    tokens: tokens / seconds,
    time: requests > 0 ? (now.requestSeconds - before.requestSeconds) / requests : null,
  };
}

// The figures of all models together.
export function total(loads) {
  const sum = (name) => loads.reduce((value, load) => value + load[name], 0);
  return {
    requests: sum("requests"),
    requestSeconds: sum("requestSeconds"),
    generatedTokens: sum("generatedTokens"),
  };
}
