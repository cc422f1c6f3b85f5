// The real command line as reviewer: `openclaw approvals pending` and `approvals resolve`.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { agentToken, check, connect, finish, newDevice, token, until, url } from "./peer.mjs";

/** Runs the command line. Resolves with its exit code and what it wrote. */
const openclaw = (...words) => new Promise((done) => {
  const env = { ...process.env, OPENCLAW_GATEWAY_URL: url, OPENCLAW_GATEWAY_TOKEN: token };
  execFile(process.execPath, [process.env.OPENCLAW, "approvals", ...words], { env, timeout: 60_000 }, (error, stdout, stderr) => {
    done({ code: error ? error.code ?? 1 : 0, stdout, stderr, text: `${stdout}\n${stderr}` });
  });
});
const succeeded = (ran) => { assert.equal(ran.code, 0, ran.text); return ran; };
const pending = async () => JSON.parse(succeeded(await openclaw("pending", "--json")).stdout).approvals;

const agent = await check("an agent connects", () => connect({ token: agentToken, clientName: "gateway-client", mode: "backend", scopes: ["operator.approvals"] }));
// A request has a route only while somebody who may answer is there to hear of it.
const listener = await check("a reviewer's device connects", () => connect({
  token, deviceIdentity: newDevice(), scopes: ["operator.admin"], caps: ["approvals"], clientName: "openclaw-tui", mode: "ui",
}));
if (!agent || !listener) finish();
const ask = async (method, params) => {
  const asked = {};
  asked.final = agent.client.request(method, { timeoutMs: 120_000, twoPhase: true, ...params }, {
    expectFinal: true, timeoutMs: 120_000, onAccepted: (payload) => { asked.accepted = payload; },
  });
  asked.final.catch(() => {});
  asked.id = (await until(() => asked.accepted)).id;
  return asked;
};

await check("nothing is pending at first", async () => assert.deepEqual(await pending(), []));

const command = await ask("exec.approval.request", { command: "uname -a", host: "gateway" });
const plugin = await ask("plugin.approval.request", { title: "Post a message", description: "To everybody" });

await check("pending lists both kinds", async () => {
  const listed = await pending();
  const kinds = new Map(listed.map((entry) => [entry.id, entry]));
  assert.equal(listed.length, 2);
  assert.equal(kinds.get(command.id)?.kind, "exec");
  assert.equal(kinds.get(command.id)?.summary, "uname -a");
  assert.equal(kinds.get(plugin.id)?.kind, "plugin");
  assert.equal(kinds.get(plugin.id)?.summary, "Post a message: To everybody");
});
await check("pending shows them to a person", async () => {
  const shown = succeeded(await openclaw("pending")).stdout;
  assert.match(shown, /Pending approvals/);
  assert.ok(shown.includes(`${command.id}: uname -a`), shown);
});
await check("resolve allows the command and wakes its caller", async () => {
  const resolved = JSON.parse(succeeded(await openclaw("resolve", command.id, "allow-once", "--json")).stdout);
  assert.equal(resolved.applied, true);
  assert.equal(resolved.approval.decision, "allow-once");
  assert.equal((await command.final).decision, "allow-once");
});
await check("the same answer again is fine", async () => {
  assert.match(succeeded(await openclaw("resolve", command.id, "allow-once")).stdout, /already resolved/);
});
await check("another answer is told the winner", async () => {
  const late = await openclaw("resolve", command.id, "deny");
  assert.equal(late.code, 1, late.text);
  assert.match(late.text, /already resolved with allow-once/);
});
await check("resolve denies the plugin's request", async () => {
  succeeded(await openclaw("resolve", plugin.id, "deny"));
  assert.equal((await plugin.final).decision, "deny");
});
await check("an unknown id is an error", async () => {
  const unknown = await openclaw("resolve", "nope", "deny");
  assert.equal(unknown.code, 1, unknown.text);
  assert.match(unknown.text, /approval not found/);
});
await check("nothing is pending in the end", async () => assert.deepEqual(await pending(), []));

await agent.client.stopAndWait();
await listener.client.stopAndWait();
finish();
