// Checks the official OpenAI SDK for JavaScript against a running muxproxy.
//
// Environment: OPENAI_BASE_URL, OPENAI_API_KEY and CHECK_KEY_{ENDED,STOPPED,ONE_TURN,CONTEXT,UNKNOWN}. Output: one JSON object
// a line for each check, then a summary. Exit status: 0 all passed, 1 one failed, 2 environment incomplete. ../README.md
// has the whole contract.

import assert from 'node:assert/strict'

import OpenAI from 'openai'
import { VERSION } from 'openai/version'

import { formats } from './formats.mjs'

const KEYS = ['ENDED', 'STOPPED', 'ONE_TURN', 'CONTEXT', 'UNKNOWN'].map((k) => 'CHECK_KEY_' + k)
const TEXT = 'Hello! How can I help?'
const ANSWER = 'It is 18 °C in Paris and 14 °C in København.'
const CALLS = [
  ['get_weather', { city: 'Paris' }],
  ['get_weather', { city: 'København' }],
  ['now', {}],
]
const messages = [{ role: 'user', content: 'Hi' }]
const tools = ['get_weather', 'now'].map((name) => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties: {} } },
}))

const checks = []
const check = (name, run) => checks.push({ name, run })

// A client that counts the HTTP requests it makes.
function counted(key, options = {}) {
  const c = { requests: 0 }
  c.sdk = new OpenAI({
    apiKey: process.env[key ? 'CHECK_KEY_' + key : 'OPENAI_API_KEY'],
    fetch: (...args) => {
      c.requests++
      return fetch(...args)
    },
    ...options,
  })
  c.chat = (model, body = {}, options = {}) => c.sdk.chat.completions.create({ model, messages, ...body }, options)
  c.stream = (model, body = {}) => c.chat(model, { stream: true, ...body })
  return c
}

const client = counted('', { maxRetries: 0 })

async function collect(stream) {
  const chunks = []
  for await (const chunk of await stream) chunks.push(chunk)
  return chunks
}

const textOf = (chunks) => chunks.map((c) => c.choices[0]?.delta.content ?? '').join('')

async function caught(promise, type) {
  const error = await promise.then(() => assert.fail('no error'), (e) => e)
  assert.ok(error instanceof type, `${error?.constructor.name} instead of ${type.name}: ${error}`)
  return error
}

check('json', async () => {
  const done = await client.chat('openai')
  assert.equal(done.choices[0].message.content, TEXT)
  assert.deepEqual([done.usage.prompt_tokens, done.usage.completion_tokens], [19, 6])
})

check('stream', async () => {
  const chunks = await collect(client.stream('openai'))
  assert.equal(textOf(chunks), TEXT)
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'stop')
  assert.ok(chunks.every((c) => c.choices.length && !('usage' in c)), 'usage that was not asked for')
})

check('stream_with_usage', async () => {
  const chunks = await collect(client.stream('openai', { stream_options: { include_usage: true } }))
  const last = chunks.pop()
  assert.deepEqual([textOf(chunks), last.choices, last.usage.total_tokens], [TEXT, [], 25])
  assert.ok(chunks.every((c) => c.usage === null))
})

check('stream_helper', async () => {
  const runner = client.sdk.chat.completions.stream({ model: 'openai', messages })
  let text = ''
  runner.on('content', (delta) => (text += delta))
  const final = await runner.finalChatCompletion()
  assert.deepEqual([text, final.choices[0].message.content], [TEXT, TEXT])
})

check('refusal', async () => {
  const want = "I'm sorry, I can't assist with that."
  assert.equal((await client.chat('openai-refusal')).choices[0].message.refusal, want)
  const chunks = await collect(client.stream('openai-refusal'))
  assert.equal(chunks.map((c) => c.choices[0].delta.refusal ?? '').join(''), want)
})

const called = (calls) => calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)])
const results = (calls) => calls.map((c) => ({ role: 'tool', tool_call_id: c.id, content: '18 °C' }))

