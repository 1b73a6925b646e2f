// The npm packages openai and @anthropic-ai/sdk: answers whole and streamed, tools over four turns, schemas, errors,
// requests that their client gives up.
//   node check.mjs BASE_URL
import assert from 'node:assert/strict';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

const url = process.argv[2];
const openai = new OpenAI({baseURL: `${url}/v1`, apiKey: 'key', maxRetries: 0});
const anthropic = new Anthropic({baseURL: url, apiKey: 'key', maxRetries: 0});

const CASES = [];
const FAMILIES = ['hermes', 'mistral', 'harmony', 'llama3'];
// What the scripted models do, turn by turn: tests/unit/agentd/gateway/scripted_model.h.
const TURNS = [
  [['get_weather', {city: 'Oslo'}]],
  [['get_weather', {city: 'Rome', days: 2}], ['get_time', {}]],
  [['write_file', {path: 'report.md', content: '# Tromsø\n\nsays "<b>7°</b>" & more\n'}]],
  [],
];
const SCHEMAS = {
  get_weather: {type: 'object', required: ['city'],
                properties: {city: {type: 'string'}, days: {type: 'integer'}}},
  write_file: {type: 'object', properties: {path: {type: 'string'}, content: {type: 'string'}}},
  get_time: {type: 'object', properties: {}},
};
const LAST = 'It is 7° in Oslo.';
const ASKED = [{role: 'user', content: 'How is the weather?'}];
const FAILURES = [['busy', 429], ['loading', 503], ['broken', 500], ['narrow', 400], ['unknown', 404]];

function test(name, check) { CASES.push([name, check]); }

function both(name, ways, check) {
  for (const [way, ask] of Object.entries(ways)) test(`${name}, ${way}`, () => check(ask));
}

async function failsWith(status, kind, ask) {
  try {
    await ask();
  } catch (failure) {
    assert.ok(failure instanceof kind, `${failure}`);
    assert.equal(failure.status, status, failure.message);
    return failure;
  }
  assert.fail(`no error ${status}`);
}

// A request that its client gives up: it ends at once, and the gateway goes on.
async function givenUp(kind, ask) {
  const control = new AbortController();
  const begun = Date.now();
  setTimeout(() => control.abort(), 200);
  await assert.rejects(() => ask(control.signal), kind);
  assert.ok(Date.now() - begun < 3000);
  const answer = await openai.chat.completions.create({model: 'tiny', messages: ASKED});
  assert.equal(answer.choices[0].message.content, 'RDMA lets a card write.');
}

// Chat completions.

const chatTools = Object.entries(SCHEMAS).map(
    ([name, parameters]) => ({type: 'function', function: {name, parameters}}));
const chatWays = {
  whole: async asked => (await openai.chat.completions.create(asked)).choices[0],
  streamed: async asked =>
      (await openai.chat.completions.stream({...asked, stream: true}).finalChatCompletion()).choices[0],
};
for (const family of FAMILIES) {
  both(`chat: four turns of ${family}`, chatWays, async ask => {
    const messages = [...ASKED];
    for (const expected of TURNS) {
      const {message, finish_reason: reason} =
          await ask({model: `script-${family}`, messages, tools: chatTools});
      const calls = message.tool_calls ?? [];
      assert.deepEqual(
          calls.map(call => [call.function.name, JSON.parse(call.function.arguments)]), expected);
      assert.equal(reason, expected.length ? 'tool_calls' : 'stop');
      messages.push(message, ...calls.map(
          call => ({role: 'tool', tool_call_id: call.id, content: '7 degrees'})));
      if (!expected.length) assert.equal(message.content, LAST);
    }
  });
}

test('chat: the runner of tools', async () => {
  const called = [];
  const tools = Object.entries(SCHEMAS).map(([name, parameters]) => ({type: 'function', function: {
    name, parameters, description: name, parse: JSON.parse,
    function: input => { called.push([name, input]); return '7 degrees'; }}}));
  const runner = openai.chat.completions.runTools({model: 'script-hermes', messages: ASKED, tools});
  assert.equal(await runner.finalContent(), LAST);
  assert.deepEqual(called, TURNS.flat());
});

