// Uses a gateway as the npm package `ai` does, unchanged.
//   node check.mjs tools BASE_URL              the gateway that follows a script (with_script)
//   node check.mjs structure BASE_URL MODEL
import assert from 'node:assert/strict';
import {createOpenAICompatible} from '@ai-sdk/openai-compatible';
import {generateObject, generateText, stepCountIs, streamObject, streamText, tool} from 'ai';
import {z} from 'zod';

const [what, baseURL, model] = process.argv.slice(2);
const provider = createOpenAICompatible(
    {name: 'macrame', baseURL, apiKey: 'unused', supportsStructuredOutputs: true});

const place = z.object({
  name: z.string().max(12),
  kind: z.enum(['city', 'village']),
  tags: z.array(z.enum(['old', 'new', 'large'])).max(2),
  people: z.number().int().min(0).max(999),
});

async function checkStructure() {
  const asked = {model: provider(model), schema: place, prompt: 'Name a place.', maxRetries: 0};
  const {object, finishReason} = await generateObject({...asked, temperature: 1, seed: 1});
  place.parse(object);
  assert.equal(finishReason, 'stop');
  const stream = streamObject({...asked, temperature: 0});
  let pieces = 0;
  for await (const _ of stream.partialObjectStream) ++pieces;
  place.parse(await stream.object);
  assert.ok(pieces > 0);
  const choice = await generateObject({
    model: provider(model), output: 'enum', enum: ['red', 'blue'], prompt: 'A colour?',
    maxRetries: 0});
  assert.ok(['red', 'blue'].includes(choice.object));
}

async function checkTools() {
  const called = [];
  const note = name => async input => {
    called.push([name, input]);
    return '7 degrees';
  };
  const tools = {
    get_weather: tool({
      description: 'Weather of a city',
      inputSchema: z.object({city: z.string(), days: z.number().int().optional()}),
      execute: note('get_weather')}),
    get_time: tool({inputSchema: z.object({}), execute: note('get_time')}),
    write_file: tool({
      inputSchema: z.object({path: z.string(), content: z.string()}),
      execute: note('write_file')}),
  };
  const asked = {model: provider('script-hermes'), tools, prompt: 'How is the weather?',
                 stopWhen: stepCountIs(5), maxRetries: 0};
  const names = ['get_weather', 'get_weather', 'get_time', 'write_file'];
  const {text, steps} = await generateText(asked);
  assert.equal(text, 'It is 7° in Oslo.');
  assert.equal(steps.length, 4);
  assert.deepEqual(called.map(([name]) => name), names);
  assert.deepEqual(called[0][1], {city: 'Oslo'});
  assert.equal(steps[0].reasoningText, 'The user asks for Oslo.');
  called.length = 0;
  const stream = streamText(asked);
  let streamed = '';
  for await (const piece of stream.textStream) streamed += piece;
  assert.ok(streamed.endsWith('It is 7° in Oslo.'), streamed);
  assert.deepEqual(called.map(([name]) => name), names);
}

await {structure: checkStructure, tools: checkTools}[what]();
console.log(`ai: ${what} as its own functions use them`);
