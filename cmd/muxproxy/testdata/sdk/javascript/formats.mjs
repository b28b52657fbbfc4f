// The checks of text completions and of the Responses API, which checks.mjs runs with its own.

import assert from 'node:assert/strict'

import OpenAI from 'openai'

const TEXT = 'Hello! How can I help?'
const ANSWER = 'Paris is warmer than Oslo.'
const CITIES = [{ city: 'Paris' }, { city: 'Oslo <NO>' }]
const tools = [{ type: 'function', name: 'get_weather', parameters: { type: 'object', properties: {} }, strict: false }]

export function formats({ check, client, counted, collect, caught }) {
  const complete = (model, body = {}) => client.sdk.completions.create({ model, prompt: 'Hello,', ...body })
  const respond = (model, body = {}, c = client) => c.sdk.responses.create({ model, input: 'Hi', ...body })

  check('completions_json', async () => {
    const done = await complete('openai', { prompt: [15339, 11] })
    assert.deepEqual([done.choices[0].text, done.choices[0].finish_reason, done.usage.total_tokens], [' world.', 'stop', 5])
  })

  check('completions_stream', async () => {
    const chunks = await collect(complete('openai', { stream: true }))
    assert.equal(chunks.map((c) => c.choices[0].text).join(''), ' world.')
    assert.ok(chunks.every((c) => !('usage' in c)), 'usage that was not asked for')
  })

  check('completions_stream_with_usage', async () => {
    const chunks = await collect(complete('openai', { stream: true, stream_options: { include_usage: true } }))
    assert.deepEqual([chunks.at(-1).choices, chunks.at(-1).usage.total_tokens], [[], 5])
  })

  check('completions_token_ids', async () => {
    const chunks = await collect(complete('vllm', { stream: true, return_token_ids: true }))
    assert.deepEqual(chunks.flatMap((c) => c.choices[0].token_ids), [4969, 507, 13, 151645])
    assert.deepEqual(chunks[0].choices[0].prompt_token_ids, [9707, 11])
  })

  check('responses_json', async () => {
    const done = await respond('openai')
    assert.deepEqual([done.output_text, done.status, done.usage.total_tokens], [TEXT, 'completed', 25])
  })

  check('responses_stream', async () => {
    const events = await collect(respond('openai', { stream: true }))
    const deltas = events.filter((e) => e.type === 'response.output_text.delta')
    assert.equal(deltas.map((e) => e.delta).join(''), TEXT)
    assert.equal(events.at(-1).type, 'response.completed')
  })

  check('responses_stream_helper', async () => {
    const stream = client.sdk.responses.stream({ model: 'openai', input: 'Hi' })
    let text = ''
    stream.on('response.output_text.delta', (e) => (text += e.delta))
    const final = await stream.finalResponse()
    assert.deepEqual([text, final.output_text], [TEXT, TEXT])
  })

  // Checks the reasoning and the calls of a first turn and gives their results.
  function results(response) {
    assert.deepEqual(response.output.map((item) => item.type), ['reasoning', 'function_call', 'function_call'])
    assert.equal(response.output[0].summary[0].text, '**Comparing** two cities')
    const calls = response.output.slice(1)
    assert.deepEqual(calls.map((c) => JSON.parse(c.arguments)), CITIES)
    return calls.map((c) => ({ type: 'function_call_output', call_id: c.call_id, output: '18 °C' }))
  }

  check('responses_tools_in_two_turns', async () => {
    const first = await respond('openai', { tools, store: false, include: ['reasoning.encrypted_content'] })
    const outputs = results(first)
    const input = [{ role: 'user', content: 'Hi' }, ...first.output, ...outputs]
    assert.equal((await respond('openai', { tools, input })).output_text, ANSWER)
    assert.equal((await respond('openai', { input: outputs, previous_response_id: first.id })).output_text, ANSWER)
  })

  check('responses_tools_streamed_in_two_turns', async () => {
    const first = (await collect(respond('openai', { tools, stream: true }))).at(-1).response
    const body = { input: results(first), previous_response_id: first.id, stream: true }
    const deltas = (await collect(respond('openai', body))).filter((e) => e.type === 'response.output_text.delta')
    assert.equal(deltas.map((e) => e.delta).join(''), ANSWER)
  })

  check('responses_incomplete', async () => {
    const events = await collect(respond('responses-incomplete', { stream: true }))
    assert.deepEqual([events.at(-1).type, events.at(-1).response.incomplete_details.reason], ['response.incomplete', 'max_output_tokens'])
  })

  check('responses_failed_stream', async () => {
    assert.equal((await collect(respond('responses-failed', { stream: true }))).at(-1).type, 'response.failed')
  })

  for (const model of ['responses-abort', 'responses-no-terminal'])
    check(`responses_broken_stream_${model}`, async () => {
      const error = await caught(collect(respond(model, { stream: true })), OpenAI.APIError)
      assert.equal(error.code, 'upstream_invalid')
    })

  check('responses_of_another_session', async () => {
    const known = await respond('openai')
    for (const [param, body] of [
      ['previous_response_id', { previous_response_id: known.id }],
      ['input[0].id', { input: [{ type: 'item_reference', id: known.output[0].id }] }],
      ['background', { background: true }],
      ['conversation', { conversation: 'conv_1' }],
    ]) {
      const other = counted('ONE_TURN')
      const error = await caught(respond('openai', body, other), OpenAI.BadRequestError)
      assert.deepEqual([error.param, error.code, other.requests], [param, 'invalid_request', 1])
    }
  })
}