test('chat: a schema reaches the model', async () => {
  const schema = SCHEMAS.get_weather;
  const {message} = await chatWays.whole({model: 'mirror', messages: ASKED, response_format: {
    type: 'json_schema', json_schema: {name: 'w', schema, strict: true}}});
  assert.ok(JSON.parse(message.content).structure.jsonSchema.includes('city'));
});

test('chat: usage comes with the last piece', async () => {
  const stream = await openai.chat.completions.create({model: 'tiny', messages: ASKED, stream: true,
                                                       stream_options: {include_usage: true}});
  let last, text = '';
  for await (last of stream) text += last.choices[0]?.delta.content ?? '';
  assert.equal(text, 'RDMA lets a card write.');
  assert.equal(last.usage.total_tokens, 17);
});

for (const [model, status] of FAILURES) {
  both(`chat: ${model} is ${status}`, chatWays,
       ask => failsWith(status, OpenAI.APIError, () => ask({model, messages: ASKED})));
}
test('chat: given up', () => givenUp(OpenAI.APIUserAbortError, signal =>
    openai.chat.completions.create({model: 'manual', messages: ASKED}, {signal})));
test('chat: a stream that is given up', () => givenUp(OpenAI.APIUserAbortError, signal =>
    openai.chat.completions.create({model: 'manual', messages: ASKED, stream: true}, {signal})));
test('chat: a stream that is left', async () => {
  const stream = await openai.chat.completions.create({model: 'threaded', messages: ASKED, stream: true});
  for await (const _ of stream) break;
  assert.ok(stream.controller.signal.aborted);
});

// Other paths of OpenAI's.

test('texts', async () => {
  const answer = await openai.completions.create({model: 'tiny', prompt: 'Hello'});
  assert.equal(answer.choices[0].text, 'RDMA lets a card write.');
});

test('embeddings', async () => {
  const answer = await openai.embeddings.create({model: 'embedder', input: ['a', 'b']});
  assert.equal(answer.data.length, 2);
  assert.ok(Math.abs(answer.data[1].embedding[1] - 0.8) < 1e-6);
});

test('models', async () => {
  const ids = [];
  for await (const model of openai.models.list()) ids.push(model.id);
  assert.ok(ids.includes('tiny'));
  assert.equal((await openai.models.retrieve('tiny')).id, 'tiny');
});

// Responses.

const itemTools = Object.entries(SCHEMAS).map(
    ([name, parameters]) => ({type: 'function', name, parameters, strict: false}));
const responseWays = {
  whole: asked => openai.responses.create(asked),
  streamed: asked => openai.responses.stream(asked).finalResponse(),
};
for (const family of FAMILIES) {
  both(`responses: four turns of ${family}`, responseWays, async ask => {
    const input = [...ASKED];
    for (const expected of TURNS) {
      const response = await ask({model: `script-${family}`, input, tools: itemTools, store: false});
      const calls = response.output.filter(item => item.type === 'function_call');
      assert.deepEqual(calls.map(call => [call.name, JSON.parse(call.arguments)]), expected);
      assert.equal(response.status, 'completed');
      input.push(...response.output, ...calls.map(
          call => ({type: 'function_call_output', call_id: call.call_id, output: '7 degrees'})));
      if (!expected.length) assert.equal(response.output_text, LAST);
    }
  });
}

test('responses: functions of a namespace', async () => {
  const tools = [{type: 'namespace', name: 'crm', description: 'Customers.', tools: [
    {type: 'function', name: 'find', parameters: SCHEMAS.get_time}]}];
  const seen = await openai.responses.create({model: 'mirror', input: 'Hi', tools});
  assert.ok(JSON.parse(seen.output_text).tools.toolsJson.includes('crm__find'));
});

for (const [model, status] of FAILURES) {
  both(`responses: ${model} is ${status}`, responseWays,
       ask => failsWith(status, OpenAI.APIError, () => ask({model, input: 'Hi'})));
}
test('responses: given up', () => givenUp(OpenAI.APIUserAbortError, signal =>
    openai.responses.create({model: 'manual', input: 'Hi', stream: true}, {signal})));