// Merges tool call deltas by index, as an agent does.
function merge(chunks) {
  const calls = []
  for (const delta of chunks.flatMap((c) => c.choices[0]?.delta.tool_calls ?? [])) {
    const call = (calls[delta.index] ??= { type: 'function', id: '', function: { name: '', arguments: '' } })
    call.id ||= delta.id
    call.function.name += delta.function.name ?? ''
    call.function.arguments += delta.function.arguments ?? ''
  }
  return calls
}

check('tools_in_two_turns', async () => {
  const first = (await client.chat('openai', { tools })).choices[0]
  assert.equal(first.finish_reason, 'tool_calls')
  assert.deepEqual(called(first.message.tool_calls), CALLS)
  const next = [...messages, first.message, ...results(first.message.tool_calls)]
  assert.equal((await client.chat('openai', { tools, messages: next })).choices[0].message.content, ANSWER)
})

check('tools_streamed_in_two_turns', async () => {
  const chunks = await collect(client.stream('openai', { tools }))
  const calls = merge(chunks)
  assert.deepEqual(called(calls), CALLS)
  assert.equal(chunks.at(-1).choices[0].finish_reason, 'tool_calls')
  const next = [...messages, { role: 'assistant', tool_calls: calls }, ...results(calls)]
  assert.equal(textOf(await collect(client.stream('openai', { tools, messages: next }))), ANSWER)
})

check('tools_with_the_stream_helper', async () => {
  const final = await client.sdk.chat.completions.stream({ model: 'openai', messages, tools }).finalChatCompletion()
  assert.deepEqual(called(final.choices[0].message.tool_calls), CALLS)
})

check('logprobs', async () => {
  const content = (await client.chat('openai', { logprobs: true, top_logprobs: 2 })).choices[0].logprobs.content
  assert.equal(content.map((t) => t.token).join(''), TEXT)
  const chunks = await collect(client.stream('openai', { logprobs: true }))
  assert.equal(chunks.flatMap((c) => c.choices[0].logprobs?.content ?? []).map((t) => t.token).join(''), TEXT)
})

check('two_choices', async () => {
  const done = await client.chat('openai', { n: 2 })
  assert.deepEqual(done.choices.map((c) => c.message.content), ['Heads.', 'Tails.'])
  const texts = ['', '']
  for (const chunk of await collect(client.stream('openai', { n: 2 })))
    for (const choice of chunk.choices) texts[choice.index] += choice.delta.content ?? ''
  assert.deepEqual(texts, ['Heads.', 'Tails.'])
})

check('vllm_fields', async () => {
  const done = await client.chat('vllm', { return_token_ids: true, chat_template_kwargs: { enable_thinking: true } })
  const choice = done.choices[0]
  assert.equal(done.prompt_token_ids[0], 151644)
  assert.deepEqual([done.prompt_logprobs, done.kv_transfer_params, choice.stop_reason], [null, null, null])
  assert.equal(choice.token_ids.length, done.usage.completion_tokens)
  assert.equal(choice.message.reasoning_content, 'The user greets.')
})

check('vllm_stream', async () => {
  const stream_options = { include_usage: true, continuous_usage_stats: true }
  const chunks = await collect(client.stream('vllm', { stream_options, return_token_ids: true }))
  assert.equal(chunks[0].prompt_token_ids.length, 9)
  const ids = chunks.slice(1).flatMap((c) => c.choices.flatMap((choice) => choice.token_ids))
  assert.deepEqual([ids.length, ids.at(-1)], [12, 151645])
  assert.equal(chunks.map((c) => c.choices[0]?.delta.reasoning_content ?? '').join(''), 'The user greets.')
  assert.equal(textOf(chunks), TEXT)
  assert.deepEqual(chunks.slice(-2).map((c) => c.usage.completion_tokens), [12, 12])
})

check('sglang', async () => {
  const done = await client.chat('sglang')
  assert.deepEqual([done.choices[0].matched_stop, done.metadata.weight_version], [151645, 'default'])
  const chunks = await collect(client.stream('sglang'))
  assert.deepEqual([textOf(chunks), chunks.at(-1).choices[0].matched_stop], [TEXT, 151645])
})

