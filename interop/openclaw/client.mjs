// The real GatewayClient as reviewer and as agent.
import assert from "node:assert/strict";
import { agentToken, check, connect, deviceTokens, finish, newDevice, token, until } from "./peer.mjs";

const person = newDevice();
const reviewer = await check("a device connects with the shared token", async () => {
  const peer = await connect({ token, deviceIdentity: person, scopes: ["operator.admin"], caps: ["approvals"], clientName: "cli", mode: "cli" });
  assert.equal(peer.hello.protocol, 4);
  assert.deepEqual(peer.hello.auth.scopes, ["operator.admin"]);
  return peer;
});
const agent = await check("an agent without a device connects with the shared token", async () => {
  const peer = await connect({ token, scopes: ["operator.approvals", "operator.read"], clientName: "gateway-client", mode: "backend" });
  assert.deepEqual(peer.hello.auth.scopes, ["operator.approvals", "operator.read"]);
  return peer;
});
if (!reviewer || !agent) finish();

const request = (peer, method, params) => {
  const asked = {};
  asked.final = peer.client.request(method, { timeoutMs: 60_000, twoPhase: true, sessionKey: "agent:main:main", ...params }, {
    expectFinal: true, timeoutMs: 30_000, onAccepted: (payload) => { asked.accepted = payload; },
  });
  asked.final.catch(() => {});
  return asked;
};
const about = (peer, event, id) => peer.events.find((seen) => seen.event === event && seen.payload.id === id);

await check("a request is accepted, shown, allowed, and its caller woken", async () => {
  const asked = request(agent, "exec.approval.request", { command: "uname -a", host: "gateway" });
  const { id } = await until(() => asked.accepted);
  const shown = await until(() => about(reviewer, "exec.approval.requested", id));
  assert.equal(shown.payload.request.command, "uname -a");
  const waiting = agent.client.request("exec.approval.waitDecision", { id });
  const { approval } = await reviewer.client.request("approval.get", { id });
  assert.equal(approval.status, "pending");
  assert.equal(approval.presentation.commandText, "uname -a");
  const resolved = await reviewer.client.request("approval.resolve", { id, kind: "exec", decision: "allow-once" });
  assert.equal(resolved.applied, true);
  assert.equal((await asked.final).decision, "allow-once");
  const waited = await waiting;
  assert.equal(waited.decision, "allow-once");
  assert.equal(waited.terminalReason, "user");
  const ended = await until(() => about(reviewer, "exec.approval.resolved", id));
  assert.equal(ended.payload.decision, "allow-once");
});

await check("a plugin's request is denied by the older method", async () => {
  const asked = request(agent, "plugin.approval.request", { title: "Post a message", description: "To everybody", severity: "warning" });
  const { id } = await until(() => asked.accepted);
  await until(() => about(reviewer, "plugin.approval.requested", id));
  const listed = await reviewer.client.request("plugin.approval.list", {});
  assert.ok(listed.some((entry) => entry.id === id));
  assert.deepEqual(await reviewer.client.request("plugin.approval.resolve", { id, decision: "deny" }), { ok: true });
  assert.equal((await asked.final).decision, "deny");
});

await check("a follower of a session hears its approvals and finds the pending ones", async () => {
  const key = "agent:main:followed";
  const first = request(agent, "exec.approval.request", { command: "id", host: "gateway", sessionKey: key });
  const { id } = await until(() => first.accepted);
  const followed = await reviewer.client.request("sessions.messages.subscribe", { key, includeApprovals: true });
  assert.deepEqual(followed.approvalReplay.approvals.map((approval) => approval.id), [id]);
  await reviewer.client.request("approval.resolve", { id, kind: "exec", decision: "deny" });
  const ended = await until(() => reviewer.events.find((seen) => seen.event === "session.approval" && seen.payload.phase === "terminal"));
  assert.equal(ended.payload.approval.id, id);
});

await check("an approval that is not there is an error with a reason", async () => {
  await assert.rejects(reviewer.client.request("approval.get", { id: "nope" }), (error) => {
    assert.equal(error.gatewayCode, "INVALID_REQUEST");
    assert.deepEqual(error.details, { reason: "APPROVAL_NOT_FOUND" });
    return true;
  });
});

await check("a device comes back with the token that it was given", async () => {
  assert.ok(deviceTokens.has(`${person.deviceId} operator`), "no device token was stored");
  const peer = await connect({ deviceIdentity: person, clientName: "cli", mode: "cli", caps: ["approvals"] });
  assert.deepEqual(peer.hello.auth.scopes, ["operator.admin"]);
  await peer.client.stopAndWait();
});

await check("an agent's own token asks, and cannot decide", async () => {
  const peer = await connect({ token: agentToken, scopes: ["operator.admin"], clientName: "gateway-client", mode: "backend" });
  const asked = request(peer, "exec.approval.request", { command: "whoami", host: "gateway" });
  const { id } = await until(() => asked.accepted);
  await assert.rejects(peer.client.request("approval.resolve", { id, kind: "exec", decision: "allow-once" }));
  const { approval } = await reviewer.client.request("approval.get", { id });
  assert.equal(approval.status, "pending");
  await reviewer.client.request("approval.resolve", { id, kind: "exec", decision: "allow-once" });
  assert.equal((await asked.final).decision, "allow-once");
  await peer.client.stopAndWait();
});

await check("a wrong token is refused", async () => {
  await assert.rejects(connect({ token: "nope", deviceIdentity: newDevice(), scopes: ["operator.read"] }), /token mismatch/);
});

await check("no event was missed", () => assert.deepEqual([...reviewer.gaps, ...agent.gaps], []));
await reviewer.client.stopAndWait();
await agent.client.stopAndWait();
finish();
