// The reviewer page, alive: keeps one approval current and sends one answer.
// Owns the state of the page. Invents nothing: every outcome on it was read from the gateway. Talks only to its own
// gateway, with paths made from where this file lies and the approval's id; query parameters mean nothing. Text enters as text nodes only.

const byId = (id) => document.getElementById(id);
const main = byId('approval');
const first = JSON.parse(byId('record').textContent);
const csrf = document.querySelector('meta[name="csrf"]').content;
const { id, digest } = main.dataset;
const path = new URL(`../v1/approvals/${encodeURIComponent(id)}`, import.meta.url).pathname;
const [deny, allow, reason, hint, note, now] = ['deny', 'allow-once', 'reason', 'hint', 'note', 'now'].map(byId);

const ARM_MS = 500;
const WAIT_MS = 25_000;
const REPLY_MS = 15_000;
const FOLLOW_MS = 2_000;
const PAUSE_MS = 200; // between waits: a gateway that is stopping ends them at once
const RETRY_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000];

const STATUSES = ['pending', 'allowed', 'denied', 'expired', 'cancelled'];
const OPEN = ['loading', 'pending', 'resolving', 'connection-error'];

// ---- What follows from what: pure --------------------------------------------------------------------------------

/** The state that a record means on this page. `sent` is what was answered here; `watched`, whether it was open here. */
function stateOf(record, sent, watched) {
  if (record.status !== 'allowed' && record.status !== 'denied') return record.status;
  if (!sent) return watched ? 'elsewhere' : record.status;
  const ours = sent.lost.has(record.decision) || (sent.applied && sent.decision === record.decision);
  return ours ? record.status : 'elsewhere';
}

/** How far an allowed action has come: decided, claimed and settled are separate facts. */
function executionOf(record) {
  if (record.status !== 'allowed') return null;
  if (record.revocation) return 'revoked';
  return record.receipt?.outcome ?? (record.claim ? 'claimed' : 'waiting');
}

/** Whether a later read may say more. A late receipt may still replace an unknown outcome. */
function mayChange(record) {
  return record.status === 'pending' || ['waiting', 'claimed', 'unknown'].includes(executionOf(record));
}

/** Whether it takes several people, so that answers come in before the end. */
function isShared(record) {
  return record.requirement.approvals > 1 || record.requirement.denials > 1;
}

/** What the reply to a decision proves. Whatever does not prove anything is `lost`: only a read can tell. */
function verdictOf(status, body, decision) {
  if (status === 401) return { signedOut: true };
  if (status === 200 && body?.approval?.id === id && body.approval.decision === decision) {
    return { applied: body.applied === true };
  }
  // Recorded, and it takes more people.
  if (status === 200 && body?.approval?.id === id && body.approval.yourVote === decision) return { applied: false };
  const refused = status >= 400 && status < 500 && typeof body?.code === 'string';
  if (!refused) return { lost: true };
  return { detail: body.approval?.status in ENDED ? null : String(body.detail) };
}

const ENDED = { allowed: 'approved', denied: 'denied', expired: 'expired', cancelled: 'cancelled' };
const TITLES = {
  loading: 'Waiting for your answer',
  pending: 'Waiting for your answer',
  resolving: 'Recording your answer…',
  allowed: 'Approved',
  denied: 'Denied',
  expired: 'Expired: nothing runs',
  cancelled: 'Cancelled: nothing runs',
  'connection-error': 'No connection to the gateway',
  'sign-in': 'Signed out',
  'not-found': 'This approval is not here any more',
};
const WHY = {
  timeout: 'Nobody answered in time, so it counts as a no.',
  withdrawn: 'The requester called it off.',
  'caller-lost': 'The program that asked is gone.',
  'gateway-restart': 'The gateway restarted while it was waiting.',
  'run-aborted': 'The run that asked was stopped.',
  'storage-corrupt': 'The stored record is damaged, so it counts as a no.',
  'malformed-verdict': 'An answer could not be understood, so it counts as a no.',
  'no-route': 'There was nobody to ask, so it counts as a no.',
};

function timeLeft(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const [days, hours, minutes] = [86_400, 3_600, 60].map((unit) => Math.floor(seconds / unit));
  if (days >= 2) return `${days} days ${hours % 24} h`;
  if (hours >= 1) return `${hours} h ${minutes % 60} min`;
  return `${minutes}:${String(seconds % 60).padStart(2, '0')}`;
}