for (const model of ['crlf', 'cr', 'mixed', 'no-space', 'comments', 'event-lines'])
  check(`framing[${model}]`, async () => assert.equal(textOf(await collect(client.stream('stream-' + model))), TEXT))

check('split_runes', async () =>
  assert.equal(textOf(await collect(client.stream('stream-bytewise'))), '北京😀👩‍👩‍👧naïve Ω≈ç'))

for (const model of ['no-done', 'no-finish-reason'])
  check(`ends_that_are_clean[${model}]`, async () =>
    assert.equal(textOf(await collect(client.stream('stream-' + model))), TEXT))

check('models', async () => {
  const ids = []
  for await (const model of client.sdk.models.list()) ids.push(model.id)
  assert.ok(ids.includes('gpt-4.1-mini'))
  assert.equal((await client.sdk.models.retrieve('gpt-4.1-mini')).owned_by, 'system')
  await caught(client.sdk.models.retrieve('gpt-nope'), OpenAI.NotFoundError)
})

check('embeddings', async () => {
  const made = await client.sdk.embeddings.create({ model: 'text-embedding-3-small', input: 'x', encoding_format: 'float' })
  assert.equal(made.data[0].embedding.length, 3)
})

check('request_id', async () => {
  const { response } = await client.chat('openai', {}, { headers: { 'X-Request-Id': 'check-request-1' } }).withResponse()
  assert.equal(response.headers.get('x-request-id'), 'check-request-1')
  assert.ok((await client.chat('openai'))._request_id)
})

// Calls with another key and wants one request each, the error type and the code.
async function refused(type, key, status, code) {
  const c = counted(key)
  const error = await caught(c.chat('openai'), type)
  assert.deepEqual([error.status, error.code], [status, code])
  await caught(c.stream('openai'), type)
  assert.equal(c.requests, 2, 'the SDK retried')
  return error
}

// The SDK keeps only the member `error` of an error's body, so the field is read from the raw answer.
async function stopCondition(key) {
  const response = await fetch(process.env.OPENAI_BASE_URL + '/chat/completions', {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: 'Bearer ' + process.env['CHECK_KEY_' + key] },
    body: JSON.stringify({ model: 'openai', messages }),
  })
  assert.deepEqual([response.status, response.headers.get('x-should-retry')], [400, 'false'])
  return (await response.json()).stop_condition
}

check('unknown_key', () => refused(OpenAI.AuthenticationError, 'UNKNOWN', 401, 'invalid_api_key'))

check('ended_session', async () => {
  const error = await refused(OpenAI.APIError, 'ENDED', 410, 'session_ended')
  assert.match(error.message, /ended/)
})

check('stopped_session', async () => {
  await refused(OpenAI.BadRequestError, 'STOPPED', 400, 'session_stopped')
  assert.equal(await stopCondition('STOPPED'), 'admin_stop')
})

check('turn_limit', async () => {
  const c = counted('ONE_TURN')
  assert.equal(textOf(await collect(c.stream('openai'))), TEXT)
  assert.equal((await caught(c.chat('openai'), OpenAI.BadRequestError)).code, 'session_stopped')
  assert.equal(c.requests, 2)
  assert.equal(await stopCondition('ONE_TURN'), 'max_turns')
})

check('context_overflow', async () => {
  const c = counted('CONTEXT')
  const error = await caught(c.chat('400-context-openai'), OpenAI.BadRequestError)
  assert.deepEqual([error.code, error.param, c.requests], ['context_length_exceeded', 'messages', 1])
  assert.equal(await stopCondition('CONTEXT'), 'context_length')
})

check('rate_limit_is_retried', async () => {
  const c = counted()
  assert.equal((await c.chat('429-once')).choices[0].message.content, TEXT)
  assert.equal(c.requests, 2)
})

check('rate_limit_is_passed_on', async () => {
  const error = await caught(client.chat('429'), OpenAI.RateLimitError)
  assert.deepEqual([error.headers.get('retry-after'), error.headers.get('x-ratelimit-remaining-requests')], ['1', '0'])
  assert.equal(error.code, 'rate_limit_exceeded')
})

