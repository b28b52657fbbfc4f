// Checks the official Anthropic SDK for JavaScript against a running muxproxy.
//
// Environment: ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY and CHECK_KEY_{ENDED,STOPPED,ONE_TURN,CONTEXT,UNKNOWN}. Output and exit
// status are those of checks.mjs; ../README.md has the whole contract.

import assert from 'node:assert/strict'

import Anthropic from '@anthropic-ai/sdk'
import { VERSION } from '@anthropic-ai/sdk/version'

const KEYS = ['ENDED', 'STOPPED', 'ONE_TURN', 'CONTEXT', 'UNKNOWN'].map((k) => 'CHECK_KEY_' + k)
const TEXT = 'Hello! How can I help?'
const ANSWER = 'It is 18 °C in Paris and 14 °C in København.'
const CALLS = [
  ['get_weather', { city: 'Paris' }],
  ['get_weather', { city: 'København' }],
  ['now', {}],
]
const messages = [{ role: 'user', content: 'Hi' }]
const tools = ['get_weather', 'now'].map((name) => ({ name, input_schema: { type: 'object', properties: {} } }))

const checks = []
const check = (name, run) => checks.push({ name, run })

// A client that counts the HTTP requests it makes.
function counted(key, options = {}) {
  const c = { requests: 0 }
  c.sdk = new Anthropic({
    apiKey: process.env[key ? 'CHECK_KEY_' + key : 'ANTHROPIC_API_KEY'],
    authToken: null,
    fetch: (...args) => {
      c.requests++
      return fetch(...args)
    },
    ...options,
  })
  const body = (model, more) => ({ model, messages, max_tokens: 64, ...more })
  c.ask = (model, more = {}, options = {}) => c.sdk.messages.create(body(model, more), options)
  c.events = (model, more = {}) => c.ask(model, { stream: true, ...more })
  c.stream = (model, more = {}) => c.sdk.messages.stream(body(model, more))
  return c
}

const client = counted('', { maxRetries: 0 })

async function collect(stream) {
  const events = []
  for await (const event of await stream) events.push(event)
  return events
}

const textOf = (message) => message.content.map((b) => (b.type === 'text' ? b.text : '')).join('')
const textOfEvents = (events) => events.map((e) => e.delta?.text ?? '').join('')
const called = (message) => message.content.filter((b) => b.type === 'tool_use').map((b) => [b.name, b.input])

function results(message) {
  const calls = message.content.filter((b) => b.type === 'tool_use')
  const content = calls.map((b) => ({ type: 'tool_result', tool_use_id: b.id, content: '18 °C' }))
  return [...messages, { role: 'assistant', content: message.content }, { role: 'user', content }]
}

async function caught(promise, type) {
  const error = await Promise.resolve(promise).then(() => assert.fail('no error'), (e) => e)
  assert.ok(error instanceof type, `${error?.constructor.name} instead of ${type.name}: ${error}`)
  return error
}

check('json', async () => {
  const done = await client.ask('anthropic')
  assert.deepEqual([textOf(done), done.stop_reason], [TEXT, 'end_turn'])
  assert.deepEqual([done.usage.input_tokens, done.usage.output_tokens], [10, 12])
  assert.equal(done._request_id, 'req_018EeWyXxfu5pfWkrYcMdjWG')
})

check('stream', async () => {
  const events = await collect(client.events('anthropic'))
  assert.equal(textOfEvents(events), TEXT)
  assert.equal(events.filter((e) => e.type === 'message_start').length, 1)
  assert.equal(events.at(-1).type, 'message_stop')
})

check('stream_helper', async () => {
  const stream = client.stream('anthropic')
  let text = ''
  stream.on('text', (delta) => (text += delta))
  const final = await stream.finalMessage()
  assert.deepEqual([text, textOf(final), final.stop_reason], [TEXT, TEXT, 'end_turn'])
})

check('tools_in_two_turns', async () => {
  const first = await client.ask('anthropic', { tools })
  assert.deepEqual([called(first), first.stop_reason], [CALLS, 'tool_use'])
  assert.equal(first.usage.cache_creation_input_tokens, 2051)
  const second = await client.ask('anthropic', { tools, messages: results(first) })
  assert.deepEqual([textOf(second), second.usage.cache_read_input_tokens], [ANSWER, 2463])
})

check('tools_streamed_in_two_turns', async () => {
  const first = await client.stream('anthropic', { tools }).finalMessage()
  assert.deepEqual(called(first), CALLS)
  const second = await client.stream('anthropic', { tools, messages: results(first) }).finalMessage()
  assert.equal(textOf(second), ANSWER)
})

// Without what is null or empty, and the SDK's own additions, which are not enumerable.
const plain = (content) =>
  JSON.parse(JSON.stringify(content, (_, v) => (v === null || (Array.isArray(v) && !v.length) ? undefined : v)))

for (const name of ['thinking', 'max-tokens', 'server-tools'])
  check(`stream_amounts_to_its_json[${name}]`, async () => {
    const done = await client.ask('anthropic-' + name)
    const final = await client.stream('anthropic-' + name).finalMessage()
    assert.deepEqual(plain(final.content), plain(done.content))
    assert.deepEqual([final.stop_reason, final.usage.output_tokens], [done.stop_reason, done.usage.output_tokens])
  })

check('thinking', async () => {
  const stream = client.stream('anthropic-thinking', { max_tokens: 2048, thinking: { type: 'enabled', budget_tokens: 1024 } })
  let heard = ''
  stream.on('thinking', (delta) => (heard += delta))
  const [thought, redacted, text] = (await stream.finalMessage()).content
  assert.equal(heard, thought.thinking)
  assert.match(thought.signature, /^EqQB/)
  assert.match(redacted.data, /^EmwK/)
  assert.equal(text.text, '27 × 453 = 12231')
})