// ---- The page's memory -------------------------------------------------------------------------------------------

let record = first.approval;
let state = main.dataset.state;
let watched = false; // it was open to an answer on this page
let sent = null; // { decision, applied, lost: Set of decisions whose reply never came }
let generation = 0; // replies of an older generation change nothing
let inflight = null; // the read that may be given up
let deciding = false;
let endSeen = false; // the end of the action was on screen
let armTimer = 0;
let deadlineRead = false;
let cutOff = false; // the last read failed: what is shown may have moved on
const skewMs = first.nowMs - Date.now();

// ---- Showing -----------------------------------------------------------------------------------------------------

function element(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/** A text that the authority made safe, with its escapes marked. */
function verbatim(text) {
  const parts = text.split(/(\\u\{[0-9A-F]{1,6}\}(?:\[×\d+\])?)/);
  return parts.flatMap((part, i) => {
    if (i % 2 === 0) return part;
    const escape = element('span', 'escape', part);
    return part.startsWith('\\u{A}') ? [escape, document.createElement('br')] : [escape];
  });
}

function clock(ms) {
  const when = new Date(ms);
  const today = when.toDateString() === new Date(Date.now() + skewMs).toDateString();
  return today ? when.toLocaleTimeString() : when.toLocaleString();
}

function title() {
  if (state === 'connection-error' && sent?.lost.size > 0) return 'No reply yet: the outcome is not known';
  if (isAnswered()) return 'Your answer is recorded';
  if (state === 'allowed' && record.revocation) return 'Approved, then taken back';
  return state === 'elsewhere' ? `Answered elsewhere: ${ENDED[record.status]}` : TITLES[state];
}

/** Whether this person has answered, and it takes more people. */
function isAnswered() {
  return ['loading', 'pending'].includes(state) && Boolean(record.yourVote);
}

/** The lines under the title: who answered and why, or what to do. */
function details() {
  const line = (...children) => element('p', '', ...children);
  if (state === 'connection-error') {
    const lost = sent?.lost.size > 0;
    return [line(lost
      ? 'Your answer was sent, but no reply came. Whether it counts is not known yet; this page is asking the gateway.'
      : 'This page tries again by itself. Until then nothing can be decided here.')];
  }
  if (state === 'sign-in') {
    const link = element('a', '', 'Sign in again');
    link.href = location.pathname;
    return [line(link, ' to see where this approval stands.')];
  }
  if (!(state in ENDED) && state !== 'elsewhere') return isShared(record) ? tally(line) : [];
  const at = record.resolvedAtMs ? clock(record.resolvedAtMs) : '';
  if (record.terminalReason !== 'user') return [line(WHY[record.terminalReason] ?? 'It ended without an answer.', ` ${at}`)];
  const lines = [line('By ', ...verbatim(record.resolver?.label ?? 'a reviewer'), `, ${at}`,
    sent && state !== 'elsewhere' ? ', from this page' : '')];
  const said = record.votes.at(-1)?.reason;
  if (said) lines.push(element('p', 'said verbatim', ...verbatim(said)));
  return lines;
}

/** How far several people have come, each by name. */
function tally(line) {
  const allowed = record.votes.filter((vote) => vote.decision !== 'deny').length;
  const { approvals, denials } = record.requirement;
  const denied = record.votes.length - allowed;
  const said = (vote) => (vote.decision === 'deny' ? ' said no' : ' said yes');
  return [
    line(`${allowed} of ${approvals} people have allowed it`, denials > 1 ? `, ${denied} of ${denials} have denied it.` : '.'),
    ...record.votes.map((vote) => line(...verbatim(vote.voter.label), said(vote), `, ${clock(vote.atMs)}`,
      ...(vote.reason ? [': ', ...verbatim(vote.reason)] : []))),
  ];
}

/** After an allow: claimed and executed are shown as they become facts. */
function progress() {
  const { claim, receipt } = record;
  const step = (kind, ...children) => {
    const item = element('li', '', ...children);
    item.dataset.step = kind;
    return item;
  };
  const away = cutOff ? [element('div', 'detail', 'The gateway does not answer: what happened since is not known here.')] : [];
  switch (executionOf(record)) {
    case null: return [];
    case 'revoked': {
      const { by, atMs, reason: why } = record.revocation;
      const end = step('failed', 'Taken back by ', ...verbatim(by.label), `, ${clock(atMs)}: nothing runs`);
      if (why) end.append(element('div', 'detail verbatim', ...verbatim(why)));
      return [end];
    }
    case 'waiting': return [step('next', 'Waiting for the agent to pick it up', ...away)];
    case 'claimed': return [step('done', `Picked up ${clock(claim.atMs)}`), step('next', 'Running', ...away)];
  }
  const said = { succeeded: 'Executed: succeeded', failed: 'Executed: failed', unknown: 'Outcome unknown' }[receipt.outcome];
  const end = step(receipt.outcome, element('span', 'outcome', said), ` ${clock(receipt.atMs)}`);
  if (receipt.detail) end.append(element('div', 'detail verbatim', ...verbatim(receipt.detail)));
  if (receipt.outcome === 'unknown') {
    end.append(element('div', 'detail', 'Check what it did: it is not run again by itself.'));
  }
  return [step('done', `Picked up ${clock(claim.atMs)}`), end];
}

function show(next) {
  const ended = OPEN.includes(state) && !OPEN.includes(next);
  state = next;
  main.dataset.state = next;
  if (next === 'elsewhere') main.dataset.outcome = record.status;
  const execution = executionOf(record);
  if (execution) main.dataset.execution = execution;
  const text = title();
  document.title = `${text} · Holdgate`;
  // Live regions speak on every change: what stays the same is not written again.
  replace(byId('status-title'), [text]);
  replace(byId('status-detail'), details());
  const steps = progress();
  replace(byId('progress'), steps);
  byId('progress').hidden = steps.length === 0;
  controls();
  if (ended) byId('status-title').focus();
}

function replace(parent, children) {
  const fresh = element('div', '', ...children);
  const same = fresh.childNodes.length === parent.childNodes.length
    && [...fresh.childNodes].every((node, i) => node.isEqualNode(parent.childNodes[i]));
  if (!same) parent.replaceChildren(...fresh.childNodes);
}

function controls() {
  if (!deny) return;
  const open = state === 'pending';
  // The status may be far above the buttons: what they wait for is also said beside them.
  const beside = isAnswered() ? `${title()}. It takes more people.` : title();
  now.textContent = isAnswered() || ['resolving', 'connection-error'].includes(state) ? beside : '';
  deny.disabled = !open || record.yourVote === 'deny';
  reason.disabled = !open && state !== 'loading';
  if (!allow) return;
  allow.disabled = !open || !endSeen || Boolean(record.yourVote);
  hint.hidden = endSeen || (!open && state !== 'loading');
}

// ---- Reading -----------------------------------------------------------------------------------------------------

/** One call to this origin. Rejects when there is no reply in time. */
async function call(url, options, ms, giveUp) {
  const limit = AbortSignal.timeout(ms);
  const signal = giveUp ? AbortSignal.any([limit, giveUp]) : limit;
  const reply = await fetch(url, { cache: 'no-store', redirect: 'error', ...options, signal });
  const body = await reply.json().catch(() => null);
  return { status: reply.status, body };
}

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });
const isVisible = () => document.visibilityState === 'visible';