for (const [model, type, code] of [
  ['404', OpenAI.NotFoundError, 'model_not_found'],
  ['403', OpenAI.PermissionDeniedError, 'unsupported_country_region_territory'],
  ['500', OpenAI.InternalServerError, null],
  ['401', OpenAI.InternalServerError, 'upstream_auth'],
  ['html', OpenAI.InternalServerError, 'upstream_invalid'],
  ['302', OpenAI.InternalServerError, 'upstream_invalid'],
  ['truncated-length', OpenAI.InternalServerError, 'upstream_invalid'],
  ['truncated-chunked', OpenAI.InternalServerError, 'upstream_invalid'],
])
  check(`upstream_errors[${model}]`, async () => assert.equal((await caught(client.chat(model), type)).code, code))

for (const model of ['error-after-text', 'error-first', 'error-after-text-done'])
  check(`error_in_the_stream[${model}]`, async () => {
    assert.ok((await caught(collect(client.stream('stream-' + model)), OpenAI.APIError)).message)
  })

for (const model of ['abort', 'reset', 'half-event', 'no-terminal'])
  check(`broken_stream_is_no_clean_end[${model}]`, async () => {
    const error = await caught(collect(client.stream('stream-' + model)), Error)
    assert.ok(!(error instanceof SyntaxError), 'events were glued together')
  })

check('silence_is_filled_with_keepalives', async () => {
  assert.equal(textOf(await collect(client.stream('stream-ids-slow'))), TEXT)
  const raw = await (await client.stream('stream-ids-slow').asResponse()).text()
  assert.match(raw, /^:/m, 'no keepalive was sent')
})

check('large_bodies', async () => {
  const content = '0123456789abcdef'.repeat(1 << 19)
  assert.ok((await client.chat('openai', { messages: [{ role: 'user', content }], user: 'large' })).choices.length)
  assert.equal(textOf(await collect(client.stream('stream-8mb-line'))).length, 8 << 20)
})

check('parallel_calls', async () => {
  const ask = async (_, n) =>
    n % 2 ? (await client.chat('openai')).choices[0].message.content : textOf(await collect(client.stream('openai')))
  assert.deepEqual(await Promise.all(Array.from({ length: 32 }, ask)), Array(32).fill(TEXT))
})

check('cancelled_stream', async () => {
  for await (const chunk of await client.stream('stream-hang')) {
    assert.ok(chunk.choices.length)
    break // which aborts the request
  }
  const controller = new AbortController()
  const stream = await client.chat('stream-hang', { stream: true }, { signal: controller.signal })
  const chunks = []
  const reading = (async () => {
    for await (const chunk of stream) {
      chunks.push(chunk)
      controller.abort()
    }
  })()
  await reading.catch((error) => assert.ok(error instanceof OpenAI.APIUserAbortError, String(error)))
  assert.equal(chunks.length, 1)
  assert.ok((await client.chat('openai')).choices.length, 'the session still works')
})

check('timeout', async () => {
  await caught(client.chat('silent', {}, { timeout: 500 }), OpenAI.APIConnectionTimeoutError)
  assert.ok((await client.chat('openai')).choices.length, 'the session still works')
})

formats({ check, client, counted, collect, caught })

async function main(names) {
  const missing = ['OPENAI_BASE_URL', 'OPENAI_API_KEY', ...KEYS].filter((v) => !process.env[v])
  if (missing.length) {
    console.log(JSON.stringify({ error: 'not set: ' + missing.join(', ') }))
    return 2
  }
  let failed = 0
  const chosen = checks.filter(({ name }) => !names.length || names.some((n) => name.includes(n)))
  for (const { name, run } of chosen) {
    const began = performance.now()
    const error = await run().then(() => undefined, (e) => e)
    if (error) failed++
    const seconds = Math.round(performance.now() - began) / 1000
    console.log(JSON.stringify({ check: name, ok: !error, seconds, ...(error && { error: error.stack ?? String(error) }) }))
  }
  console.log(JSON.stringify({ checks: chosen.length, failed, sdk: VERSION }))
  return failed || !chosen.length ? 1 : 0
}

process.exit(await main(process.argv.slice(2)))
