"use strict";

// The whole page: one conversation, kept in memory. What the model writes is set as text, never as
// markup, so that it can neither run nor load anything.

const byId = (id) => document.getElementById(id);
const messages = byId("messages");
const input = byId("input");

let conversation = [];
let running = null; // the AbortController of the answer that is being written

function headers() {
  const key = byId("key").value;
  const all = { "Content-Type": "application/json" };
  if (key) all.Authorization = "Bearer " + key;
  return all;
}

function addMessage(kind, title, text) {
  byId("empty").hidden = true;
  const article = document.createElement("article");
  article.className = "message " + kind;
  const heading = document.createElement("h2");
  heading.textContent = title;
  const body = document.createElement("p");
  body.textContent = text;
  article.append(heading, body);
  messages.append(article);
  messages.scrollTop = messages.scrollHeight;
  return body;
}

function appendText(body, text) {
  const atEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 40;
  body.append(text); // a text node
  if (atEnd) messages.scrollTop = messages.scrollHeight;
}

function setRunning(controller) {
  running = controller;
  byId("send").hidden = controller !== null;
  byId("stop").hidden = controller === null;
  messages.setAttribute("aria-busy", String(controller !== null));
}

function request() {
  const system = byId("system").value.trim();
  const body = {
    messages: system ? [{ role: "system", content: system }, ...conversation] : conversation,
    stream: true,
    stream_options: { include_usage: true },
  };
  const numbers = {
    temperature: "temperature",
    top_p: "top-p",
    top_k: "top-k",
    max_tokens: "max-tokens",
    seed: "seed",
  };
  for (const [field, id] of Object.entries(numbers)) {
    const value = byId(id).value;
    if (value !== "") body[field] = Number(value);
  }
  return body;
}

async function errorOf(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return "the server answered with status " + response.status;
  }
}

// Server-sent events: blocks that end with an empty line, of which the data lines matter.
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    let end;
    while ((end = buffer.indexOf("\n\n")) >= 0) {
      const block = buffer.slice(0, end);
      buffer = buffer.slice(end + 2);
      if (block.startsWith("data: ")) yield block.slice(6);
    }
  }
}

async function answer(body, controller) {
  const response = await fetch("/v1/chat/completions", {
    method: "POST",
    headers: headers(),
    body: JSON.stringify(request()),
    signal: controller.signal,
  });
  if (!response.ok) throw new Error(await errorOf(response));
  const start = performance.now();
  let firstToken = 0;
  for await (const data of eventsOf(response)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    const choice = chunk.choices[0];
    if (choice && choice.delta.content) {
      if (!firstToken) firstToken = performance.now();
      appendText(body, choice.delta.content);
    }
    if (chunk.usage) showUsage(chunk.usage, start, firstToken);
  }
}

function showUsage(usage, start, firstToken) {
  const seconds = (performance.now() - firstToken) / 1000;
  const rate = (usage.completion_tokens - 1) / seconds;
  const parts = [
    usage.prompt_tokens + " tokens read",
    usage.prompt_tokens_details.cached_tokens + " of them from the cache",
    usage.completion_tokens + " written",
  ];
  if (usage.completion_tokens > 1 && seconds > 0) parts.push(rate.toFixed(1) + " tokens/s");
  if (firstToken) parts.push("first after " + Math.round(firstToken - start) + " ms");
  byId("status").textContent = parts.join(", ");
}

async function send() {
  const text = input.value.trim();
  if (!text || running) return;
  input.value = "";
  conversation.push({ role: "user", content: text });
  addMessage("user", "You", text);
  const body = addMessage("assistant", "Model", "");
  byId("status").textContent = "Reading …";
  const controller = new AbortController();
  const asked = conversation;
  setRunning(controller);
  try {
    await answer(body, controller);
  } catch (error) {
    if (controller.signal.aborted) {
      byId("status").textContent = "Stopped.";
    } else {
      byId("status").textContent = "";
      addMessage("error", "Error", error.message);
    }
  }
  // What was written so far stays part of the conversation; a question without an answer does not.
  if (conversation === asked) {
    if (body.textContent) {
      conversation.push({ role: "assistant", content: body.textContent });
    } else {
      conversation.pop();
      body.parentElement.remove();
      if (!input.value) input.value = text;
    }
  }
  setRunning(null);
  input.focus();
}

function clearChat() {
  if (running) running.abort();
  conversation = [];
  for (const message of messages.querySelectorAll(".message")) message.remove();
  byId("empty").hidden = false;
  byId("status").textContent = "";
  input.focus();
}

async function showModel() {
  try {
    const response = await fetch("/v1/models", { headers: headers() });
    if (response.ok) byId("model").textContent = (await response.json()).data[0].id;
  } catch {
    byId("status").textContent = "The server does not answer.";
  }
}

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
byId("stop").addEventListener("click", () => running && running.abort());
byId("clear").addEventListener("click", clearChat);
byId("settings-button").addEventListener("click", (event) => {
  const settings = byId("settings");
  settings.hidden = !settings.hidden;
  event.currentTarget.setAttribute("aria-expanded", String(!settings.hidden));
});
byId("key").addEventListener("change", showModel);
input.addEventListener("keydown", (event) => {
  // While a word is being composed Enter belongs to the input method.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running) running.abort();
});
showModel();