/** Reads until nothing more can change, while the page is visible. The first read answers at once, later ones wait. */
async function follow() {
  const mine = ++generation;
  inflight?.abort();
  let failures = 0;
  let isFirst = true;
  while (mine === generation && isVisible()) {
    // A wait ends with the request; answers on the way there are read.
    const wait = !isFirst && record.status === 'pending' && !isShared(record);
    inflight = new AbortController();
    const reply = await (wait
      ? call(`${path}/wait?timeoutMs=${WAIT_MS}`, {}, WAIT_MS + REPLY_MS, inflight.signal)
      : call(path, {}, REPLY_MS, inflight.signal)).catch(() => null);
    if (mine !== generation) return;
    if (reply?.status === 401) return void show('sign-in');
    if (reply?.status === 404) return void show('not-found');
    const isRecord = [200, 202].includes(reply?.status) && reply.body?.id === id && STATUSES.includes(reply.body.status);
    if (isRecord) {
      failures = 0;
      isFirst = false;
      cutOff = false;
      accept(reply.body);
      if (!mayChange(record)) return;
      await sleep(record.status === 'pending' && wait ? PAUSE_MS : FOLLOW_MS);
    } else {
      // An end that was read stays true without a connection; an open question does not stay open.
      cutOff = true;
      show(record.status === 'pending' ? 'connection-error' : state);
      isFirst = true;
      await sleep(RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
    }
  }
}

function accept(next) {
  record = next;
  const outcome = stateOf(record, sent, watched);
  if (outcome !== 'pending') return void show(outcome);
  watched = true;
  if (state === 'pending' || state === 'loading') return void show(state);
  if (sent?.lost.has(sent.decision) && record.yourVote !== sent.decision) note.textContent = 'Your answer has not been recorded. Please answer again.';
  arm();
}

/** Opens the buttons once the page has been in view for a moment: a key or tap meant for something else does nothing. */
function arm() {
  clearTimeout(armTimer);
  show('loading');
  if (!isVisible()) return;
  armTimer = setTimeout(() => { if (state === 'loading' && isVisible()) show('pending'); }, ARM_MS);
}

// ---- Deciding ----------------------------------------------------------------------------------------------------

async function decide(decision, button) {
  if (state !== 'pending' || deciding) return;
  const said = reason.value.trim();
  if (record.requirement.reasonRequired && !said) {
    note.textContent = 'Please say why: this request needs a reason.';
    reason.focus();
    return;
  }
  deciding = true;
  generation++;
  inflight?.abort();
  note.textContent = '';
  button.dataset.chosen = '';
  show('resolving');
  const reply = await call(`${path}/decision`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-holdgate-csrf': csrf },
    body: JSON.stringify({ decision, digest, ...(said && { reason: said }) }),
  }, REPLY_MS).catch(() => null);
  deciding = false;
  delete button.dataset.chosen;
  const verdict = verdictOf(reply?.status, reply?.body, decision);
  if (verdict.signedOut) return void show('sign-in');
  const lost = new Set(sent?.lost);
  if (verdict.lost) lost.add(decision);
  sent = { decision, applied: verdict.applied === true, lost };
  if (verdict.detail) note.textContent = `Not recorded: ${verdict.detail}`;
  follow();
}