// Messages.

const messageTools = Object.entries(SCHEMAS).map(([name, schema]) => ({name, input_schema: schema}));
const messageWays = {
  whole: asked => anthropic.messages.create({max_tokens: 1000, messages: ASKED, ...asked}),
  streamed: asked =>
      anthropic.messages.stream({max_tokens: 1000, messages: ASKED, ...asked}).finalMessage(),
};
for (const family of FAMILIES) {
  both(`messages: four turns of ${family}`, messageWays, async ask => {
    const messages = [...ASKED];
    for (const [turn, expected] of TURNS.entries()) {
      const answer = await ask({model: `script-${family}`, messages, tools: messageTools});
      const calls = answer.content.filter(block => block.type === 'tool_use');
      assert.deepEqual(calls.map(call => [call.name, call.input]), expected);
      assert.equal(answer.stop_reason, expected.length ? 'tool_use' : 'end_turn');
      if (turn === 0 && family !== 'llama3') assert.equal(answer.content[0].type, 'thinking');
      messages.push({role: 'assistant', content: answer.content});
      if (calls.length) {
        messages.push({role: 'user', content: calls.map(
            call => ({type: 'tool_result', tool_use_id: call.id, content: '7 degrees'}))});
      } else {
        assert.equal(answer.content.at(-1).text, LAST);
      }
    }
  });
}

test('messages: the runner of tools', async () => {
  const called = [];
  const tools = messageTools.map(({name, input_schema}) => ({
    type: 'custom', name, input_schema, description: name, parse: input => input,
    run: input => { called.push([name, input]); return '7 degrees'; }}));
  const last = await anthropic.beta.messages.toolRunner(
      {model: 'script-hermes', max_tokens: 1000, messages: ASKED, tools});
  assert.equal(last.content.at(-1).text, LAST);
  assert.deepEqual(called, TURNS.flat());
});

test('messages: a schema reaches the model', async () => {
  const answer = await messageWays.whole({model: 'mirror', output_config: {
    format: {type: 'json_schema', schema: SCHEMAS.get_weather}}});
  assert.ok(JSON.parse(answer.content[0].text).structure.jsonSchema.includes('city'));
});

test('messages: tokens are counted', async () => {
  const counted = await anthropic.messages.countTokens(
      {model: 'tiny', messages: [{role: 'user', content: '12345'}]});
  assert.equal(counted.input_tokens, 5);
});

test('messages: a tool that is held back comes with its reference', async () => {
  const tools = [messageTools[0], {...messageTools[2], defer_loading: true}];
  const offered = async messages =>
      JSON.parse((await messageWays.whole({model: 'mirror', messages, tools})).content[0].text)
          .tools.toolsJson.includes('get_time');
  assert.equal(await offered(ASKED), false);
  assert.equal(await offered([...ASKED,
    {role: 'assistant', content: [{type: 'tool_use', id: 'a', name: 'get_weather', input: {}}]},
    {role: 'user', content: [{type: 'tool_result', tool_use_id: 'a', content: [
      {type: 'tool_reference', tool_name: 'get_time'}]}]}]), true);
});

for (const [model, status] of FAILURES) {
  both(`messages: ${model} is ${status}`, messageWays,
       ask => failsWith(status, Anthropic.APIError, () => ask({model})));
}
test('messages: given up', () => givenUp(Anthropic.APIUserAbortError, signal =>
    anthropic.messages.create({model: 'manual', max_tokens: 9, messages: ASKED, stream: true}, {signal})));
test('messages: a stream that is left', async () => {
  const stream = anthropic.messages.stream({model: 'threaded', max_tokens: 9, messages: ASKED});
  for await (const _ of stream) break;
  assert.ok(stream.controller.signal.aborted);
});

for (const [name, check] of CASES) {
  try {
    await check();
  } catch (failure) {
    console.log(`FAILED: npm: ${name}`);
    throw failure;
  }
}
console.log(`npm openai and @anthropic-ai/sdk: ${CASES.length} cases`);