check('max_tokens', async () => assert.equal((await client.ask('anthropic-max-tokens')).stop_reason, 'max_tokens'))

check('unknown_fields', async () => {
  const done = await client.ask('anthropic-unknown')
  assert.deepEqual([textOf(done), done.priority], ['café <b> & 😀', 7])
  assert.equal((await collect(client.events('anthropic-unknown'))).at(-1).type, 'message_stop')
})

check('count_tokens', async () =>
  assert.equal((await client.sdk.messages.countTokens({ model: 'claude', messages })).input_tokens, 10))

check('bearer', async () => {
  const c = counted('', { apiKey: null, authToken: process.env.ANTHROPIC_API_KEY })
  assert.equal(textOf(await c.ask('anthropic')), TEXT)
})

check('beta', async () => {
  const betas = ['context-1m-2025-08-07']
  const done = await client.sdk.beta.messages.create({ model: 'anthropic', max_tokens: 64, messages, betas })
  assert.equal(textOf(done), TEXT)
})

// Calls with another key and wants one request for each call, the error's class, type and code.
async function refused(type, key, status, kind, code) {
  const c = counted(key)
  const error = await caught(c.ask('anthropic'), type)
  assert.deepEqual([error.status, error.error.type], [status, 'error'])
  assert.deepEqual([error.error.error.type, error.error.error.code], [kind, code])
  await caught(c.stream('anthropic').finalMessage(), type)
  assert.equal(c.requests, 2, 'the SDK retried')
  return error.error
}

check('unknown_key', () =>
  refused(Anthropic.AuthenticationError, 'UNKNOWN', 401, 'authentication_error', 'invalid_api_key'))

check('ended_session', async () => {
  const body = await refused(Anthropic.APIError, 'ENDED', 410, 'invalid_request_error', 'session_ended')
  assert.match(body.error.message, /ended/)
})

check('stopped_session', async () => {
  const body = await refused(Anthropic.BadRequestError, 'STOPPED', 400, 'invalid_request_error', 'session_stopped')
  assert.equal(body.stop_condition, 'admin_stop')
})

check('turn_limit', async () => {
  const c = counted('ONE_TURN')
  assert.equal(textOf(await c.stream('anthropic').finalMessage()), TEXT)
  const error = await caught(c.ask('anthropic'), Anthropic.BadRequestError)
  assert.deepEqual([error.error.stop_condition, c.requests], ['max_turns', 2])
})

check('context_overflow', async () => {
  const c = counted('CONTEXT')
  const error = await caught(c.ask('anthropic-context'), Anthropic.BadRequestError)
  assert.match(error.error.error.message, /prompt is too long/)
  const next = await caught(c.ask('anthropic'), Anthropic.BadRequestError)
  assert.deepEqual([next.error.stop_condition, c.requests], ['context_length', 2])
})

check('rate_limit_is_retried', async () => {
  const c = counted()
  assert.equal(textOf(await c.ask('anthropic-429-once')), TEXT)
  assert.equal(c.requests, 2)
})

for (const [model, type, kind] of [
  ['anthropic-429', Anthropic.RateLimitError, 'rate_limit_error'],
  ['529', Anthropic.InternalServerError, 'overloaded_error'],
  ['401', Anthropic.InternalServerError, 'api_error'],
  ['html', Anthropic.InternalServerError, 'api_error'],
  ['truncated-length', Anthropic.InternalServerError, 'api_error'],
])
  check(`upstream_errors[${model}]`, async () =>
    assert.equal((await caught(client.ask(model), type)).error.error.type, kind))

for (const model of ['error-first', 'error-after-text'])
  check(`error_in_the_stream[${model}]`, async () => {
    const error = await caught(collect(client.events('anthropic-' + model)), Anthropic.APIError)
    assert.equal(error.error.error.type, 'overloaded_error')
  })

for (const model of ['abort', 'reset', 'no-stop'])
  check(`broken_stream_is_no_clean_end[${model}]`, async () => {
    const events = []
    const error = await caught(
      (async () => {
        for await (const event of await client.events('anthropic-' + model)) events.push(event)
      })(),
      Anthropic.APIError,
    )
    assert.equal(error.error.error.code, 'upstream_invalid')
    assert.equal(events[0].type, 'message_start')
    assert.notEqual(events.at(-1).type, 'message_stop')
    await caught(client.stream('anthropic-' + model).finalMessage(), Anthropic.APIError)
  })

check('silence_is_filled_with_keepalives', async () => {
  assert.equal(textOf(await client.stream('anthropic-slow').finalMessage()), TEXT)
  const raw = await (await client.events('anthropic-slow').asResponse()).text()
  assert.match(raw, /^: keepalive/m, 'no keepalive was sent')
})

check('parallel_calls', async () => {
  const ask = async (_, n) => textOf(await (n % 2 ? client.ask('anthropic') : client.stream('anthropic').finalMessage()))
  assert.deepEqual(await Promise.all(Array.from({ length: 32 }, ask)), Array(32).fill(TEXT))
})

check('cancelled_stream', async () => {
  for await (const event of await client.events('anthropic-hang')) {
    assert.equal(event.type, 'message_start')
    break // which aborts the request
  }
  assert.equal(textOf(await client.ask('anthropic')), TEXT, 'the session still works')
})

check('timeout', async () => {
  await caught(client.ask('silent', {}, { timeout: 500 }), Anthropic.APIConnectionTimeoutError)
  assert.equal(textOf(await client.ask('anthropic')), TEXT, 'the session still works')
})

async function main(names) {
  const missing = ['ANTHROPIC_BASE_URL', 'ANTHROPIC_API_KEY', ...KEYS].filter((v) => !process.env[v])
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