deny?.addEventListener('click', () => decide('deny', deny));
allow?.addEventListener('click', () => { if (endSeen) decide('allow-once', allow); });

// ---- Watching the page -------------------------------------------------------------------------------------------

/** Approve waits until the end of the action was on screen, above the bar that floats over the page's foot. */
function watchEnd() {
  const bar = document.querySelector('.decide');
  let watcher;
  const observe = () => {
    watcher?.disconnect();
    if (endSeen) return;
    watcher = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      endSeen = true;
      watcher.disconnect();
      controls();
    }, { rootMargin: `0px 0px -${bar.offsetHeight}px 0px` });
    watcher.observe(byId('action-end'));
  };
  new ResizeObserver(observe).observe(bar);
}

/** The deadline is the authority's: when the local clock reaches it, the page asks instead of deciding. */
function tick() {
  const countdown = byId('countdown');
  if (!countdown || !OPEN.includes(state)) return;
  const leftMs = record.expiresAtMs - (Date.now() + skewMs);
  countdown.textContent = leftMs > 0 ? timeLeft(leftMs) : 'Time is up';
  countdown.toggleAttribute('data-urgent', leftMs < 60_000);
  if (leftMs > 0 || deadlineRead || deciding || !isVisible()) return;
  deadlineRead = true;
  follow();
}

/** Hidden: nothing is asked and nothing can be pressed. Shown again: the truth first, then the buttons. */
function visibilityChanged() {
  if (deciding) return;
  if (isVisible()) {
    if (state === 'loading') arm();
    if (mayChange(record)) follow();
    return;
  }
  generation++;
  inflight?.abort();
  if (state === 'pending') show('loading');
}

document.addEventListener('visibilitychange', visibilityChanged);
addEventListener('pageshow', (event) => { if (event.persisted) visibilityChanged(); });

if (record.status === 'pending') {
  watched = true;
  watchEnd();
  arm();
  tick();
  setInterval(tick, 1_000);
} else {
  show(stateOf(record, sent, watched));
}
if (mayChange(record)) follow();
